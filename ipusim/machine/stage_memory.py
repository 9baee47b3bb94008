"""Hold the variables of one stage on its IPU: weights, optimizer state, gradient accumulators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ipusim.base.errors import MissingTensorError
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained
from ipusim.model.layers.layer import Array, Key, Saved
from ipusim.model.layers.products import load_blas
from ipusim.model.workload import Workload


class StageMemory:
    """The variables of a stage on its IPU: weights, optimizer state, gradient accumulators.

    Parameters of equal name in stages of the same IPU are a single parameter, with a single accumulator.
    """

    def __init__(
        self,
        workload: Workload,
        stage: int,
        count: int,
        earlier: Iterable[StageMemory] = (),
        untrained: dict[str, Array] | None = None,
    ) -> None:
        """Draw the initial parameters of ``stage``, for an accumulation over ``count`` gradients.

        ``earlier`` are preceding stages on the same IPU, which may share parameters. ``untrained`` collects the
        replica's variables without an optimizer; this stage's variables are added.
        """
        optimizer = workload.optimizer
        parameters: dict[str, Array] = workload.initial_parameters(stage)
        frozen = workload.stages[stage].frozen_names
        tied_parameters = {
            name: memory.parameters[name] for memory in earlier for name in parameters if name in memory.parameters
        }
        owners = [(name, memory) for memory in earlier for name in tied_parameters if name in memory.accumulators]
        self.parameters: dict[str, Array] = parameters | tied_parameters
        #: Parameters updated with this stage, not with an earlier stage; frozen parameters are left out.
        self.own_parameters = {
            name: array for name, array in parameters.items() if name not in tied_parameters and name not in frozen
        }
        self.passes = workload.stages[stage].bind(self.parameters)
        self.state = optimizer.initial_state(self.own_parameters) if optimizer else {}
        self.accumulators: dict[str, Array] = workload.accumulators(self.own_parameters) | {
            name: memory.accumulators[name] for name, memory in owners
        }
        #: Per parameter, the later stages that share the parameter; the last stage runs its backward pass first.
        self._later_stages: dict[str, list[StageMemory]] = {}
        for name, memory in owners:
            memory._later_stages.setdefault(name, []).append(self)
        #: Parameters with a gradient from this stage's backward pass.
        self._names_with_gradient: set[str] = set()
        #: Per shared parameter, the earlier stage that updates it; the backward pass of that stage comes last.
        self._owners = {name: memory for name, memory in owners if name in memory.own_parameters}
        self._partial_gradients: dict[tuple[str, int], Array] = {}
        self._gradient_map = optimizer.gradient_map if optimizer else None
        self._is_running_mean = workload.reduction == "RUNNING_MEAN"
        self._scale: float | None = 1 / count if workload.reduction == "MEAN" else None
        self.accumulated = 0
        #: Micro-batch of the current backward pass.
        self.micro_batch = 0
        is_plain_sum = workload.reduction == "SUM" and self._gradient_map is None
        has_equal_dtypes = all(array.dtype == self.parameters[name].dtype for name, array in self.accumulators.items())
        #: The accumulators, if gradients are added unchanged, so that layers may add to them directly; otherwise None.
        self.totals = self.accumulators if is_plain_sum and has_equal_dtypes else None
        initial = workload.stages[stage].initial_untrained()
        all_untrained: dict[str, Array] = {} if untrained is None else untrained
        all_untrained.update((name, value) for name, value in initial.items() if name not in all_untrained)
        self._untrained = Untrained(all_untrained, initial.keys()) if initial else None
        load_blas()  # before the run, which limits the threads of loaded libraries

    def forward(self, x: Any, labels: Array | None, key: Key | None) -> tuple[Any, Saved]:
        """Run a forward pass, which may change untrained variables."""
        if self._untrained is None:
            return self.passes.forward(x, labels, key)
        with Surrounded(untrained=self._untrained):
            return self.passes.forward(x, labels, key)

    def untrained_copies(self) -> Untrained | None:
        """Return copies of untrained variables for a recomputed pass, whose changes are discarded."""
        return None if self._untrained is None else self._untrained.copy()

    def recompute(
        self, x: Any, labels: Array | None, key: Key | None, untrained: Untrained | None
    ) -> tuple[Any, Saved]:
        """Repeat a forward pass with the untrained variables of its first run, so that statistics count once."""
        with Surrounded(untrained=untrained):
            return self.passes.forward(x, labels, key)

    def accumulate(self, name: str, gradient: Array) -> None:
        """Add a micro-batch's gradient of a parameter, after applying the optimizer's gradient map.

        MEAN first scales the gradient by 1 / count. RUNNING_MEAN keeps accumulator * n / (n + 1) + gradient / (n + 1),
        with n the number of earlier micro-batches. The scale has the accumulator's dtype, to keep the precision of
        a wider accumulator.

        If stages share a parameter, the accumulator is scaled by n / (n + 1) only once per micro-batch: for the stage
        whose gradient comes first in the backward pass. The other stages add gradient / (n + 1). So every stage's
        gradients are scaled as in a separate accumulator, in the end to gradient / count.

        A gradient map applies to the complete gradient of a micro-batch, like in TensorFlow's optimizers: gradients of
        stages that share a variable are summed first.

        The stage that comes first in the backward pass must come first for every micro-batch, even if
        gradients of inputs and of weights have separate passes. Raises MissingTensorError otherwise.
        """
        has_later_stages = name in self._later_stages  # later stages contribute first
        if has_later_stages and not self._last_stage_has_contributed(name):
            raise MissingTensorError(
                f"the gradient of {name!r} of micro-batch {self.micro_batch} from a later stage is missing"
            )
        if self._gradient_map is not None:
            if name in self._owners:
                self._owners[name]._add_partial(name, self.micro_batch, gradient)
                return
            if has_later_stages:
                gradient, has_later_stages = gradient + self._partial_gradients.pop((name, self.micro_batch)), False
            gradient = self._gradient_map(gradient, self.parameters[name])
        accumulator = self.accumulators[name]
        first = self._first_contributor(name) if self._is_running_mean and has_later_stages else None
        self._names_with_gradient.add(name)
        if first is not None:
            gradient = gradient * accumulator.dtype.type(1 / first.accumulated)
        elif self._is_running_mean:
            np.multiply(accumulator, accumulator.dtype.type(self.accumulated / (self.accumulated + 1)), out=accumulator)
            gradient = gradient * accumulator.dtype.type(1 / (self.accumulated + 1))
        elif self._scale is not None:
            gradient = gradient * accumulator.dtype.type(self._scale)
        np.add(accumulator, gradient, out=accumulator, casting="same_kind")

    def _last_stage_has_contributed(self, name: str) -> bool:
        """Whether the last stage that shares a parameter has already given its gradient."""
        if self._gradient_map is not None and name not in self._owners:
            return (name, self.micro_batch) in self._partial_gradients
        return (
            self._gradient_map is not None or not self._is_running_mean or self._later_stages[name][-1].accumulated > 0
        )

    def _first_contributor(self, name: str) -> StageMemory | None:
        """Return the later stage whose gradient of a parameter comes first; None if no later stage shares it."""
        return next((stage for stage in reversed(self._later_stages[name]) if name in stage._names_with_gradient), None)

    def _add_partial(self, name: str, micro_batch: int, gradient: Array) -> None:
        """Hold a later stage's partial gradient until this stage adds its part."""
        partial = self._partial_gradients.get((name, micro_batch))
        self._partial_gradients[name, micro_batch] = gradient if partial is None else partial + gradient

    def clear(self) -> None:
        """Zero the accumulators, like Graphcore's compiler before every execution of the pipeline."""
        self.accumulated = 0
        for accumulator in self.accumulators.values():
            accumulator[...] = 0
