"""Tensors of one stage on its IPU: parameters, optimizer state and gradient accumulators."""

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

    A parameter of the same name in an earlier stage of the IPU is the same parameter, with one accumulator.
    """

    def __init__(
        self,
        workload: Workload,
        stage: int,
        count: int,
        earlier: Iterable[StageMemory] = (),
        untrained: dict[str, Array] | None = None,
    ) -> None:
        """Draw the initial parameters of stage number ``stage``; ``count`` gradients are accumulated.

        ``earlier`` are the earlier stages on the same IPU, whose parameters this one may share. ``untrained`` are the
        replica's variables that no optimizer trains, to which this stage's are added.
        """
        optimizer = workload.optimizer
        drawn: dict[str, Array] = workload.initial_parameters(stage)
        frozen = workload.stages[stage].frozen_names
        tied = {name: other.parameters[name] for other in earlier for name in drawn if name in other.parameters}
        shared = [(name, other) for other in earlier for name in tied if name in other.accumulators]
        self.parameters: dict[str, Array] = drawn | tied
        #: The parameters that the weight update changes here, and not with an earlier stage.
        self.own = {name: array for name, array in drawn.items() if name not in tied and name not in frozen}
        self.bound = workload.stages[stage].bind(self.parameters)
        self.state = optimizer.initial_state(self.own) if optimizer else {}
        self.accumulators: dict[str, Array] = workload.accumulators(self.own) | {
            name: other.accumulators[name] for name, other in shared
        }
        #: Of each parameter that later stages share, these stages; the last runs its backward pass first.
        self._later: dict[str, list[StageMemory]] = {}
        for name, other in shared:
            other._later.setdefault(name, []).append(self)
        #: Parameters of which this stage's backward pass gives a gradient.
        self._given: set[str] = set()
        #: Of each parameter of an earlier stage, that stage, whose backward pass is the last.
        self._owners = {name: other for name, other in shared if name in other.own}
        self._partial: dict[tuple[str, int], Array] = {}
        self._map = optimizer.gradient_map if optimizer else None
        self._running = workload.reduction == "RUNNING_MEAN"
        self._scale: float | None = 1 / count if workload.reduction == "MEAN" else None
        self.accumulated = 0
        #: The micro-batch whose backward pass runs.
        self.micro_batch = 0
        plain = workload.reduction == "SUM" and self._map is None
        same = all(array.dtype == self.parameters[name].dtype for name, array in self.accumulators.items())
        #: The accumulators where a gradient is added to them as it is, so that layers may do so themselves.
        self.totals = self.accumulators if plain and same else None
        initial = workload.stages[stage].initial_untrained()
        all_untrained: dict[str, Array] = {} if untrained is None else untrained
        all_untrained.update((name, value) for name, value in initial.items() if name not in all_untrained)
        self._untrained = Untrained(all_untrained, initial.keys()) if initial else None
        load_blas()  # before the run, which limits the threads of the libraries that are there

    def forward(self, x: Any, labels: Array | None, key: Key | None) -> tuple[Any, Saved]:
        """Run a forward pass, which may change untrained variables."""
        if self._untrained is None:
            return self.bound.forward(x, labels, key)
        with Surrounded(untrained=self._untrained):
            return self.bound.forward(x, labels, key)

    def seen(self) -> Untrained | None:
        """Return copies of untrained variables for a recomputed pass, whose changes to them are discarded."""
        return None if self._untrained is None else self._untrained.copy()

    def recompute(self, x: Any, labels: Array | None, key: Key | None, seen: Untrained | None) -> tuple[Any, Saved]:
        """Run a forward pass again, on the untrained variables that it has seen; nothing is counted twice."""
        with Surrounded(untrained=seen):
            return self.bound.forward(x, labels, key)

    def accumulate(self, name: str, gradient: Array) -> None:
        """Add a micro-batch's gradient of one parameter, mapped as the optimizer says.

        MEAN scales it by 1 / count first, RUNNING_MEAN keeps accumulator * n / (n + 1) +
        gradient / (n + 1) with n the micro-batches before; both scale by a number of the accumulator's
        dtype, so that what a wider accumulator is for is not lost before it.
        A shared parameter's accumulator decays with the stage whose gradient comes first in the
        backward pass alone, and the others' are divided by the micro-batches that it has done:
        each then decays as that stage's own, to gradient / count in the end.
        A map is one of a variable's whole gradient of a micro-batch, as TensorFlow's optimizers see it:
        where stages share the variable, their gradients are summed up first.
        The stage that comes first in the backward pass must therefore come first with each micro-batch
        where the halves of that pass run apart, too; raises MissingTensorError where it does not.
        """
        leads = name in self._later
        if leads and not self._has_led(name):
            raise MissingTensorError(
                f"the gradient of {name!r} of micro-batch {self.micro_batch} in a later stage of it is not there"
            )
        if self._map is not None:
            if name in self._owners:
                self._owners[name]._add_partial(name, self.micro_batch, gradient)
                return
            if leads:
                gradient, leads = gradient + self._partial.pop((name, self.micro_batch)), False
            gradient = self._map(gradient, self.parameters[name])
        accumulator = self.accumulators[name]
        first = self._first(name) if self._running and leads else None
        self._given.add(name)
        if first is not None:
            gradient = gradient * accumulator.dtype.type(1 / first.accumulated)
        elif self._running:
            np.multiply(accumulator, accumulator.dtype.type(self.accumulated / (self.accumulated + 1)), out=accumulator)
            gradient = gradient * accumulator.dtype.type(1 / (self.accumulated + 1))
        elif self._scale is not None:
            gradient = gradient * accumulator.dtype.type(self._scale)
        np.add(accumulator, gradient, out=accumulator, casting="same_kind")

    def _has_led(self, name: str) -> bool:
        """Whether the last stage that shares a parameter has given what this one's gradient is added to."""
        if self._map is not None and name not in self._owners:
            return (name, self.micro_batch) in self._partial
        return self._map is not None or not self._running or self._later[name][-1].accumulated > 0

    def _first(self, name: str) -> StageMemory | None:
        """Return the stage whose gradient of a parameter comes before this one's; None where no later stage has one."""
        return next((stage for stage in reversed(self._later[name]) if name in stage._given), None)

    def _add_partial(self, name: str, micro_batch: int, gradient: Array) -> None:
        """Hold a later stage's part of a parameter's gradient until this stage's own part comes."""
        before = self._partial.get((name, micro_batch))
        self._partial[name, micro_batch] = gradient if before is None else before + gradient

    def clear(self) -> None:
        """Zero the accumulators, as Graphcore's compiler does before every execution of the pipeline."""
        self.accumulated = 0
        for accumulator in self.accumulators.values():
            accumulator[...] = 0
