"""A training step, or an inference, that TensorFlow traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.cut import FEED, Kind, Trace
from ipusim.ipu.graph.executable import Executable
from ipusim.ipu.graph.needed import runs_for_effect
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

        Nodes of a forward pass run again in the update if needed, such as nodes of a decayed learning rate.

        Raises:
            UnsupportedProgramError: for an update that reads an element of a queue.
        """
        effects = [name for name in self.update_nodes if runs_for_effect(self.graph.nodes[name])]
        owners = self.trace.owners
        part = {*self.update_nodes, *(name for name, role in owners.items() if role.kind is Kind.FORWARD)}
        update = Executable(self.graph, list(self.accumulators.values()), [], effects, part)
        fed = [tensor.node for tensor in update.external if owners.get(tensor.node) == FEED]
        if fed:
            raise UnsupportedProgramError(
                f"weight update: expected one that reads no element of a queue, got {fed[0]!r}"
            )
        return update
