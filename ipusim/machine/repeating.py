"""Find the repeating parts of a simulated short run, so that they can stand for a longer run.

The search takes the Timeline of a short run with states noted at marks, and returns blocks: groups of spans that
repeat. Each repetition is a copy of the block; a longer run has more copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from ipusim.machine.recurrence import InstructionLists, Mark, periods
from ipusim.pipeline.instructions import NONE
from ipusim.pipeline.plan import Plan
from ipusim.timeline.kinds import PASSES, of_kinds
from ipusim.timeline.repeats import Repeat, block_between, phases, with_copies
from ipusim.timeline.timeline import Timeline, TimelineInfo

#: Maximum number of pairs of marks that a search tries as the ends of a period, the latest first.
_MOST_TRIED_PERIODS = 64


@dataclass(frozen=True)
class ShortRun:
    """A run of few micro-batches and executions, and its repeats.

    Attributes:
        timeline: the simulated run.
        inner: blocks of repeating micro-batches, one per execution or phase, each with a single copy; empty if none was
            searched.
        outer: block of repeating executions; None if none was searched.
        inner_repeats: whether ``inner`` has every required block.
        outer_repeats: whether ``outer`` exists, if it is required.
    """

    timeline: Timeline
    inner: tuple[Repeat, ...] = ()
    outer: Repeat | None = None
    inner_repeats: bool = True
    outer_repeats: bool = True

    @property
    def micro_batches(self) -> int:
        """Least common multiple of the periods; the number of omitted micro-batches must be a multiple of it."""
        return math.lcm(*(block.length for block in self.inner))

    def time_steps(self, left_out: int) -> int:
        """Return the time-steps of an execution taken by ``left_out`` omitted micro-batches."""
        execution = self.timeline.execution
        first = [block for block in self.inner if execution[block.first : block.last].max() == 0]
        return sum(left_out // block.length * block.time_steps for block in first)

    def executions_over(self, left_out: int) -> int:
        """Return the number of omitted executions that remain after whole blocks."""
        return left_out % self.outer.executions if self.outer is not None else 0

    def lengthen(self, info: TimelineInfo) -> Timeline:
        """Return the longer run that ``info`` describes, made of this run with its blocks repeated."""
        short, left_out = self.timeline.info, info.count - self.timeline.info.count
        inner = self.inner if left_out else ()
        folded_run = self.timeline.fold_copies(self._with_copies(inner))
        if folded_run is None:
            folded_run = self.timeline.fold_copies(inner)
        assert folded_run is not None, "blocks that happen once have no copies to leave out"
        repeats = [repeat._replace(times=repeat.times + left_out // repeat.length) for repeat in folded_run.repeats]
        more_executions = info.executions - short.executions
        if self.outer is not None and more_executions:
            first, last = np.searchsorted(folded_run.blocks.positions(), [self.outer.first, self.outer.last]).tolist()
            cycles = self.outer.cycles
            cycles += sum(
                left_out // repeat.length * repeat.cycles for repeat in repeats if first <= repeat.first < last
            )
            times = 1 + more_executions // self.outer.executions
            repeats.append(Repeat(first, last, times, cycles, 0, 0, self.outer.executions))
        repeats.sort(key=lambda repeat: (repeat.first, -repeat.last))
        return folded_run.contiguous().repeat_blocks(info, repeats)

    def _with_copies(self, inner: Sequence[Repeat]) -> list[Repeat]:
        """Extend blocks by further copies that the rows contain, by equally many micro-batches in every execution."""
        blocks = [with_copies(self.timeline.columns, block) for block in inner]
        folded = min(((block.times - 1) * block.length for block in blocks), default=0)
        folded -= folded % self.micro_batches
        return [block._replace(times=1 + folded // block.length) for block in blocks]


def short_run(
    timeline: Timeline,
    marks: Sequence[Mark],
    plan: Plan,
    *,
    needs_inner: bool,
    outer_length: int,
) -> ShortRun:
    """Find the repeats of a run, within executions and across executions.

    Args:
        timeline: timeline of the run.
        marks: marks noted during the run.
        plan: plan of the run.
        needs_inner: whether repeats within every execution are required.
        outer_length: length of the required period in executions; 0 if no period of executions is required.

    Returns:
        The run with its repeats; ``inner_repeats`` or ``outer_repeats`` is False if required repeats are missing.
    """
    lists = InstructionLists(plan, timeline.info.replicas)
    columns = timeline.columns
    inner = []
    for execution in range(timeline.info.executions) if needs_inner else ():
        execution_marks = [mark for mark in marks if mark.execution == execution and mark.micro_batch != NONE]
        blocks = [
            next(_blocks(columns, [mark for mark in execution_marks if mark.phase == phase], lists.recur), None)
            for phase in dict.fromkeys(mark.phase for mark in execution_marks)
        ]
        found_blocks = [block for block in blocks if block is not None]
        if (
            not found_blocks
            or len(found_blocks) < len(blocks)
            or (len(found_blocks) > 1 and not _are_independent(columns, found_blocks, plan.sync.has_time_steps))
        ):
            return ShortRun(timeline, inner_repeats=False)
        inner += found_blocks
    outer = None
    if outer_length:
        execution_begins = [mark for mark in marks if mark.micro_batch == NONE and mark.execution % outer_length == 0]
        outer = next(_blocks(columns, execution_begins, lists.recur), None)
        if outer is None:
            return ShortRun(timeline, outer_repeats=False)
    return ShortRun(timeline, tuple(inner), outer)


def _are_independent(
    columns: Mapping[str, npt.NDArray[np.int64]], blocks: Sequence[Repeat], has_time_steps: bool
) -> bool:
    """Whether every stage's passes of a kind repeat within a single, independent block.

    Then the number of tensors that wait from one block to the next does not matter: in a longer run, they only arrive
    earlier. In lock-step, passes wait for time-steps instead of tensors, so blocks are always independent.
    """
    phase = phases(columns)
    passes = of_kinds(columns["kind"], PASSES)
    block_of = np.full(int(phase.max()) + 1, NONE)
    for number, block in enumerate(blocks):
        rows = slice(block.first, block.last)
        stage_phases = np.unique(phase[rows][passes[rows]])
        if (block_of[stage_phases] != NONE).any():
            return False
        block_of[stage_phases] = number
    if (block_of[phase[passes]] == NONE).any():
        return False
    cause, ipu = columns["cause"], columns["ipu"]
    is_released = passes & (cause != NONE) & (ipu != ipu[cause]) & (phase[cause] >= 0)
    is_inside = block_of[phase[is_released]] == block_of[phase[cause[is_released]]]
    return has_time_steps or bool(is_inside.all())


def _blocks(
    columns: Mapping[str, npt.NDArray[np.int64]], marks: Sequence[Mark], recur: Callable[[Mark, Mark], bool]
) -> Iterator[Repeat]:
    """Yield blocks of a single copy whose spans repeat in the next period."""
    for begin_mark, end_mark in islice(periods(marks, recur), _MOST_TRIED_PERIODS):
        begin, end = begin_mark.cycle, end_mark.cycle
        counts = {
            "micro_batches": end_mark.micro_batch - begin_mark.micro_batch,
            "executions": end_mark.execution - begin_mark.execution,
        }
        for time_steps in _time_steps(columns, begin, end):
            block = block_between(columns, begin, end, time_steps=time_steps, **counts)
            if block is not None and not _reaches_back(columns, block):
                yield block


def _reaches_back(columns: Mapping[str, npt.NDArray[np.int64]], block: Repeat) -> bool:
    """Whether a row after a block has a cause before the block's previous copy.

    Slow tensors are an example. In a longer run, the row of this cause would be unknown. A block of several periods
    reaches far enough.
    """
    cause = columns["cause"][block.last :]
    return bool(((cause != NONE) & (cause < 2 * block.first - block.last)).any())


def _time_steps(columns: Mapping[str, npt.NDArray[np.int64]], begin: int, end: int) -> Iterator[int]:
    """Yield the difference in time-steps between spans from ``begin`` and from ``end`` on."""
    first, last = np.searchsorted(columns["start"], [begin, end]).tolist()
    step = columns["time_step"]
    numbered_rows = np.flatnonzero(step[first:last] != NONE)
    if len(numbered_rows) and last + int(numbered_rows[0]) < len(step):
        yield int(step[last + numbered_rows[0]] - step[first + numbered_rows[0]])
