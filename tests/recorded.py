"""What holds of every Timeline that a scenario records, and of what reads it: files, phases, pictures, traces."""

from __future__ import annotations

import io

import numpy as np

from ipusim.analysis.executions import executions_of
from ipusim.analysis.phases import phases_of
from ipusim.analysis.utilisation import cycles_by_kind
from ipusim.app.render.boxes import span_boxes
from ipusim.app.render.content import content
from ipusim.app.render.perfetto_trace import write_perfetto_trace
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.render.window import window
from ipusim.app.run_folder.columns import span_columns
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind, kinds_with
from ipusim.timeline.timeline import Timeline
from tests.perfetto_reader import PerfettoReader

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
    assert {len(column.values) for column in span_columns(timeline).values()} == {len(timeline)}
    check_pictures(timeline)


def check_pictures(timeline):
    """Hold that pictures show every IPU that does what can be seen, and traces every cycle once."""
    shown = window(timeline)
    boxes = content(timeline, shown, 10).boxes
    seen = set(timeline.ipu[timeline.end > timeline.start].tolist()) & set(timeline.info.stages_of_ipu)
    assert seen <= set(boxes.ipu.tolist()) <= set(span_boxes(timeline, shown).ipu.tolist())
    file = io.BytesIO()
    write_perfetto_trace(TraceContent(timeline), file.write)
    slices = [each for each in PerfettoReader(file.getvalue()).slices if each.track[1] != "phases"]
    assert not any(each.around for each in slices)
    tiles = [each.args for each in slices if "IPU " in each.track[1] and not each.track[-1].startswith("sends")]
    assert sum(each["end_cycles"] - each["start_cycles"] for each in tiles) == cycles_by_kind(timeline).sum()
