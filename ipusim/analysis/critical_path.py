"""The critical path of a run: the spans, one released by the end of the other, that make it as long as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.executions import on_ipus
from ipusim.base.errors import TimelineError
from ipusim.timeline.kind_row import Part
from ipusim.timeline.kinds import PASSES, SpanKind, kinds_with, of_kinds
from ipusim.timeline.repeats import Blocks, Repeat
from ipusim.timeline.timeline import NONE, Timeline

Rows = npt.NDArray[np.int64]

#: Every kind, by its number.
_KINDS: Final = tuple(sorted(SpanKind))
#: Kinds that end because something else ends.
WAITS: Final = kinds_with(lambda row: row.part is Part.WAIT)


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The spans that make a run as long as it is.

    Attributes:
        rows: of the Timeline, of the spans on the path, in order of time; of a block those of its first copy.
        spans: how many spans of the path each row of the Timeline stands for, shape (rows of the Timeline,).
    """

    rows: Rows
    spans: Rows


def critical_path_of(timeline: Timeline) -> CriticalPath:
    """Return the critical path of a run.

    It leads from the run's start to the end of its last span on an IPU, or of the host's work that this waits for, and
    is found from its end, cause by cause. Each of its spans begins in the cycle in which the one before it ends, so
    that their lengths add up to that of the run; waits are never on it, as what they wait for is. Where paths are
    equally long, as in every even pipeline, it is one of them: an IPU's own span is on it, and no tensor that arrives
    in the cycle in which that ends. Through a block it leads copy by copy, until it enters one where it has entered
    one before.

    Raises TimelineError for a Timeline without spans on IPUs, and for one that ends in a wait for nothing, or in which
    a span begins later than the run and nothing that ends then is its cause, which no run records.
    """
    once = timeline.contiguous()
    way = _Walk(once, timeline.blocks).back_from(_last(once), 0, timeline.blocks.outermost)
    if once.start[way.rows[-1]] != once.start[0]:
        raise TimelineError(
            f"expected a cause of span {way.rows[-1]}, which begins in cycle {once.start[way.rows[-1]]}"
        )
    return CriticalPath(np.array(way.rows[::-1], dtype=np.int64), way.counts(len(timeline)))


@dataclass
class _Way:
    """A part of the path, from its end back.

    Attributes:
        rows: that it leads through, in the first copies of blocks.
        more: rows that it leads through in further copies, and how often.
        cause: of its first span; of one in a block this may lie in the copy before.
    """

    rows: list[int]
    more: list[tuple[list[int], int]]
    cause: int

    def add(self, way: _Way) -> None:
        """Go on along another part, which ends where this one begins."""
        self.rows += way.rows
        self.more += way.more
        self.cause = way.cause

    def repeat(self, way: _Way, times: int) -> None:
        """Count the rows of another part some times more."""
        self.more += [(way.rows, times), *((rows, times * number) for rows, number in way.more)]

    def counts(self, rows: int) -> Rows:
        """Return how often the critical path leads through each of so many rows."""
        counts = np.zeros(rows, dtype=np.int64)
        for members, times in ((self.rows, 1), *self.more):
            np.add.at(counts, np.array(members, dtype=np.int64), times)
        return counts


