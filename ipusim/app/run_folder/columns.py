"""Turn runs into named columns, the content of DataFrames and exported tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Span, SpanKind, Timeline, analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.shortened import left_out
from ipusim.base.errors import OutputError

#: Tracks by number.
_TRACKS: Final = tuple(timelines.Track)


@dataclass(frozen=True, eq=False)
class Column:
    """Column of a table.

    Attributes:
        values: integers, or 64 bit floats; indices into ``names`` if present.
        names: distinct names behind the values; None for plain numbers.
        partial: whether negative values mark missing entries.
    """

    values: npt.NDArray[Any]
    names: tuple[str, ...] | None = None
    partial: bool = False

    @property
    def is_missing(self) -> npt.NDArray[np.bool_]:
        """Mask of rows without a value."""
        return self.values < 0 if self.partial else np.zeros(len(self.values), dtype=np.bool_)


#: Table: columns of equal length, by name.
Columns = dict[str, Column]


def span_columns(timeline: Timeline, start: int | None = None, end: int | None = None) -> Columns:
    """Return a row for every span, in Timeline order.

    ``start`` and ``end`` restrict the table to spans between these cycles. Raises OutputError for a run of more spans
    than a table may have rows.

    Columns: kind; track, such as ``IPU 0``, ``all IPUs`` or ``link 0→1 rung``; ipu, the logical IPU, missing for spans
    of several IPUs or of none; replica; stage, its name; micro_batch; time_step; execution; start_cycle, end_cycle and
    cycles; start_s and end_s in seconds; link, the name of a link direction; bytes; cause, the row that released the
    span. Entries that do not apply are missing.
    """
    if start is not None or end is not None:
        timeline = _part_between(timeline, start or 0, timeline.makespan_cycles if end is None else end)
    timeline = in_rows(timeline)
    info = timeline.info
    track: Integers = timelines.by_number(lambda row: _TRACKS.index(row.track), np.int64)[timeline.kind]
    link = np.where(track == _TRACKS.index(timelines.Track.LINK), timeline.link, timelines.NONE)
    return {
        "kind": _name_column(timeline.kind, [kind.name.lower().replace("_", " ") for kind in sorted(SpanKind)]),
        "track": _track_column(timeline, track),
        "ipu": Column(timeline.ipu, partial=True),
        "replica": Column(timeline.replica, partial=True),
        "stage": _name_column(timeline.stage, info.stages),
        "micro_batch": Column(timeline.micro_batch, partial=True),
        "time_step": Column(
            timeline.time_step if info.has_time_steps else np.full(len(timeline), timelines.NONE, dtype=np.int64),
            partial=True,
        ),
        "execution": Column(timeline.execution, partial=True),
        "start_cycle": Column(timeline.start),
        "end_cycle": Column(timeline.end),
        "cycles": Column(timeline.end - timeline.start),
        "start_s": Column(timeline.start / info.clock_hz),
        "end_s": Column(timeline.end / info.clock_hz),
        "link": _name_column(link, info.links),
        "bytes": Column(timeline.bytes),
        "cause": Column(timeline.cause, partial=True),
    }


def ipu_columns(times: analysis.RunTimes) -> Columns:
    """Return a row for every logical IPU: physical IPU, stage names, and cycles by activity.

    Cycles are those of an execution's pipeline without weight update, as in ``pipeline_use`` of ``summary.json``.
    Utilisation is compute cycles over makespan.
    """
    uses = times.pipeline_use
    stages = [", ".join(times.stages[stage] for stage in use.stages) for use in uses]
    return {
        "ipu": _integer_column([use.ipu for use in uses]),
        "physical_ipu": _integer_column([use.physical_ipu for use in uses]),
        "stages": _name_column(np.arange(len(stages)), stages),
        **{f"{name}_cycles": _integer_column([use.cycles[name] for use in uses]) for name in uses[0].cycles},
        "compute_cycles": _integer_column([use.compute_cycles for use in uses]),
        "utilisation": Column(np.array([analysis.ratio(use.compute_cycles, times.makespan_cycles) for use in uses])),
    }


def memory_columns(curves: Sequence[analysis.MemoryCurve], clock_hz: int) -> Columns:
    """Return the memory of IPUs over a run: a row for every change.

    Columns: ipu, the logical IPU; cycle and s, the time from which a row holds, until the IPU's next row;
    allocated_bytes, the sum of resident_bytes (with FIFO buffers) and live_bytes of the running pass; fifo_bytes,
    content of the FIFO buffers. Of several rows in a cycle the last stays valid; earlier rows belong to passes without
    duration.
    """
    entries = sum(curve.entries_in_all for curve in curves)
    if entries > 2 * timelines.MOST_SPANS:
        raise OutputError(
            f"expected a table of memory of at most {2 * timelines.MOST_SPANS:,} rows, got {entries:,} changes"
        )
    curves = [curve.expanded() for curve in curves]
    no_entries = np.zeros(0, dtype=np.int64)
    lengths = [len(curve.time) for curve in curves]
    cycle = np.concatenate([no_entries, *(curve.time for curve in curves)])
    resident = np.repeat(np.array([curve.resident_bytes for curve in curves], dtype=np.int64), lengths)
    live = np.concatenate([no_entries, *(curve.live_bytes for curve in curves)])
    return {
        "ipu": Column(np.repeat(np.array([curve.ipu for curve in curves], dtype=np.int64), lengths)),
        "cycle": Column(cycle),
        "s": Column(cycle / clock_hz),
        "allocated_bytes": Column(resident + live),
        "resident_bytes": Column(resident),
        "live_bytes": Column(live),
        "fifo_bytes": Column(np.concatenate([no_entries, *(curve.fifo_bytes for curve in curves)])),
    }


def in_rows(timeline: Timeline) -> Timeline:
    """Return a run with a row per span. Raises OutputError if spans exceed a table's rows."""
    if timeline.repeats and timeline.spans_in_all > timelines.MOST_SPANS:
        raise _too_many(timeline)
    return timeline.expanded()


