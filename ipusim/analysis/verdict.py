"""The verdict on a run: how well its IPUs are used, what bounds it, and what one IPU would make of the same work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.analysis.causes import CAUSES, idle_causes
from ipusim.analysis.throughput import throughput
from ipusim.analysis.utilisation import cycles_by_kind, ratio
from ipusim.pipeline.ops import Pass
from ipusim.pricing.costs import Costs
from ipusim.timeline.kind_row import Idle
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Timeline

#: What bounds a run, of each cause of idle time.
BOUNDS: Final[Mapping[Idle, str]] = {
    Idle.SLOWER: "slower passes of other IPUs",
    Idle.UPDATE: "longer weight updates of other IPUs",
    Idle.RAMP_UP: "pipeline fill",
    Idle.RAMP_DOWN: "pipeline fill",
    Idle.NO_PASS: "time-steps without a pass",
    Idle.COPY: "inter-IPU copies",
    Idle.SYNC: "sync",
    Idle.COLLECTIVE: "collectives",
    Idle.STREAMING: "Streaming Memory",
    Idle.HOST: "host",
    Idle.REPLICAS: "other replicas",
    Idle.NO_STAGE: "IPUs without a stage",
}


@dataclass(frozen=True)
class Verdict:
    """What matters of a run, as parts of the time of the IPUs that hold a stage, over the whole run.

    Attributes:
        efficiency: arithmetic; with all of ``bounds`` that is 1.
        recomputation: the part of that in which activations are computed again.
        bounds: idle time by what bounds the run, the largest first.
        slowest_stage: the one whose passes of a micro-batch take longest, the first of several.
        slowest_ratio: their cycles against the mean of all stages.
        waited_for: the part of the IPUs' time in which they wait for it.
        single_ipu_cycles: the same passes and weight updates of one execution, of all replicas of all hosts, one after
            the other without copies, syncs, host or recomputation: the least that one IPU with the memory would take.
        speed_up: that against the mean time of an execution of the run; below 1 the pipeline is slower than one IPU.
    """

    efficiency: float
    recomputation: float
    bounds: Mapping[str, float]
    slowest_stage: int
    slowest_ratio: float
    waited_for: float
    single_ipu_cycles: int
    speed_up: float


def verdict(timeline: Timeline, costs: Costs) -> Verdict:
    """Return the verdict on a run that was priced at ``costs``."""
    info = timeline.info
    holders = np.array(list(info.stages_of_ipu), dtype=np.int64)
    idle = idle_causes(timeline)
    whole = len(holders) * idle.window_cycles
    by_cause = idle.cycles[holders].sum(axis=0)
    bounds: dict[str, int] = {}
    for cause, cycles in zip(CAUSES, by_cause.tolist(), strict=True):
        bounds[BOUNDS[cause]] = bounds.get(BOUNDS[cause], 0) + cycles
    shares = {bound: ratio(cycles, whole) for bound, cycles in bounds.items() if cycles}
    passes = _passes(costs, len(info.stages), info.training)
    slowest = slowest_stage(costs, len(info.stages), info.training)
    updates = sum(costs.updates.values()) if info.training else 0
    single = sum(passes) * info.count * info.replicas * info.hosts + updates
    return Verdict(
        efficiency=ratio(int(idle.busy[holders].sum()), whole),
        recomputation=ratio(int(cycles_by_kind(timeline)[holders, SpanKind.RECOMPUTE].sum()), whole),
        bounds=dict(sorted(shares.items(), key=lambda bound: -bound[1])),
        slowest_stage=slowest,
        slowest_ratio=ratio(passes[slowest] * len(passes), sum(passes)),
        waited_for=ratio(int(idle.waited_for(len(passes))[slowest]), whole),
        single_ipu_cycles=single,
        speed_up=ratio(single * info.executions, throughput(timeline).run_cycles),
    )


def slowest_stage(costs: Costs, stages: int, training: bool) -> int:
    """Return the stage of so many whose passes of a micro-batch take longest, the first of several."""
    passes = _passes(costs, stages, training)
    return passes.index(max(passes))


def _passes(costs: Costs, stages: int, training: bool) -> list[int]:
    """Return the cycles of each stage's passes of a micro-batch."""
    kinds = (Pass.FORWARD, *([Pass.BACKWARD] if training else []))
    return [sum(costs.passes[kind, stage] for kind in kinds) for stage in range(stages)]
