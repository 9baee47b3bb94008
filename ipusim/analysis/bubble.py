"""Compute the pipeline bubble by every common definition.

All definitions cover one pipeline execution without weight update, over IPUs with a stage.
An IPU is idle in every cycle without stage arithmetic. Copies, syncs and host transfers therefore count as
bubble; recomputation counts as arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ipusim.analysis.executions import Execution
from ipusim.analysis.utilisation import cycles_by_kind, ratio
from ipusim.timeline.kinds import PASSES, of_kinds
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class Bubble:
    """Bubble of an execution, by definition.

    Attributes:
        idle_fraction: idle cycles / (IPUs x makespan). Schedule Grouped with N equal stages,
            G micro-batches and free copies gives (N - 1) / (G + N - 1).
        overhead: (makespan - ideal) / ideal, where ideal is the arithmetic of the busiest IPU
            (GPipe's and Megatron-LM's bubble overhead; Narayanan et al. 2021, section 2.2).
        rank_cost_rate: (cost - ideal) / cost, where cost is the longest time from any IPU's first pass to the same
            IPU's last. This is the "bubble rate" of Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241,
            section 6). Their ideal m (T_F + T_B + T_W) is the arithmetic of a rank.
        span_idle_fraction: idle cycles from every IPU's first pass to its last, over the sum of these periods.
        idle_cycles: idle cycles, summed over IPUs.
        ideal_cycles: arithmetic of the busiest IPU.
        rank_cost_cycles: cost in ``rank_cost_rate``.
    """

    idle_fraction: float
    overhead: float
    rank_cost_rate: float
    span_idle_fraction: float
    idle_cycles: int
    ideal_cycles: int
    rank_cost_cycles: int


def bubble_of(timeline: Timeline, execution: Execution) -> Bubble:
    """Compute an execution's bubble by every definition."""
    ipus_with_stage = np.array(list(timeline.info.stages_of_ipu), dtype=np.int64)
    compute = cycles_by_kind(timeline, execution)[ipus_with_stage][:, PASSES].sum(axis=1)
    available = len(ipus_with_stage) * execution.makespan_cycles
    ideal = int(compute.max(initial=0))

    timeline = timeline.with_block_ends_expanded(execution.index)
    rows = (timeline.execution == execution.index) & of_kinds(timeline.kind, PASSES)
    ipu = timeline.ipu[rows]
    first = np.full(len(timeline.info.ipus), np.iinfo(np.int64).max)
    last = np.zeros(len(timeline.info.ipus), dtype=np.int64)
    np.minimum.at(first, ipu, timeline.start[rows])
    np.maximum.at(last, ipu, timeline.end[rows])
    spans = np.maximum(last - first, 0)[ipus_with_stage]
    cost, span_total = int(spans.max(initial=0)), int(spans.sum())

    idle = available - int(compute.sum())
    return Bubble(
        idle_fraction=ratio(idle, available),
        overhead=ratio(execution.makespan_cycles - ideal, ideal),
        rank_cost_rate=ratio(cost - ideal, cost),
        span_idle_fraction=ratio(span_total - int(compute.sum()), span_total),
        idle_cycles=idle,
        ideal_cycles=ideal,
        rank_cost_cycles=cost,
    )