class _Walk:
    """Follows causes back through a Timeline that has each block once."""

    def __init__(self, timeline: Timeline, blocks: Blocks) -> None:
        self._timeline, self._blocks = timeline, blocks
        self._cause, self._start, self._end = (
            column.tolist() for column in (timeline.cause, timeline.start, timeline.end)
        )
        self._waits = of_kinds(timeline.kind, WAITS).tolist()
        self._copies: dict[tuple[Repeat, int], _Way] = {}

    def back_from(self, row: int, first: int, inside: Sequence[Repeat]) -> _Way:
        """Return the path to ``row`` from the row ``first`` on, with the blocks ``inside`` of what lies between."""
        way = _Way([], [], row)
        while way.cause >= first:
            row = way.cause
            block = next((block for block in inside if block.first <= row < block.last), None)
            if block is None:
                way.add(_Way([row], [], self._before(row)))
            else:
                way.add(self._block(block, row, block.times - 1))
            for block in inside:
                size = block.last - block.first
                # Behind a block, what was just before may be in the last but one of its copies.
                if block.last <= row and max(block.first - size, 0) <= way.cause < block.first:
                    way.add(self._block(block, way.cause + size, block.times - 2))
        return way

    def _block(self, block: Repeat, row: int, copy: int) -> _Way:
        """Return the path to ``row`` of a copy of a block, through all copies before it.

        What a copy is entered by decides all that lies before: where the path enters by the same row again, it goes
        round from there on.
        """
        path, ways = _Way([], [], NONE), list[_Way]()
        entered: dict[int, tuple[int, int]] | None = {}
        size = block.last - block.first
        while True:
            if entered is not None and row in entered:
                begin, earlier = entered[row]
                rounds, copy = divmod(copy, earlier - copy)
                for way in ways[begin:]:
                    path.repeat(way, rounds)
                entered = None
            elif entered is not None:
                entered[row] = (len(ways), copy)
            way = self._copy(block, row)
            ways.append(way)
            at, row = copy, way.cause
            while NONE < row < block.first and copy:
                row, copy = row + size, copy - 1
            if row < block.first:
                break
            path.repeat(way, 1)
        if at == 0:
            path.add(way)
        else:
            path.repeat(way, 1)
        path.cause = row
        return path

    def _copy(self, block: Repeat, row: int) -> _Way:
        """Return the path to ``row`` within a copy of a block."""
        if (block, row) not in self._copies:
            self._copies[block, row] = self.back_from(row, block.first, self._blocks.inside(block))
        return self._copies[block, row]

    def _before(self, row: int) -> int:
        """Return the row whose end released that of another one; NONE of the first."""
        cause: int = self._cause[row]
        if cause != NONE and self._waits[cause]:
            cause = _last_to_come(self._timeline, row)
        if cause != NONE and (self._end[cause] != self._start[row] or cause >= row):
            raise TimelineError(f"expected a cause that ends when span {row} begins, got span {cause}")
        return cause


def _last(timeline: Timeline) -> int:
    """Return the last span to end on an IPU, or the cause of its last wait; among ties the last recorded."""
    here, waits = on_ipus(timeline), of_kinds(timeline.kind, WAITS)
    if not here.any():
        raise TimelineError("expected a Timeline with spans on IPUs, got none")
    end = timeline.end[here].max()
    ended = ~waits & (timeline.end == end)
    if not ended.any():
        raise TimelineError(f"expected something but waits to end in the run's last cycle {end}, got none")
    return int(np.flatnonzero(ended & here if (ended & here).any() else ended)[-1])


def _last_to_come(timeline: Timeline, row: int) -> int:
    """Return the row whose span released the IPUs that meet in ``row``: that of the last to arrive."""
    together = (timeline.start == timeline.start[row]) & (timeline.kind == timeline.kind[row])
    causes = timeline.cause[together & (timeline.cause != NONE)]
    causes = causes[~of_kinds(timeline.kind[causes], WAITS) & (timeline.end[causes] == timeline.start[row])]
    if not len(causes):
        raise TimelineError(f"expected one of those who meet in span {row} not to wait, got none")
    return int(causes[-1])


@dataclass(frozen=True)
class PathPart:
    """The part of the critical path that spans of one kind take, of one stage where they are a stage's.

    Attributes:
        kind: of the spans.
        stage: -1 for what is no stage's.
        spans, cycles: how many there are on the path, and how long they are together.
    """

    kind: SpanKind
    stage: int
    spans: int
    cycles: int


def path_parts(timeline: Timeline, path: CriticalPath) -> tuple[PathPart, ...]:
    """Return the parts of the critical path by kind and stage, the longest first; their cycles add up to the run's."""
    rows = np.flatnonzero(path.spans)
    cycles = timeline.end[rows] - timeline.start[rows]
    kind = timeline.kind[rows]
    stage = np.where(of_kinds(kind, PASSES), timeline.stage[rows], NONE)
    width = len(timeline.info.stages) + 1
    key, position = np.unique(kind * width + stage + 1, return_inverse=True)
    total, count = np.zeros(len(key), dtype=np.int64), np.zeros(len(key), dtype=np.int64)
    np.add.at(total, position, cycles * path.spans[rows])
    np.add.at(count, position, path.spans[rows])
    parts = [
        PathPart(_KINDS[kind_and_stage // width], kind_and_stage % width - 1, spans, of)
        for kind_and_stage, spans, of in zip(key.tolist(), count.tolist(), total.tolist(), strict=True)
        if of
    ]
    return tuple(sorted(parts, key=lambda part: (-part.cycles, part.kind, part.stage)))
