"""Rules that hold for every run: its Timeline, files, pictures and traces, and the reasons for its time."""

import io
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ipusim.analysis.causes import idle_causes, ipu_time
from ipusim.analysis.critical_path import WAITS, critical_path_of, path_parts
from ipusim.analysis.executions import executions_of
from ipusim.analysis.fits import fits_or_unknown
from ipusim.analysis.idle_spans import CAUSES
from ipusim.analysis.phases import PHASES, phases_of
from ipusim.analysis.run_times import run_times_of
from ipusim.analysis.utilisation import cycles_by_kind
from ipusim.analysis.waterfall import Waterfall
from ipusim.app.explain.what_if import what_if
from ipusim.app.render.boxes import span_boxes
from ipusim.app.render.content import content
from ipusim.app.render.window import window
from ipusim.app.run_folder.columns import span_columns
from ipusim.runs.session import Session
from ipusim.runs.waterfall import waterfall_of
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import COMPUTE_KINDS, SpanKind, kinds_with
from ipusim.timeline.time_parts import Idle, TimePart
from ipusim.timeline.timeline import Timeline
from tests.trace_files import PerfettoReader, perfetto_file

#: Of the tracks on which nothing lies over anything else, the kinds.
ALONE = [kinds_with(lambda row, track=track: row.track is track) for track in (Track.IPU, Track.IO_TILES)]


def check_alone(timeline, rows, track):
    """Hold that of ``rows``, no two of one ``track`` overlap."""
    order = np.lexsort((timeline.end[rows], timeline.start[rows], track))
    rows, same = rows[order], np.diff(track[order]) == 0
    assert not (same & (timeline.start[rows[1:]] < timeline.end[rows[:-1]])).any()


def check_recorded(timeline):
    """Hold that files, phases, columns, pictures and traces have all of a Timeline, and each thing once."""
    assert (timeline.start <= timeline.end).all()
    for kinds in ALONE:
        check_alone(timeline, *timeline.per_ipu(timeline.rows(*kinds)))
    host = timeline.rows(SpanKind.HOST)
    check_alone(timeline, host, timeline.link[host] * timeline.info.replicas + timeline.replica[host])
    file = io.BytesIO()
    timeline.save(file)
    file.seek(0)
    assert Timeline.load(file) == timeline
    for execution in executions_of(timeline):
        own = [phase for phase in phases_of(timeline) if phase.execution == execution.index]
        edges = [execution.start, *(phase.end for phase in own)]
        assert [phase.start for phase in own] == edges[:-1]
        assert edges[-1] == execution.end
        places = [PHASES.index(phase.name) for phase in own]
        assert places == sorted(set(places))
    assert {len(column.values) for column in span_columns(timeline).values()} == {len(timeline)}
    check_pictures(timeline)


def check_pictures(timeline):
    """Hold that pictures show every IPU that does what can be seen, and traces every cycle once."""
    shown = window(timeline)
    boxes = content(timeline, shown, 10).boxes
    seen = set(timeline.ipu[timeline.end > timeline.start].tolist()) & set(timeline.info.stages_of_ipu)
    assert seen <= set(boxes.ipu.tolist()) <= set(span_boxes(timeline, shown).ipu.tolist())
    slices = [each for each in PerfettoReader(perfetto_file(timeline)).slices if each.track[1] != "phases"]
    assert not any(each.around for each in slices)
    tiles = [each.args for each in slices if "IPU " in each.track[1] and not each.track[-1].startswith("sends")]
    assert sum(each["end_cycles"] - each["start_cycles"] for each in tiles) == cycles_by_kind(timeline).sum()


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
    keys = [(each.change.is_hardware, not fits_or_unknown(each.fits), -each.gain) for each in found]
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
