"""A training step, or an inference, that TensorFlow traced."""

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
from ipusim.ipu.graph.node import Graph, Output


@dataclass(frozen=True, eq=False)
class TracedStep:
    """A traced step with its weight update.

    Attributes:
        trace: forward and backward passes.
        accumulators: the tensor that stands for the accumulated gradient of each variable, by shared name.
        update_nodes: names of the nodes of the update.
        rule: optimizer of the simulator that gives the update's price; None for a price node by node.
    """

    trace: Trace
    accumulators: Mapping[str, Output]
    update_nodes: tuple[str, ...]
    rule: Any = None

    @property
    def graph(self) -> Graph:
        """The graph of all nodes."""
        return self.trace.graph

    def weight_update(self) -> Executable:
        """Return the weight update; it takes the accumulated gradients in the order of ``accumulators``.

        Nodes of a forward pass run again in the update if needed, such as nodes of a decayed learning rate, unless
        they depend on elements of queues: such values are handed to the update.

        Raises:
            UnsupportedProgramError: for an update that reads a gradient of a single micro-batch.
            ProgramTypeError: for a gradient of another dtype than its variable.
        """
        self._check_types()
        effects = [name for name in self.update_nodes if runs_for_effect(self.graph.nodes[name])]
        update = Executable(self.graph, list(self.accumulators.values()), [], effects, self._part())
        gradients = set(self.trace.gradient_nodes)
        single = [tensor.node for tensor in update.external if tensor.node in gradients]
        if single:
            raise UnsupportedProgramError(
                f"weight update: expected one that reads accumulated gradients alone, got {single[0]!r}"
            )
        return update

    def _check_types(self) -> None:
        for name in self.update_nodes:
            node = self.graph.nodes[name]
            handle = self.graph.nodes[node.inputs[0].node] if node.inputs else None
            if node.type.startswith("ResourceApply") and handle is not None and handle.type == "VarHandleOp":
                own, gradient = (np.dtype(each.attributes[key]) for each, key in ((handle, "dtype"), (node, "T")))
                if own != gradient:
                    raise ProgramTypeError(
                        f"the gradient of {shared_name(handle)!r} is {gradient} and the variable {own}"
                    )

    def averaging(self) -> Averaging | None:
        """Return the weight update in two parts; None where replicas average no gradients in it."""
        return averaging_of(self.graph, dict(self.accumulators), self.update_nodes, self._part())

    def _part(self) -> set[str]:
        """Return the names of the nodes that may run in an update."""
        return {*self.update_nodes, *repeated(self.graph, self.trace.owners)}


def repeated(graph: Graph, owners: Mapping[str, Role]) -> set[str]:
    """Return the nodes of forward passes that give the same outside of a micro-batch.

    Args:
        graph: the graph.
        owners: the pass of each node of the feed and of the forward passes.
    """
    of_element = {name for name, role in owners.items() if role == FEED}
    work = list(of_element)
    readers: dict[str, list[str]] = {}
    for name in owners:
        for tensor in graph.nodes[name].inputs if name in graph.nodes else ():
            readers.setdefault(tensor.node, []).append(name)
    while work:
        for name in readers.get(work.pop(), ()):
            if name not in of_element:
                of_element.add(name)
                work.append(name)
    return {name for name, role in owners.items() if role.kind is Kind.FORWARD and name not in of_element}


def handed_to_update(
    graph: Graph, owners: Mapping[str, Role], accumulators: Mapping[str, Output], update_nodes: Sequence[str]
) -> tuple[Output, ...]:
    """Return the tensors of the feed and of forward passes that an update reads as the last micro-batch has them.

    Args:
        graph: the graph.
        owners: the pass of each node of the feed and of the forward passes.
        accumulators: tensor that stands for the accumulated gradient of each variable.
        update_nodes: names of the nodes of the update.
    """
    effects = [name for name in update_nodes if runs_for_effect(graph.nodes[name])]
    part = {*update_nodes, *repeated(graph, owners)}
    needed = NeededNodes(graph, accumulators.values(), (), effects, part)
    return tuple(tensor for tensor in needed.external if tensor.node in owners)
