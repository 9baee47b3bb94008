"""Spans, IPUs, memory and losses as pandas DataFrames, with names where a Timeline has numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.run_times import RunTimes
from ipusim.analysis.utilisation import ratio
from ipusim.errors import MissingPackageError
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind, by_number
from ipusim.timeline.timeline import ALL_IPUS, NONE, Span, Timeline

if TYPE_CHECKING:
    import pandas as pd

Column = npt.NDArray[np.int64]

#: The host's queues, by the number that spans of the host have as their link.
_QUEUES: Final = ("infeed", "outfeed")
_TRACKS: Final = tuple(Track)


def spans_frame(timeline: Timeline) -> pd.DataFrame:
    """Return a row for each span, in the order of the Timeline; a span's ``cause`` is the row that released it.

    Columns: kind; track, which is where it lies, such as ``IPU 0``, ``all IPUs`` or ``link 0→1 rung``; ipu, the
    logical one, missing for spans of several IPUs or of none; replica; stage, its name; micro_batch; time_step;
    execution; start_cycle, end_cycle and cycles; start_s and end_s in seconds; link, the name of a link direction;
    bytes; cause. What does not apply is missing. Raises MissingPackageError without pandas.
    """
    pandas, info = _pandas(), timeline.info
    track: Column = by_number(lambda row: _TRACKS.index(row.track), np.int64)[timeline.kind]
    link = np.where(track == _TRACKS.index(Track.LINK), timeline.link, NONE)
    return pandas.DataFrame(
        {
            "kind": _named(timeline.kind, [kind.name.lower().replace("_", " ") for kind in sorted(SpanKind)]),
            "track": _tracks(timeline, track),
            "ipu": _numbers(timeline.ipu),
            "replica": _numbers(timeline.replica),
            "stage": _named(timeline.stage, info.stages),
            "micro_batch": _numbers(timeline.micro_batch),
            "time_step": _numbers(timeline.time_step if info.has_time_steps else np.full(len(timeline), NONE)),
            "execution": _numbers(timeline.execution),
            "start_cycle": timeline.start,
            "end_cycle": timeline.end,
            "cycles": timeline.end - timeline.start,
            "start_s": timeline.start / info.clock_hz,
            "end_s": timeline.end / info.clock_hz,
            "link": _named(link, info.links),
            "bytes": timeline.bytes,
            "cause": _numbers(timeline.cause),
        }
    )


def ipus_frame(times: RunTimes) -> pd.DataFrame:
    """Return a row for each logical IPU: where it is, its stages' names, and its cycles by what it does.

    Cycles are of one execution's pipeline without its weight update, as those of ``summary.json``'s
    ``pipeline_use``; utilisation is the part of that makespan in which it computes. Raises MissingPackageError
    without pandas.
    """
    rows = [
        {
            "ipu": use.ipu,
            "physical_ipu": use.physical_ipu,
            "stages": ", ".join(times.stages[stage] for stage in use.stages),
            **{f"{name}_cycles": cycles for name, cycles in use.cycles.items()},
            "compute_cycles": use.compute_cycles,
            "utilisation": ratio(use.compute_cycles, times.makespan_cycles),
        }
        for use in times.pipeline_use
    ]
    return _pandas().DataFrame(rows)


def memory_frame(memory: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each IPU that holds a stage: its peak, when that is, and the bytes of each holder at it.

    ``memory`` is that of ``summary.json``, whose names the columns have. Raises MissingPackageError without pandas.
    """
    rows = [
        {
            **{key: value for key, value in ipu.items() if key != "holders"},
            "sram_bytes": memory["sram_bytes"],
            **{f"{holder.replace(' ', '_')}_bytes": size for holder, size in ipu["holders"].items()},
        }
        for ipu in memory["ipus"]
    ]
    return _pandas().DataFrame(rows)


def losses_frame(content: bytes) -> pd.DataFrame:
    """Return ``losses.csv`` as a frame, every loss to the last bit; raises MissingPackageError without pandas."""
    header, *rows = csv.reader(io.StringIO(content.decode()))
    types = {name: float if name.startswith("loss") else int for name in header}
    return _pandas().DataFrame(rows, columns=header).astype(types)


def rows_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a frame, in which what is None is missing; raises MissingPackageError without pandas."""
    return _pandas().DataFrame(rows).convert_dtypes()


def _pandas() -> Any:
    try:
        import pandas  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingPackageError("DataFrames need pandas: pip install ipusim[notebook]") from None
    return pandas


def _numbers(column: Column) -> Any:
    """Return a column in which negative numbers are missing values."""
    return _pandas().arrays.IntegerArray(column.copy(), column < 0)


def _named(codes: Column, names: Sequence[str]) -> Any:
    """Return the name of each code, of which several may be the same; a negative code has none."""
    different = list(dict.fromkeys(names))
    position = np.array([*(different.index(name) for name in names), NONE])
    return _pandas().Categorical.from_codes(position[np.maximum(codes, NONE)], different)


def _tracks(timeline: Timeline, track: Column) -> Any:
    """Return where each span lies, in words."""
    columns = (track, timeline.ipu - ALL_IPUS, timeline.replica - NONE, timeline.link - NONE)
    key = np.zeros(len(timeline), dtype=np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column
    _, first, position = np.unique(key, return_index=True, return_inverse=True)
    spans = [Span(*(int(getattr(timeline, name)[row]) for name in Span._fields)) for row in first]
    return _named(position, [_track(timeline, span) for span in spans])


def _track(timeline: Timeline, span: Span) -> str:
    info, track = timeline.info, next(kind.row.track for kind in SpanKind if kind == span.kind)
    if track is Track.LINK:
        return f"link {info.links[span.link]}"
    of = f" of replica {span.replica}" if info.replicas > 1 and span.replica != NONE else ""
    if track is Track.HOST:
        return f"host {_QUEUES[span.link]}{of}"
    if span.ipu == ALL_IPUS:
        return f"all IPUs{of}"
    return f"IPU {span.ipu}" if track is Track.IPU else f"{track.value} of IPU {span.ipu}"
