"""What holds of why any run takes as long as it does: critical path, idle causes, and what changes would give."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ipusim.analysis.causes import CAUSES, idle_causes, ipu_time
from ipusim.analysis.critical_path import WAITS, critical_path_of, path_parts
from ipusim.analysis.executions import executions_of
from ipusim.analysis.fits import usable
from ipusim.analysis.run_times import run_times_of
from ipusim.analysis.utilisation import cycles_by_kind
from ipusim.analysis.waterfall import Waterfall
from ipusim.app.explain.what_if import what_if
from ipusim.runs.session import Session
from ipusim.runs.waterfall import waterfall_of
from ipusim.timeline.kinds import COMPUTE_KINDS, SpanKind
from ipusim.timeline.time_parts import Idle, TimePart


def check_explained(timeline):
    """Hold that path and causes add up to the run and to each execution; return the causes of the whole run."""
    run_cycles = run_times_of(timeline).throughput.run_cycles
    path = critical_path_of(timeline)
    rows = [(int(timeline.start[row]), int(timeline.end[row])) for row in path.rows]
    assert rows[0][0] == 0
    assert rows[-1][1] == run_cycles
    assert all(before[1] == after[0] for before, after in pairwise(rows))
    assert not np.isin(timeline.kind[path.rows], WAITS).any()
    assert sum(part.cycles for part in path_parts(timeline, path)) == run_cycles
    for execution in (None, *(each.index for each in executions_of(timeline))):
        found = idle_causes(timeline, execution)
        assert ((found.busy + found.cycles.sum(axis=1)) == found.window_cycles).all()
        same = found.ipu[1:] == found.ipu[:-1]
        assert (found.start < found.end).all()
        assert (found.start[1:] >= found.end[:-1])[same].all()
    whole = idle_causes(timeline)
    by_kind = cycles_by_kind(timeline)
    assert whole.window_cycles == run_cycles
    assert (whole.busy == by_kind[:, COMPUTE_KINDS].sum(axis=1)).all()
    holders = sorted(timeline.info.stages_of_ipu)
    copies = (SpanKind.SYNC, SpanKind.EXCHANGE, SpanKind.PRE_COPY, SpanKind.POST_COPY, SpanKind.BLOCKING_SEND)
    assert (whole.cycles[holders, CAUSES.index(Idle.COPIES)] >= by_kind[holders][:, copies].sum(axis=1)).all()
    for parts in (None, dict.fromkeys(TimePart, 0), dict.fromkeys(TimePart, run_cycles // 7)):
        waterfall = None if parts is None else Waterfall(parts, 1)
        assert (sum(cycles for _, cycles in ipu_time(whole, waterfall)) == run_cycles).all()
    assert (whole.cycles[holders, CAUSES.index(Idle.NO_STAGE)] == 0).all()
    return whole


def check_changes(job):
    """Hold that every change that is tried runs, or is refused with a reason, and that the best come first."""
    found = what_if(job, Session(replace(job, workload=None)).run(job.executions))
    for each in found:
        assert (each.after is None) == bool(each.refusal), each
        assert each.gain <= 1
    keys = [(each.change.machine, not usable(each.fits), -each.gain) for each in found]
    assert keys == sorted(keys)


def check_waterfall(job, timeline):
    """Hold that the parts of a run's time add up to it, and that each that is negative has a sentence."""
    found = waterfall_of(job, timeline)
    assert sum(found.cycles.values()) == run_times_of(timeline).throughput.run_cycles
    assert len([*found.remarks()]) == sum(cycles < 0 for cycles in found.cycles.values())
    assert (found.cycles[TimePart.USEFUL] > 0) == any(job.costs.passes.values())
    assert found.cycles[TimePart.FILL_AND_DRAIN] >= 0
    assert job.system.disturbances or found.cycles[TimePart.DISTURBANCES] == 0
    shape = job.plan.shape
    if not shape.recompute and not shape.recompute_inline:
        assert found.cycles[TimePart.RECOMPUTATION] == 0
    if not job.costs.pass_streams and not any(map(any, job.costs.update_streams.values())):
        assert found.cycles[TimePart.STREAMING] == 0
