"""Describe a training step or inference step traced by TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.base.errors import ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.graph.averaging import Averaging, averaging_of
from ipusim.ipu.graph.cut import FEED, Kind, Role, Trace
from ipusim.ipu.graph.executable import Executable, shared_name
from ipusim.ipu.graph.needed import NeededNodes, runs_for_effect
from ipusim.ipu.graph.node import Graph, Output, reach


@dataclass(frozen=True, eq=False)
class TracedStep:
    """A traced step including weight update.

    Attributes:
        trace: forward and backward passes.
        accumulators: tensor holding the accumulated gradient, by the variable's shared name.
        update_nodes: node names of the update.
        rule: simulator's optimizer that prices the update; None prices the update node by node.
        averages: whether replicas average gradients; None if a node of the update decides.
    """

    trace: Trace
    accumulators: Mapping[str, Output]
    update_nodes: tuple[str, ...]
    rule: Any = None
    averages: bool | None = None

    @property
    def graph(self) -> Graph:
        """Graph of all nodes."""
        return self.trace.graph

    def weight_update(self) -> Executable:
        """Return the weight update. It takes the accumulated gradients, in the order of ``accumulators``.

        The update reruns nodes of a forward pass that it needs, such as a decayed learning rate. Values that depend on
        queue elements come from the last micro-batch instead (:func:`handed_to_update`).

        Raises:
            UnsupportedProgramError: if the update reads a gradient of a single_gradients micro-batch.
            ProgramTypeError: if a gradient's dtype differs from the variable's dtype.
        """
        self._check_types()
        effects = [name for name in self.update_nodes if runs_for_effect(self.graph.nodes[name])]
        update = Executable(self.graph, list(self.accumulators.values()), [], effects, self._update_part())
        gradients = set(self.trace.gradient_nodes)
        single_gradients = [tensor.node for tensor in update.external if tensor.node in gradients]
        if single_gradients:
            raise UnsupportedProgramError(
                f"weight update: expected one that reads accumulated gradients alone, got {single_gradients[0]!r}"
            )
        return update

    def _check_types(self) -> None:
        """Raise ProgramTypeError if a gradient's dtype differs from the variable's dtype."""
        for name in self.update_nodes:
            node = self.graph.nodes[name]
            handle = self.graph.nodes[node.inputs[0].node] if node.type.startswith("ResourceApply") else node
            if handle.type == "VarHandleOp" and handle is not node and "dtype" in handle.attributes:
                dtype, gradient = np.dtype(handle.attributes["dtype"]), np.dtype(node.attributes["T"])
                if dtype != gradient:
                    raise ProgramTypeError(
                        f"the gradient of {shared_name(handle)!r} is {gradient} and the variable {dtype}: expected "
                        "gradients of the variable's type: if gradient_accumulation_dtype is another type, let an "
                        "optimizer of your own cast the sums, as in `tf.cast(gradient, variable.dtype)`"
                    )

    def averaging(self) -> Averaging | None:
        """Return the weight update split at gradient averaging; None if nothing is averaged."""
        return averaging_of(self.graph, dict(self.accumulators), self.update_nodes, self._update_part())

    def _update_part(self) -> set[str]:
        """Return the names of nodes that the update may run: its own, and repeated nodes of forward passes."""
        return {*self.update_nodes, *repeated_nodes(self.graph, self.trace.owners)}


def repeated_nodes(graph: Graph, owners: Mapping[str, Role]) -> set[str]:
    """Return names of forward-pass nodes whose values do not depend on the micro-batch.

    Args:
        graph: the graph.
        owners: pass of every node of the feed and the forward passes.
    """
    readers: dict[str, list[str]] = {}
    for name in owners:
        for tensor in graph.nodes[name].inputs if name in graph.nodes else ():
            readers.setdefault(tensor.node, []).append(name)
    feeds = [name for name, role in owners.items() if role == FEED]
    element_nodes = reach(feeds, lambda name: readers.get(name, ()))
    return {name for name, role in owners.items() if role.kind is Kind.FORWARD and name not in element_nodes}


def handed_to_update(
    graph: Graph, owners: Mapping[str, Role], accumulators: Mapping[str, Output], update_nodes: Sequence[str]
) -> tuple[Output, ...]:
    """Return tensors of the feed and forward passes that the weight update reads.

    The update sees the values that these tensors have in the last micro-batch.

    Args:
        graph: the graph.
        owners: pass of every node of the feed and the forward passes.
        accumulators: tensor holding the accumulated gradient, by variable.
        update_nodes: node names of the update.
    """
    effects = [name for name in update_nodes if runs_for_effect(graph.nodes[name])]
    part = {*update_nodes, *repeated_nodes(graph, owners)}
    needed_nodes = NeededNodes(graph, accumulators.values(), (), effects, part)
    return tuple(tensor for tensor in needed_nodes.external if tensor.node in owners)
