"""The verdict on a run: how well its IPUs are used, its slowest stages, and what one IPU makes of the same work."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.throughput import throughput_of
from ipusim.analysis.utilisation import cycles_by_kind, ratio
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PlanShape
from ipusim.pricing.costs import Costs
from ipusim.timeline.kinds import COMPUTE_KINDS
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class Verdict:
    """The findings on a run beside the parts of its time, which its waterfall has.

    Attributes:
        efficiency: arithmetic, as a part of the time of the IPUs that hold a stage, over the whole run.
        slowest_stage: the one whose passes of a micro-batch take longest, the first of several.
        slowest_stages: all whose passes take as long.
        slowest_ratio: their cycles against the mean of all stages.
        single_ipu_cycles: the same passes and weight updates of one execution, of all replicas of all hosts, one after
            the other without copies, syncs, host or recomputation: the least that one IPU with the memory would take.
        speed_up: that against the mean time of an execution of the run; below 1 the pipeline is slower than one IPU.
    """

    efficiency: float
    slowest_stage: int
    slowest_stages: tuple[int, ...]
    slowest_ratio: float
    single_ipu_cycles: int
    speed_up: float


def verdict(timeline: Timeline, costs: Costs, shape: PlanShape, once: Costs) -> Verdict:
    """Return the verdict on a run of a Plan of ``shape`` that was priced at ``costs``.

    ``once`` are its costs without passes that compute activations again, in whole or in part.
    """
    info = timeline.info
    holders = sorted(info.stages_of_ipu)
    run_cycles = throughput_of(timeline).run_cycles
    busy = int(cycles_by_kind(timeline)[holders][:, list(COMPUTE_KINDS)].sum())
    passes, slowest = _stage_cycles(costs, shape), slowest_stages(costs, shape)
    # Both copies of a stage, where there are two, update the same weights.
    updates = sum(costs.updates.values()) // len(shape.copies) if info.training else 0
    single = sum(_stage_cycles(once, shape)) * info.count * info.replicas * info.hosts + updates
    return Verdict(
        efficiency=ratio(busy, len(holders) * run_cycles),
        slowest_stage=slowest[0],
        slowest_stages=slowest,
        slowest_ratio=ratio(passes[slowest[0]] * len(passes), sum(passes)),
        single_ipu_cycles=single,
        speed_up=ratio(single * info.executions, run_cycles),
    )


def slowest_stages(costs: Costs, shape: PlanShape) -> tuple[int, ...]:
    """Return the stages whose passes of a micro-batch take longest, recomputations too, all that tie."""
    passes = _stage_cycles(costs, shape)
    return tuple(stage for stage, cycles in enumerate(passes) if cycles == max(passes))


def _stage_cycles(costs: Costs, shape: PlanShape) -> list[int]:
    """Return the cycles of each stage's passes of a micro-batch, recomputations too."""
    kinds = (Pass.FORWARD, *([Pass.BACKWARD] if shape.training else []))
    cycles = [sum(costs.passes[kind, stage] for kind in kinds) for stage in range(shape.stages)]
    if shape.recompute:
        for stage in filter(shape.recomputes, range(shape.stages)):
            cycles[stage] += costs.passes[Pass.RECOMPUTE, stage]
    return cycles
