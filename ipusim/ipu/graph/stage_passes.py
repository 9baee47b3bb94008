"""Run the passes of a traced stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipusim.api import Array
from ipusim.ipu.graph.cut import StageCut, with_sums
from ipusim.ipu.graph.executable import Executable, Invocation, Observer
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Output

#: Values, by tensor, that a traced step (the graph of one micro-batch) reads but does not compute, such as pipeline
#: inputs.
Constants = Mapping[Output, Any]


class StagePasses:
    """Runs the forward and the backward pass of one stage.

    Attributes:
        stage_cut: the stage.
        constants: tensors that the passes read although no node of the step computes them.
    """

    def __init__(self, graph: Graph, stage_cut: StageCut, observer: Observer | None = None) -> None:
        """Order the nodes of both passes.

        Raises:
            UnsupportedProgramError: if a node has no kernel.
        """
        self.stage_cut, graph = stage_cut, with_sums(graph, [stage_cut])
        effects = [name for name in stage_cut.forward if runs_for_effect(graph.nodes[name])]
        tensors = [*stage_cut.gives, *stage_cut.keeps]
        self._forward = Executable(
            graph, stage_cut.takes, list(dict.fromkeys(tensors)), effects, set(stage_cut.forward), observer
        )
        self._result_indices = {tensor: number for number, tensor in enumerate(dict.fromkeys(tensors))}
        backward_effects = [name for name in stage_cut.backward if runs_for_effect(graph.nodes[name])]
        fetches = [*stage_cut.returns, *stage_cut.gradients.values()]
        self._backward = Executable(
            graph, [*stage_cut.keeps, *stage_cut.arrives], fetches, backward_effects, set(stage_cut.backward), observer
        )
        self.constants = tuple(dict.fromkeys((*self._forward.external, *self._backward.external)))

    @property
    def variables(self) -> tuple[str, ...]:
        """Shared names of the variables used by the passes, in order of use."""
        return tuple(dict.fromkeys((*self._forward.variables, *self._backward.variables)))

    def forward(
        self, invocation: Invocation, values: Sequence[Any], constants: Constants
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Run the forward pass.

        Args:
            invocation: the variables, and the generators of random draws.
            values: values of ``stage_cut.takes``.
            constants: values of tensors that the step does not compute.

        Returns:
            Values for the next stage, and values for the backward pass.
        """
        outer = [constants[tensor] for tensor in self._forward.external]
        results = self._forward.run(invocation, [*values, *outer])
        outputs = tuple(results[self._result_indices[tensor]] for tensor in self.stage_cut.gives)
        return outputs, tuple(results[self._result_indices[tensor]] for tensor in self.stage_cut.keeps)

    def backward(
        self, invocation: Invocation, stash: Sequence[Any], arriving: Sequence[Any], constants: Constants
    ) -> tuple[tuple[Any, ...], dict[str, Array]]:
        """Run the backward pass.

        Args:
            invocation: the variables, and the generators of random draws.
            stash: values kept by the forward pass.
            arriving: values returned by the next stage.
            constants: values of tensors that the step does not compute.

        Returns:
            Values for the previous stage, and gradients of variables by shared name.
        """
        outer = [constants[tensor] for tensor in self._backward.external]
        results = self._backward.run(invocation, [*stash, *arriving, *outer])
        count = len(self.stage_cut.returns)
        return tuple(results[:count]), dict(zip(self.stage_cut.gradients, results[count:], strict=True))
