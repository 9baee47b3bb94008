"""Define the Summary: all numbers and names of a run, including memory, routes and learning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ipusim.analysis.disturbed import DisturbanceCost
from ipusim.analysis.figures import SCHEMA_VERSION
from ipusim.analysis.learning import Learning
from ipusim.analysis.memory_summary import MemorySummary
from ipusim.analysis.orders import FasterOrder, OrderReport
from ipusim.analysis.plain import as_plain
from ipusim.analysis.run_times import RunTimes
from ipusim.analysis.verdict import Verdict
from ipusim.analysis.waterfall import Waterfall
from ipusim.base.looks import key_of
from ipusim.pipeline.ops import Pass
from ipusim.pricing.costs import Costs


@dataclass(frozen=True)
class SumOfGradients:
    """Sum of gradients over replicas before a weight update; ``bytes`` count one replica."""

    algorithm: str
    bytes: int
    rounds: int
    cycles: int


@dataclass(frozen=True)
class StageCycles:
    """Cycles of one stage's passes; without training the backward pass takes 0.

    Attributes:
        name: name of the stage.
        forward_cycles: cycles of its forward pass.
        backward_cycles: cycles of its backward pass.
        recomputed_cycles: cycles of recomputation within its backward pass.
    """

    name: str
    forward_cycles: int
    backward_cycles: int
    recomputed_cycles: int


@dataclass(frozen=True)
class EvaluationSummary:
    """Evaluation on held-out data after a number of steps; an infinite or NaN loss is None."""

    steps: int
    loss: float | None
    accuracy: float | None
    samples: int


@dataclass(frozen=True)
class LearningSummary:
    """Losses and accuracies of a run's arithmetic; infinite and NaN losses become None.

    Attributes:
        mean_loss_by_step: mean loss of every step whose losses reached the host.
        constant_predictor_loss: loss of the best constant predictor; None if unknown.
        evaluations: evaluations on held-out data, in order.
        diverged_at: first step with a loss that is not finite; None if every loss is finite, and if no loss ever was.
    """

    mean_loss_by_step: tuple[float | None, ...]
    constant_predictor_loss: float | None
    evaluations: tuple[EvaluationSummary, ...]
    diverged_at: int | None


@dataclass(frozen=True, repr=False)
class Summary(RunTimes):
    """Summary of a run: times of its Timeline, and further contents of ``summary.json``.

    Attributes:
        description: description from the request.
        throughput_error: error range of simulated throughputs for models of this kind, in words.
        ipu: name of the IPU's generation.
        notes: warnings, for example about ineffective options.
        options: name and effect of every option that changes pipeline execution.
        steps: number of session runs, each of ``repeat_count`` executions.
        repeat_count: executions per step.
        reduction_method: reduction of gradients within an execution and across replicas.
        selection_order_reason: reason for the selection order of the IPUs.
        selection_orders: routes and copy times in each selection order that the disturbances permit.
        gradient_sum: sum of gradients over replicas; None for a single replica, or without gradients.
        stage_cycles: cycles of each stage.
        memory: memory of the IPUs.
        learning: results of the arithmetic; None if only time is simulated.
        find_verdict: function that returns use of the IPUs, slowest stages, and time on one IPU.
        find_faster_order: function that returns the selection order with a shorter run, or None.
        find_waterfall: function that returns the parts of the run's time, or None if this takes long.
        find_disturbances: function that returns the cost of disturbances, or None without disturbances.

    Example:
        >>> from ipusim.api import Request, assemble, execute
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> summary = execute(assemble(Request.from_dict(options))).summary
        >>> summary.time_steps, summary.makespan_cycles, summary.to_dict()["bubble"]["idle_fraction"]
        (8, 15000, 0.2)
    """

    description: str
    throughput_error: str
    ipu: str
    notes: tuple[str, ...]
    options: Mapping[str, str]
    steps: int
    repeat_count: int
    reduction_method: str
    selection_order_reason: str
    selection_orders: tuple[OrderReport, ...]
    gradient_sum: SumOfGradients | None
    stage_cycles: tuple[StageCycles, ...]
    memory: MemorySummary
    learning: LearningSummary | None
    find_verdict: Callable[[], Verdict] = field(compare=False)
    find_faster_order: Callable[[], FasterOrder | None] = field(compare=False)
    find_waterfall: Callable[[], Waterfall | None] = field(compare=False)
    find_disturbances: Callable[[], DisturbanceCost | None] = field(compare=False)

    @cached_property
    def verdict(self) -> Verdict:
        """Verdict on the run; the first call simulates its work on one IPU."""
        return self.find_verdict()

    @cached_property
    def faster_order(self) -> FasterOrder | None:
        """Selection order with a shorter run; the first call simulates the run in each order."""
        return self.find_faster_order()

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """Parts of the run's time; the first call simulates the run without each part. None if this takes long."""
        return self.find_waterfall()

    @cached_property
    def disturbances(self) -> DisturbanceCost | None:
        """Cost of disturbances; the first call simulates the run without them. None without disturbances."""
        return self.find_disturbances()

    def _data(self) -> dict[str, Any]:
        return self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain data for ``summary.json``, in fixed order."""
        return {
            "schema_version": SCHEMA_VERSION,
            "description": self.description,
            "throughput_error": self.throughput_error,
            "verdict": as_plain(self.verdict),
            "waterfall": None if self.waterfall is None else self.waterfall.to_dict(),
            **({} if self.disturbances is None else {"disturbances": self.disturbances.to_dict()}),
            **self.times_dict(),
            "ipu": self.ipu,
            "notes": list(self.notes),
            "options": {key_of(name): effect for name, effect in self.options.items()},
            "steps": self.steps,
            "repeat_count": self.repeat_count,
            "reduction_method": self.reduction_method,
            "selection_order_reason": self.selection_order_reason,
            "selection_orders": [report.to_dict() for report in self.selection_orders],
            "gradient_sum": as_plain(self.gradient_sum),
            "stage_cycles": as_plain(self.stage_cycles),
            "memory": as_plain(self.memory),
            "learning": as_plain(self.learning),
        }


def gradient_sum(costs: Costs) -> SumOfGradients | None:
    """Return the sum of gradients over replicas at given costs; None if replicas sum no gradients."""
    if costs.gradient_sum is None:
        return None
    total = costs.gradient_sum
    return SumOfGradients(total.algorithm, total.bytes, len(total.cost.rounds), total.cost.total_cycles)


def stage_cycles(costs: Costs, times: RunTimes, plain_costs: Costs) -> tuple[StageCycles, ...]:
    """Return cycles of each stage's passes at given costs; ``plain_costs`` contain no recomputation cycles."""
    return tuple(
        StageCycles(
            name=name,
            forward_cycles=costs.passes[Pass.FORWARD, stage],
            backward_cycles=costs.passes[Pass.BACKWARD, stage] if times.training else 0,
            recomputed_cycles=(
                costs.passes[Pass.BACKWARD, stage] - plain_costs.passes[Pass.BACKWARD, stage] if times.training else 0
            ),
        )
        for stage, name in enumerate(times.stages)
    )


def learning_summary(learning: Learning) -> LearningSummary:
    """Return the results of a run's arithmetic in the form of its summary."""
    return LearningSummary(
        mean_loss_by_step=tuple(map(_finite, learning.mean_loss_by_step.values())),
        constant_predictor_loss=learning.constant_loss,
        evaluations=tuple(
            EvaluationSummary(steps, _finite(evaluation.loss), evaluation.accuracy, evaluation.samples)
            for steps, evaluation in learning.evaluations
        ),
        diverged_at=learning.diverged_at,
    )


def _finite(number: float) -> float | None:
    """Return a finite number, or None, as JSON lacks infinity and NaN."""
    return number if math.isfinite(number) else None
