"""The passes of a stage of a traced step, ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipusim.api import Array
from ipusim.ipu.graph.cut import StageCut, with_sums
from ipusim.ipu.graph.executable import Executable, Invocation, Observer
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Output

#: Values of tensors that lie outside of the step, such as inputs of a pipeline.
Constants = Mapping[Output, Any]


class StagePasses:
    """Runs the passes of one stage.

    Attributes:
        cut: the stage.
        constants: tensors of outside of the step that its passes read.
    """

    def __init__(self, graph: Graph, cut: StageCut, observer: Observer | None = None) -> None:
        """Order the nodes of both passes.

        Raises:
            UnsupportedProgramError: for a node without a kernel.
        """
        self.cut, graph = cut, with_sums(graph, [cut])
        effects = [name for name in cut.forward if runs_for_effect(graph.nodes[name])]
        made = [*cut.gives, *cut.keeps]
        self._forward = Executable(graph, cut.takes, list(dict.fromkeys(made)), effects, set(cut.forward), observer)
        self._made = {tensor: number for number, tensor in enumerate(dict.fromkeys(made))}
        behind = [name for name in cut.backward if runs_for_effect(graph.nodes[name])]
        fetches = [*cut.returns, *cut.gradients.values()]
        self._backward = Executable(graph, [*cut.keeps, *cut.arrives], fetches, behind, set(cut.backward), observer)
        self.constants = tuple(dict.fromkeys((*self._forward.external, *self._backward.external)))

    @property
    def variables(self) -> tuple[str, ...]:
        """Shared names of the variables that its passes use, in the order of their use."""
        return tuple(dict.fromkeys((*self._forward.variables, *self._backward.variables)))

    def forward(
        self, invocation: Invocation, values: Sequence[Any], constants: Constants
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Run the forward pass.

        Args:
            invocation: variables and draws.
            values: of what the stage takes.
            constants: values of tensors of outside of the step.

        Returns:
            Values for the next stage, and values for the backward pass.
        """
        outer = [constants[tensor] for tensor in self._forward.external]
        found = self._forward.run(invocation, [*values, *outer])
        given = tuple(found[self._made[tensor]] for tensor in self.cut.gives)
        return given, tuple(found[self._made[tensor]] for tensor in self.cut.keeps)

    def backward(
        self, invocation: Invocation, kept: Sequence[Any], arriving: Sequence[Any], constants: Constants
    ) -> tuple[tuple[Any, ...], dict[str, Array]]:
        """Run the backward pass.

        Args:
            invocation: variables and draws.
            kept: values that the forward pass kept.
            arriving: values that came back from the next stage.
            constants: values of tensors of outside of the step.

        Returns:
            The values that go back, and the gradients of variables by shared name.
        """
        outer = [constants[tensor] for tensor in self._backward.external]
        found = self._backward.run(invocation, [*kept, *arriving, *outer])
        count = len(self.cut.returns)
        return tuple(found[:count]), dict(zip(self.cut.gradients, found[count:], strict=True))