def _part_between(timeline: Timeline, start: int, end: int) -> Timeline:
    """Return the spans between two cycles. Raises OutputError if spans exceed a table's rows."""
    part = timeline.expanded_around(start, end, timelines.MOST_SPANS, 1)
    if any(gap.start < end and gap.end > start for gap in left_out(part)):
        raise _too_many(timeline)
    return timeline.spans(start, end)


def _too_many(timeline: Timeline) -> OutputError:
    return OutputError(
        f"expected a table of at most {timelines.MOST_SPANS:,} rows, got a run of {timeline.spans_in_all:,} spans: "
        "select the spans between two cycles"
    )


def _integer_column(values: Sequence[int]) -> Column:
    return Column(np.array(values, dtype=np.int64))


def _name_column(codes: Integers, names: Sequence[str]) -> Column:
    """Return a column of names for codes; duplicate names merge, negative codes are missing."""
    distinct_names = tuple(dict.fromkeys(names))
    position = np.array([*(distinct_names.index(name) for name in names), timelines.NONE])
    return Column(position[np.maximum(codes, timelines.NONE)], distinct_names, partial=True)


def _track_column(timeline: Timeline, track: Integers) -> Column:
    """Return the name of every span's track."""
    columns = (
        track,
        timeline.ipu - timelines.ALL_IPUS,
        timeline.replica - timelines.NONE,
        timeline.link - timelines.NONE,
    )
    key = np.zeros(len(timeline), dtype=np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column
    _, first, position = np.unique(key, return_index=True, return_inverse=True)
    spans = [Span(*(int(getattr(timeline, name)[row]) for name in Span._fields)) for row in first]
    return _name_column(position, [_track_name(timeline, span) for span in spans])


def _track_name(timeline: Timeline, span: Span) -> str:
    info, track = timeline.info, next(kind.row.track for kind in SpanKind if kind == span.kind)
    if track is timelines.Track.LINK:
        return f"link {info.links[span.link]}"
    suffix = f" of replica {span.replica}" if info.replicas > 1 and span.replica != timelines.NONE else ""
    if track is timelines.Track.HOST:
        host = timelines.HostTrack(span.link)
        return f"host {host.word}{'' if host.of_all_replicas else suffix}"
    if span.ipu == timelines.ALL_IPUS:
        return f"all IPUs{suffix}"
    return f"IPU {span.ipu}" if track is timelines.Track.IPU else f"{track.value} of IPU {span.ipu}"
