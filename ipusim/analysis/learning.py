"""Collect the results of a run's arithmetic: losses, outputs, weights and evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.model.evaluate import Evaluation
from ipusim.pipeline.program import PipelineProgram
from ipusim.timeline.timeline import NONE

#: Name of a training program's loss in the outfeed.
LOSS = "loss"


@dataclass(frozen=True)
class Loss:
    """Loss of one micro-batch of one replica, as received by the host.

    With an accumulated outfeed, ``loss`` is the sum over all ``micro_batches`` of an execution and ``micro_batch`` is
    NONE.
    """

    step: int
    execution: int
    micro_batch: int
    loss: float
    replica: int = 0
    micro_batches: int = 1


@dataclass(frozen=True, eq=False)
class Learning:
    """Results of a run's arithmetic.

    Attributes:
        losses: losses that reached the host, with replicas side by side; empty without a loss.
        outputs: further arrays that reached the host, by name, with a row per outfeed element: (elements, batch, ...),
            or (elements, replicas, batch, ...) for several replicas.
        weights: final parameters, keyed ``layer/W``.
        evaluations: (completed steps, evaluation on held-out data), in order.
        constant_loss: loss of the best predictor that ignores its input.
        not_finite: origin of the first value that is not finite in the first micro-batch; empty if all are finite.
    """

    losses: tuple[Loss, ...]
    outputs: dict[str, npt.NDArray[Any]]
    weights: dict[str, npt.NDArray[Any]]
    evaluations: tuple[tuple[int, Evaluation], ...]
    constant_loss: float | None
    not_finite: str = ""

    @cached_property
    def mean_loss_by_step(self) -> dict[int, float]:
        """Mean loss by step, over executions, replicas and micro-batches; only steps whose losses reached the host."""
        losses_of: dict[int, list[float]] = {}
        for entry in self.losses:
            losses_of.setdefault(entry.step, []).append(entry.loss / entry.micro_batches)
        return {step: float(np.mean(losses)) for step, losses in losses_of.items()}

    def mean_loss(self, step: int) -> float:
        """Return the mean loss of one step."""
        return self.mean_loss_by_step[step]

    @property
    def warning(self) -> str:
        """Sentence for a run without a finite loss; empty for other runs, or if ``not_finite`` is empty."""
        if not self.not_finite or not self.losses or any(math.isfinite(entry.loss) for entry in self.losses):
            return ""
        losses = "All losses are NaN" if all(math.isnan(entry.loss) for entry in self.losses) else "No loss is finite"
        return f"{losses} from the first micro-batch: the first value that is not finite is from {self.not_finite}."

    @property
    def diverged_at(self) -> int | None:
        """First step with a loss that is not finite; None if every loss is finite, or there is a warning."""
        if self.warning:
            return None
        return next((entry.step for entry in self.losses if not math.isfinite(entry.loss)), None)


def read_results(
    program: PipelineProgram, results: Sequence[Sequence[tuple[Any, ...]]]
) -> tuple[tuple[Loss, ...], dict[str, npt.NDArray[Any]]]:
    """Split outfeed elements of all replicas into losses and further outputs."""
    losses: tuple[Loss, ...] = ()
    outputs = {}
    for position, name in enumerate(program.outfeed.sent_names):
        columns = [[element[position] for element in elements] for elements in results]
        if name == LOSS and all(np.ndim(value) == 0 for value in columns[0]):
            losses = tuple(_losses(program, columns))
        elif len(columns) > 1:
            outputs[name] = np.stack([np.stack(column) for column in columns], axis=1)
        else:
            outputs[name] = np.stack(columns[0])
    return losses, outputs


def _losses(program: PipelineProgram, columns: Sequence[Sequence[Any]]) -> Iterator[Loss]:
    elements = program.outfeed_elements
    for index, values in enumerate(zip(*columns, strict=True)):
        if program.outfeed.accumulate:
            execution, micro_batch, count = index, NONE, program.shape.micro_batches
        else:
            group, position = divmod(index, len(elements.micro_batches))
            execution, micro_batch, count = (group + 1) * elements.period - 1, elements.micro_batches[position], 1
        step = execution // program.repeat_count
        for replica, value in enumerate(values):
            yield Loss(step, execution, micro_batch, float(value), replica, count)
