"""Timelines with blocks, made of whole ones: what a machine that knows where its state recurs would record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ipusim.timeline.copies import Gap, cause_rows
from ipusim.timeline.kinds import PASSES, SpanKind, of_kinds
from ipusim.timeline.repeats import Repeat, block_between
from ipusim.timeline.timeline import Span, Timeline


class Found(NamedTuple):
    """Copies of a block of spans, written out: the block's first copy, and how many there are."""

    block: Repeat
    nested: tuple[Found, ...] = ()

    @property
    def last(self) -> int:
        """The span behind the last copy."""
        return self.block.first + self.block.times * (self.block.last - self.block.first)


def folded(timeline: Timeline, copies: int = 3) -> Timeline:
    """Return the same run with blocks of what happens ``copies`` times or more, micro-batches within executions.

    Every execution leaves as many micro-batches out, as the info of a Timeline with blocks needs it.
    """
    columns = {name: getattr(timeline, name) for name in Span._fields}
    runs = [_micro_batches(timeline, columns, execution, copies) for execution in range(timeline.info.executions)]
    left_out = {sum((found.block.times - 1) * found.block.micro_batches for found in run) for run in runs}
    within = [found for run in runs for found in run] if len(left_out) == 1 else []
    outer = _executions(timeline, columns, copies)
    return fold(timeline, [found._replace(nested=tuple(_inside(found, within))) for found in outer], within)


def fold(timeline: Timeline, outer: Sequence[Found], within: Sequence[Found] = ()) -> Timeline:
    """Return the same run with those copies as blocks; of ``within`` those that lie in no other one."""
    blocks = [*outer, *(found for found in within if not any(_touch(found, around) for around in outer))]
    kept = np.ones(len(timeline), dtype=bool)
    for found in blocks:
        _leave_out(kept, found)
    row_of = np.cumsum(kept) - 1
    gaps = []
    for found in (each for block in blocks for each in (block, *block.nested)):
        size = found.block.last - found.block.first
        first = int(row_of[found.block.first])
        last = first + int(kept[found.block.first : found.block.last].sum())
        gaps.append(Gap(found.block._replace(first=first, last=last), found.block.first, size))
    gaps.sort(key=lambda gap: (gap.block.first, -gap.block.last))
    table = np.stack([getattr(timeline, name)[kept] for name in Span._fields], axis=1)
    table[:, Span._fields.index("cause")] = cause_rows(table[:, Span._fields.index("cause")], gaps)
    found = Timeline(timeline.info, table, [gap.block for gap in gaps])
    return found if found.expanded() == timeline and _is_run(found.contiguous()) else timeline


def _is_run(once: Timeline) -> bool:
    """Whether every micro-batch passes through all that any does, as in a run of so many."""
    passes = np.flatnonzero(of_kinds(once.kind, PASSES))
    columns = [getattr(once, name)[passes] for name in ("micro_batch", "replica", "execution", "kind", "stage")]
    passed = np.unique(np.stack(columns), axis=1)
    others = np.unique(passed[1:], axis=1)
    return passed.shape[1] == len(passes) == others.shape[1] * once.info.count and passed[0].min() == 0


def _leave_out(kept: np.ndarray[Any, Any], found: Found) -> None:
    kept[found.block.last : found.last] = False
    for inner in found.nested:
        _leave_out(kept, inner)


def _touch(one: Found, other: Found) -> bool:
    return one.block.first < other.last and other.block.first < one.last


def _inside(outer: Found, within: Sequence[Found]) -> Iterator[Found]:
    yield from (each for each in within if outer.block.first <= each.block.first and each.last <= outer.block.last)


def _micro_batches(timeline: Timeline, columns: dict[str, Any], execution: int, copies: int) -> list[Found]:
    """Return the block of micro-batches of an execution that leaves out most of them, the first of several."""
    own = (timeline.kind == SpanKind.FORWARD) & (timeline.stage == 0) & (timeline.replica == 0)
    rows = np.flatnonzero(own & (timeline.execution == execution))
    rows = rows[np.argsort(timeline.micro_batch[rows], kind="stable")]
    start, step = timeline.start[rows].tolist(), timeline.time_step[rows].tolist()
    best: list[Found] = []
    most = 0
    for period in range(1, len(rows) // copies + 1):
        for at in range(len(rows) - copies * period + 1):
            found = (
                _block(columns, start, at, period, copies, period, step[at + period] - step[at], 0)
                if (at + period < len(rows))
                else None
            )
            if found and (found.block.times - 1) * period > most:
                best, most = [found], (found.block.times - 1) * period
    return best


def _executions(timeline: Timeline, columns: dict[str, Any], copies: int) -> list[Found]:
    """Return the block of whole executions, if they repeat."""
    rows = np.flatnonzero(timeline.ipu != -1)
    index, first = np.unique(timeline.execution[rows], return_index=True)
    start = timeline.start[rows[first[index >= 0]]].tolist()
    for at in range(len(start) - copies):
        if found := _block(columns, start, at, 1, copies, 0, 0, 1):
            return [found]
    return []


def _block(
    columns: dict[str, Any],
    start: Sequence[int],
    at: int,
    period: int,
    copies: int,
    micro_batches: int,
    time_steps: int,
    executions: int,
) -> Found | None:
    """Return the block from the start ``at`` to the one ``period`` further on, if it repeats."""
    begin, cycles = start[at], start[at + period] - start[at]
    times = 1
    first: Repeat | None = None
    while True:
        begins = begin + (times - 1) * cycles
        found = block_between(
            columns,
            begins,
            begins + cycles,
            micro_batches=micro_batches,
            time_steps=time_steps,
            executions=executions,
        )
        if found is None:
            break
        first, times = first or found, times + 1
    if first is None or times < copies:
        return None
    return Found(first._replace(times=times))
