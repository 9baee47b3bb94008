"""The critical path of a run: the spans, one released by the end of the other, that make it as long as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.executions import on_ipus
from ipusim.errors import TimelineError
from ipusim.timeline.kind_row import Part
from ipusim.timeline.kinds import PASSES, SpanKind, kinds_with, of_kinds
from ipusim.timeline.timeline import NONE, Timeline

Rows = npt.NDArray[np.int64]

#: Every kind, by its number.
_KINDS: Final = tuple(sorted(SpanKind))
#: Kinds that end because something else ends.
WAITS: Final = kinds_with(lambda row: row.part is Part.WAIT)


def critical_path(timeline: Timeline) -> Rows:
    """Return the rows of the spans of the critical path, in order of time, shape (spans on it,).

    It leads from the run's start to the end of its last span on an IPU, or of the host's work that this waits for, and
    is found from its end, cause by cause.
    Each of its spans begins in the cycle in which the one before it ends, so that their lengths add up to that of
    the run; waits are never on it, as what they wait for is. Where several spans end at once, any of them may be the
    one that is shown.

    Raises TimelineError for a Timeline without spans on IPUs, and for one that ends in a wait for nothing, or in which
    a span begins later than the run and nothing that ends then is its cause, which no run records.
    """
    cause, start, end = timeline.cause.tolist(), timeline.start.tolist(), timeline.end.tolist()
    waits = of_kinds(timeline.kind, WAITS).tolist()
    found = [_last(timeline)]
    while (row := cause[found[-1]]) != NONE:
        if waits[row]:
            row = _last_to_come(timeline, found[-1])
        if end[row] != start[found[-1]] or row >= found[-1]:
            raise TimelineError(f"expected a cause that ends when span {found[-1]} begins, got span {row}")
        found.append(row)
    if start[found[-1]] != start[0]:
        raise TimelineError(f"expected a cause of span {found[-1]}, which begins in cycle {start[found[-1]]}")
    return np.array(found[::-1], dtype=np.int64)


def _last(timeline: Timeline) -> int:
    """Return the span on an IPU that ends last, or what it waits for then; of several the last that was recorded."""
    here, waits = on_ipus(timeline), of_kinds(timeline.kind, WAITS)
    if not here.any():
        raise TimelineError("expected a Timeline with spans on IPUs, got none")
    end = timeline.end[here].max()
    ended = ~waits & (timeline.end == end)
    if not ended.any():
        raise TimelineError(f"expected something but waits to end in the run's last cycle {end}, got none")
    return int(np.flatnonzero(ended & here if (ended & here).any() else ended)[-1])


def _last_to_come(timeline: Timeline, row: int) -> int:
    """Return what released those who meet in ``row``, with a span each: what the last of them did, who did not wait."""
    together = (timeline.start == timeline.start[row]) & (timeline.kind == timeline.kind[row])
    causes = timeline.cause[together & (timeline.cause != NONE)]
    causes = causes[~of_kinds(timeline.kind[causes], WAITS) & (timeline.end[causes] == timeline.start[row])]
    if not len(causes):
        raise TimelineError(f"expected one of those who meet in span {row} not to wait, got none")
    return int(causes[-1])


@dataclass(frozen=True)
class PathPart:
    """What a kind of spans, of one stage where it is a stage's, takes of the critical path.

    Attributes:
        kind: of the spans.
        stage: -1 for what is no stage's.
        spans, cycles: how many there are on the path, and how long they are together.
    """

    kind: SpanKind
    stage: int
    spans: int
    cycles: int


def path_parts(timeline: Timeline, path: Rows) -> tuple[PathPart, ...]:
    """Return what is on the critical path by kind and stage, the longest first; their cycles add up to the run's."""
    cycles = timeline.end[path] - timeline.start[path]
    kind = timeline.kind[path]
    stage = np.where(of_kinds(kind, PASSES), timeline.stage[path], NONE)
    width = len(timeline.info.stages) + 1
    key, position = np.unique(kind * width + stage + 1, return_inverse=True)
    total, count = np.zeros(len(key), dtype=np.int64), np.bincount(position, minlength=len(key))
    np.add.at(total, position, cycles)
    found = [
        PathPart(_KINDS[each // width], each % width - 1, spans, of)
        for each, spans, of in zip(key.tolist(), count.tolist(), total.tolist(), strict=True)
        if of
    ]
    return tuple(sorted(found, key=lambda part: (-part.cycles, part.kind, part.stage)))
