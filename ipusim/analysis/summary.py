"""The Summary: every number and name about a run, memory, routes and learning included, in one frozen value."""

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
    """How the replicas sum up their gradients before a weight update; ``bytes`` are those of one replica."""

    algorithm: str
    bytes: int
    rounds: int
    cycles: int


@dataclass(frozen=True)
class StageCycles:
    """Cycles of one stage's passes; its backward pass takes none where nothing is trained.

    Attributes:
        name: of the stage.
        forward_cycles, backward_cycles: of its passes.
        recomputed_cycles: those of its backward pass in which that computes activations again.
    """

    name: str
    forward_cycles: int
    backward_cycles: int
    recomputed_cycles: int


@dataclass(frozen=True)
class EvaluationSummary:
    """An evaluation on held-out data behind that many steps; the loss is None where it is no finite number."""

    steps: int
    loss: float | None
    accuracy: float | None
    samples: int


@dataclass(frozen=True)
class LearningSummary:
    """The losses and accuracies of a run's arithmetic; losses are None where they are no finite numbers.

    Attributes:
        mean_loss_by_step: of each step whose losses reached the host.
        constant_predictor_loss: of the best predictor that ignores its input; None where that is not known.
        evaluations: on held-out data, in order.
        diverged_at: the first step with a loss that is not finite; None when all are, or none ever was.
    """

    mean_loss_by_step: tuple[float | None, ...]
    constant_predictor_loss: float | None
    evaluations: tuple[EvaluationSummary, ...]
    diverged_at: int | None


@dataclass(frozen=True, repr=False)
class Summary(RunTimes):
    """The summary of a run: the times of its Timeline, and all else that ``summary.json`` says.

    Attributes:
        description: of what was asked for.
        throughput_error: between which errors throughputs of models of this kind are simulated, in words.
        ipu: name of the IPU's generation.
        notes: warnings, such as about options without an effect.
        options: name and effect of every option that changes how the pipeline runs.
        steps: session runs, each of ``repeat_count`` executions.
        repeat_count: executions of a step.
        reduction_method: of the gradients of an execution, and of those of the replicas.
        selection_order_reason: why the IPUs stand in the order that they do.
        selection_orders: what each order makes of the copies.
        gradient_sum: of the replicas; None of one, and where there is nothing to sum up.
        stage_cycles: of each stage.
        memory: what the IPUs hold.
        learning: what the arithmetic gave; None where only time is simulated.
        find_verdict: gives use of the IPUs, slowest stages, and the time on one IPU.
        find_faster_order: gives the selection order with a shorter run; None if there is none.
        find_waterfall: gives the parts of the run's time; None where callers find them.
        find_disturbances: gives what disturbances cost; None without any.

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
        """The verdict on the run; the first call simulates its work on one IPU."""
        return self.find_verdict()

    @cached_property
    def faster_order(self) -> FasterOrder | None:
        """The selection order with a shorter run; the first call simulates the run in each order."""
        return self.find_faster_order()

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """The parts of the run's time, which is simulated without them when first asked; None where that takes long."""
        return self.find_waterfall()

    @cached_property
    def disturbances(self) -> DisturbanceCost | None:
        """The cost of the run's disturbances, simulated without them at the first call; None where there are none."""
        return self.find_disturbances()

    def _data(self) -> dict[str, Any]:
        return self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for ``summary.json``, in a fixed order."""
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
    """Return how replicas sum up their gradients at such costs; None where they do not."""
    if costs.gradient_sum is None:
        return None
    total = costs.gradient_sum
    return SumOfGradients(total.algorithm, total.bytes, len(total.cost.rounds), total.cost.total_cycles)


def stage_cycles(costs: Costs, times: RunTimes, once: Costs) -> tuple[StageCycles, ...]:
    """Return the cycles of each stage's passes of a run at such costs; ``once`` are those without recomputation."""
    return tuple(
        StageCycles(
            name=name,
            forward_cycles=costs.passes[Pass.FORWARD, stage],
            backward_cycles=costs.passes[Pass.BACKWARD, stage] if times.training else 0,
            recomputed_cycles=(
                costs.passes[Pass.BACKWARD, stage] - once.passes[Pass.BACKWARD, stage] if times.training else 0
            ),
        )
        for stage, name in enumerate(times.stages)
    )


def learning_summary(learning: Learning) -> LearningSummary:
    """Return what a run's arithmetic gave, as its summary has it."""
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
    """Return the number, or None where JSON has no word for it: a training that diverged."""
    return number if math.isfinite(number) else None
