"""Judge a run: use of IPUs, slowest stages, and time of the same work on one IPU."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.throughput import throughput_of
from ipusim.analysis.utilisation import cycles_by_kind, ratio
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.costs import Costs
from ipusim.timeline.kinds import COMPUTE_KINDS
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class OneIpu:
    """Outcome of a run's work on a single IPU.

    Attributes:
        run_cycles: cycles of equally many executions on one IPU; None if the program cannot run on a single IPU.
        excess_bytes: program bytes beyond the IPU's memory; 0 if the program fits, or the scenario states no memory.
        refusal: reason why one IPU cannot run the program; empty otherwise.
    """

    run_cycles: int | None
    excess_bytes: int = 0
    refusal: str = ""


@dataclass(frozen=True)
class Verdict:
    """Findings on a run, apart from the parts of its time (see :mod:`ipusim.runs.waterfall`).

    Attributes:
        efficiency: fraction of arithmetic in the time of IPUs that hold a stage, over the whole run.
        slowest_stage: stage with the longest passes per micro-batch, first of equals.
        slowest_stages: all stages that tie with the slowest stage.
        slowest_ratio: cycles of the slowest stage over the mean of all stages.
        single_ipu_cycles: mean cycles of an execution of the same work on one IPU with enough memory, simulated
            under schedule ``single`` with the same model, feeds, host, optimizer and samples per weight update; None if
            one IPU cannot run the program.
        single_ipu_excess_bytes: program bytes beyond that IPU's memory; 0 if the program fits, or no memory is stated.
        single_ipu_refusal: reason why one IPU cannot run the program; empty otherwise.
        speed_up: length of the run on one IPU over length of this run, below 1 for a slower pipeline; None if one IPU
            cannot run the program.
    """

    efficiency: float
    slowest_stage: int
    slowest_stages: tuple[int, ...]
    slowest_ratio: float
    single_ipu_cycles: int | None
    single_ipu_excess_bytes: int
    single_ipu_refusal: str
    speed_up: float | None


def verdict_of(timeline: Timeline, costs: Costs, shape: PlanShape, one_ipu: OneIpu) -> Verdict:
    """Return the verdict on a run.

    Args:
        timeline: the whole run.
        costs: costs of the run's Plan.
        shape: shape of that Plan.
        one_ipu: outcome of the same work on one IPU.

    Returns:
        The verdict.
    """
    info = timeline.info
    ipus_with_stage = sorted(info.stages_of_ipu)
    run_cycles = throughput_of(timeline).run_cycles
    busy = int(cycles_by_kind(timeline)[ipus_with_stage][:, list(COMPUTE_KINDS)].sum())
    stage_cycles, slowest = _stage_cycles(costs, shape), slowest_stages(costs, shape)
    return Verdict(
        efficiency=ratio(busy, len(ipus_with_stage) * run_cycles),
        slowest_stage=slowest[0],
        slowest_stages=slowest,
        slowest_ratio=ratio(stage_cycles[slowest[0]] * len(stage_cycles), sum(stage_cycles)),
        single_ipu_cycles=None if one_ipu.run_cycles is None else -(-one_ipu.run_cycles // info.executions),
        single_ipu_excess_bytes=one_ipu.excess_bytes,
        single_ipu_refusal=one_ipu.refusal,
        speed_up=None if one_ipu.run_cycles is None else ratio(one_ipu.run_cycles, run_cycles),
    )


def slowest_stages(costs: Costs, shape: PlanShape) -> tuple[int, ...]:
    """Return all stages with the longest passes per micro-batch, recomputation included."""
    stage_cycles = _stage_cycles(costs, shape)
    return tuple(stage for stage, cycles in enumerate(stage_cycles) if cycles == max(stage_cycles))


def busiest_stages(costs: Costs, shape: PlanShape) -> tuple[int, ...]:
    """Return all stages on the IPUs whose passes per micro-batch take longest in total.

    If several IPUs take the longest time, the stages of all of them count. With one stage on each IPU, the busiest
    stages are the slowest. If all IPUs hold the same stages, such as a single IPU, return the slowest stages instead.
    """
    stage_cycles = _stage_cycles(costs, shape)
    groups = [
        [stage for stage in range(shape.stages) if shape.mapping[stage] in ipus] for ipus in shape.ipus_of_equal_stages
    ]
    if len(groups) == 1:
        return slowest_stages(costs, shape)
    cycles = [sum(stage_cycles[stage] for stage in stages) for stages in groups]
    longest = [stages for stages, group_cycles in zip(groups, cycles, strict=True) if group_cycles == max(cycles)]
    return tuple(sorted(stage for stages in longest for stage in stages))


def _stage_cycles(costs: Costs, shape: PlanShape) -> list[int]:
    """Return every stage's cycles per micro-batch, recomputation included."""
    kinds = (Pass.FORWARD, *([Pass.BACKWARD] if shape.training else []))
    cycles = [sum(costs.passes[kind, stage] for kind in kinds) for stage in range(shape.stages)]
    for stage in filter(shape.recomputes_apart, range(shape.stages)):
        cycles[stage] += costs.passes[Pass.RECOMPUTE, stage]
    return cycles
