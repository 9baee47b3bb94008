"""Find the critical path of a run: the chain of spans, linked by cause, that determines the run's length.

The cause of a span (a recorded interval, such as a pass) is the span whose end let it begin. A Timeline stores a
repeated part of the run once, as a block of rows; each repetition is a copy of the block.
"""

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

#: All kinds, by number.
_KINDS: Final = tuple(sorted(SpanKind))
#: Kinds of waits, which end together with another span.
WAITS: Final = kinds_with(lambda row: row.part is Part.WAIT)


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The spans on the critical path of a run.

    Attributes:
        rows: Timeline rows of the path's spans, by time; rows of a block belong to its first copy.
        spans: number of spans on the path that each Timeline row represents, shape (rows of the Timeline,).
    """

    rows: Rows
    spans: Rows


def critical_path_of(timeline: Timeline) -> CriticalPath:
    """Return the critical path of a run.

    The path leads from the run's start to the end of the last span on an IPU. If this span is a wait for the host, the
    path ends with the host's work. The search follows causes backwards from the end. Every span on the path begins in
    the cycle in which the previous span ends, so their lengths add up to the run's length. The path contains causes
    of waits, never the waits. Among equally long paths, as in every balanced pipeline, an IPU's own span takes
    precedence over a tensor that arrives in the same cycle. Inside a block the search goes backwards from copy to
    copy, until it enters two copies at the same row: from there the path repeats.

    Raises TimelineError if no span is on an IPU, if the final wait has no cause, or if a span begins after the run's
    start and no cause ends in the cycle in which the span begins. No recorded run has these faults.
    """
    compact = timeline.contiguous()
    segment = _BackwardSearch(compact, timeline.blocks).back_from(_last_span(compact), 0, timeline.blocks.outermost)
    if compact.start[segment.rows[-1]] != compact.start[0]:
        raise TimelineError(
            f"expected a cause of span {segment.rows[-1]}, which begins in cycle {compact.start[segment.rows[-1]]}"
        )
    return CriticalPath(np.array(segment.rows[::-1], dtype=np.int64), segment.counts(len(timeline)))


@dataclass
class _PathSegment:
    """A part of the path, in backward order.

    Attributes:
        rows: rows on the path, within first copies of blocks.
        repeated_rows: rows on the path in further copies, each list with its number of repetitions.
        cause: row of the earliest span's cause; in a block, this row may belong to the previous copy.
    """

    rows: list[int]
    repeated_rows: list[tuple[list[int], int]]
    cause: int

    def add(self, segment: _PathSegment) -> None:
        """Append an earlier part of the path."""
        self.rows += segment.rows
        self.repeated_rows += segment.repeated_rows
        self.cause = segment.cause

    def repeat(self, segment: _PathSegment, times: int) -> None:
        """Count the rows of another part several times."""
        self.repeated_rows += [
            (segment.rows, times),
            *((rows, times * number) for rows, number in segment.repeated_rows),
        ]

    def counts(self, rows: int) -> Rows:
        """Count visits of the critical path to every row."""
        counts = np.zeros(rows, dtype=np.int64)
        for members, times in ((self.rows, 1), *self.repeated_rows):
            np.add.at(counts, np.array(members, dtype=np.int64), times)
        return counts


class _BackwardSearch:
    """Backward search along causes, through a Timeline with one copy of every block."""

    def __init__(self, timeline: Timeline, blocks: Blocks) -> None:
        self._timeline, self._blocks = timeline, blocks
        self._cause, self._start, self._end = (
            column.tolist() for column in (timeline.cause, timeline.start, timeline.end)
        )
        self._waits = of_kinds(timeline.kind, WAITS).tolist()
        self._paths_within_copies: dict[tuple[Repeat, int], _PathSegment] = {}

    def back_from(self, row: int, first: int, inside: Sequence[Repeat]) -> _PathSegment:
        """Return the path from row ``first`` to ``row``; ``inside`` lists the blocks between."""
        segment = _PathSegment([], [], row)
        while segment.cause >= first:
            row = segment.cause
            block = next((block for block in inside if block.first <= row < block.last), None)
            if block is None:
                segment.add(_PathSegment([row], [], self._cause_before(row)))
            else:
                segment.add(self._path_through_block(block, row, block.times - 1))
            for block in inside:
                size = block.last - block.first
                # The cause just before a block may lie in the block's second-to-last copy.
                if block.last <= row and max(block.first - size, 0) <= segment.cause < block.first:
                    segment.add(self._path_through_block(block, segment.cause + size, block.times - 2))
        return segment

    def _path_through_block(self, block: Repeat, row: int, copy: int) -> _PathSegment:
        """Return the path through a block's copies to ``row`` in the copy of number ``copy``.

        The row at which the search enters a copy determines the path through all earlier copies. Once such a row
        repeats, the path is periodic.
        """
        path, segments = _PathSegment([], [], NONE), list[_PathSegment]()
        entries: dict[int, tuple[int, int]] | None = {}
        size = block.last - block.first
        while True:
            if entries is not None and row in entries:
                begin, earlier_copy = entries[row]
                rounds, copy = divmod(copy, earlier_copy - copy)
                for segment in segments[begin:]:
                    path.repeat(segment, rounds)
                entries = None  # after the period, single copies remain
            elif entries is not None:
                entries[row] = (len(segments), copy)
            segment = self._path_within_copy(block, row)
            segments.append(segment)
            copy_number, row = copy, segment.cause
            while NONE < row < block.first and copy:
                row, copy = row + size, copy - 1
            if row < block.first:
                break
            path.repeat(segment, 1)
        if copy_number == 0:
            path.add(segment)
        else:
            path.repeat(segment, 1)
        path.cause = row
        return path

    def _path_within_copy(self, block: Repeat, row: int) -> _PathSegment:
        """Return the path to ``row`` within one copy of a block."""
        if (block, row) not in self._paths_within_copies:
            self._paths_within_copies[block, row] = self.back_from(row, block.first, self._blocks.inside(block))
        return self._paths_within_copies[block, row]

    def _cause_before(self, row: int) -> int:
        """Return the row of the span that let ``row`` begin, never a wait; NONE at the start of the run."""
        cause: int = self._cause[row]
        if cause != NONE and self._waits[cause]:
            cause = _last_arrival(self._timeline, row)
        if cause != NONE and (self._end[cause] != self._start[row] or cause >= row):
            raise TimelineError(f"expected a cause that ends when span {row} begins, got span {cause}")
        return cause


def _last_span(timeline: Timeline) -> int:
    """Find the span that ends the run: on an IPU, or on the host if IPUs only wait.

    Of several such spans, the last row is taken.
    """
    on_ipu, waits = on_ipus(timeline), of_kinds(timeline.kind, WAITS)
    if not on_ipu.any():
        raise TimelineError("expected a Timeline with spans on IPUs, got none")
    end = timeline.end[on_ipu].max()
    is_ending = ~waits & (timeline.end == end)
    if not is_ending.any():
        raise TimelineError(f"expected a span other than a wait at the end of the run's last cycle {end}, got none")
    return int(np.flatnonzero(is_ending & on_ipu if (is_ending & on_ipu).any() else is_ending)[-1])


def _last_arrival(timeline: Timeline, row: int) -> int:
    """Find the span of the last IPU to arrive at the meeting in ``row``."""
    is_meeting = (timeline.start == timeline.start[row]) & (timeline.kind == timeline.kind[row])
    causes = timeline.cause[is_meeting & (timeline.cause != NONE)]
    causes = causes[~of_kinds(timeline.kind[causes], WAITS) & (timeline.end[causes] == timeline.start[row])]
    if not len(causes):
        raise TimelineError(f"expected a participant of the meeting in span {row} without a wait, got none")
    return int(causes[-1])


@dataclass(frozen=True)
class PathPart:
    """Share of a span kind and a stage in the critical path.

    Attributes:
        kind: kind of span.
        stage: number of the stage; -1 for spans without a stage.
        spans: number of these spans on the path.
        cycles: their total length.
    """

    kind: SpanKind
    stage: int
    spans: int
    cycles: int


def path_parts(timeline: Timeline, path: CriticalPath) -> tuple[PathPart, ...]:
    """Divide the critical path by kind and stage, longest part first; cycles add up to the length of the run."""
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
        PathPart(_KINDS[kind_and_stage // width], kind_and_stage % width - 1, spans, length)
        for kind_and_stage, spans, length in zip(key.tolist(), count.tolist(), total.tolist(), strict=True)
        if length
    ]
    return tuple(sorted(parts, key=lambda part: (-part.cycles, part.kind, part.stage)))
