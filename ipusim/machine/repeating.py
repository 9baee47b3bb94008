"""A run that repeats itself, simulated in part: a shorter run, and which of its spans happen how often."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from ipusim.machine.recurrence import Lists, Mark, periods
from ipusim.pipeline.instructions import NONE
from ipusim.pipeline.plan import Plan
from ipusim.timeline.repeats import Repeat, block_between, with_copies
from ipusim.timeline.timeline import Timeline, TimelineInfo

#: Places in an execution, and among executions, at which a period is looked for, the last ones first.
_TRIED = 64


@dataclass(frozen=True)
class ShortRun:
    """A run of few micro-batches and executions, and where it repeats itself.

    Attributes:
        timeline: of what was simulated.
        inner: a block of one copy in each execution, where one was looked for.
        outer: one of whole executions; None where none was looked for.
        within: whether each execution repeats itself, or need not.
        across: whether executions do, or need not.
    """

    timeline: Timeline
    inner: tuple[Repeat, ...] = ()
    outer: Repeat | None = None
    within: bool = True
    across: bool = True

    @property
    def micro_batches(self) -> int:
        """What the number of micro-batches that are left out is a multiple of."""
        return math.lcm(*(each.micro_batches for each in self.inner))

    def executions_over(self, left_out: int) -> int:
        """Return how many of the executions that are left out are no whole block."""
        return left_out % self.outer.executions if self.outer is not None else 0

    def stretched(self, info: TimelineInfo) -> Timeline:
        """Return the longer run that ``info`` is of, in which blocks of this one happen several times."""
        short, left_out = self.timeline.info, info.count - self.timeline.info.count
        inner = self.inner if left_out else ()
        once = self.timeline.folded(self._with_copies(inner))
        if once is None:
            once = self.timeline.folded(inner)
        assert once is not None, "blocks that happen once have no copies to leave out"
        repeats = [repeat._replace(times=repeat.times + left_out // repeat.micro_batches) for repeat in once.repeats]
        more = info.executions - short.executions
        if self.outer is not None and more:
            first, last = np.searchsorted(once.blocks.positions(), [self.outer.first, self.outer.last]).tolist()
            cycles = self.outer.cycles
            cycles += sum(
                left_out // repeat.micro_batches * repeat.cycles for repeat in repeats if first <= repeat.first < last
            )
            times = 1 + more // self.outer.executions
            repeats.append(Repeat(first, last, times, cycles, 0, 0, self.outer.executions))
        repeats.sort(key=lambda repeat: (repeat.first, -repeat.last))
        return once.contiguous().stretched(info, repeats)

    def _with_copies(self, inner: Sequence[Repeat]) -> list[Repeat]:
        """Return the blocks of executions with their copies that are rows, as many micro-batches of each execution."""
        found = [with_copies(self.timeline.columns, each) for each in inner]
        folded = min(((each.times - 1) * each.micro_batches for each in found), default=0)
        folded -= folded % self.micro_batches
        return [each._replace(times=1 + folded // each.micro_batches) for each in found]


def short_run(
    timeline: Timeline,
    marks: Sequence[Mark],
    plan: Plan,
    *,
    within: bool,
    across: int,
) -> ShortRun:
    """Return where a run repeats itself, or that it does not in each execution, or from execution to execution.

    Args:
        timeline: of the run.
        marks: that were noted in it.
        plan: of the run.
        within: whether each execution has to repeat itself.
        across: of how many executions those consist that have to repeat themselves; 0 for none.
    """
    lists = Lists(plan, timeline.info.replicas)
    columns = timeline.columns
    inner = []
    for execution in range(timeline.info.executions) if within else ():
        of = [mark for mark in marks if mark.execution == execution and mark.micro_batch != NONE]
        found = next(_found(columns, of, lists.alike), None)
        if found is None:
            return ShortRun(timeline, within=False)
        inner.append(found)
    outer = None
    if across:
        begun = [mark for mark in marks if mark.micro_batch == NONE and mark.execution % across == 0]
        outer = next(_found(columns, begun, lists.alike), None)
        if outer is None:
            return ShortRun(timeline, across=False)
    return ShortRun(timeline, tuple(inner), outer)


def _found(
    columns: Mapping[str, npt.NDArray[np.int64]], marks: Sequence[Mark], alike: Callable[[Mark, Mark], bool]
) -> Iterator[Repeat]:
    """Yield blocks of one copy whose spans are those of the next period, too, of the first periods that there are."""
    for period in islice(periods(marks, alike), _TRIED):
        begin, end = period.first.cycle, period.second.cycle
        further = {"micro_batches": period.micro_batches, "executions": period.executions}
        for time_steps in _time_steps(columns, begin, end):
            block = block_between(columns, begin, end, time_steps=time_steps, **further)
            if block is not None:
                yield block


def _time_steps(columns: Mapping[str, npt.NDArray[np.int64]], begin: int, end: int) -> Iterator[int]:
    """Yield by how many time-steps the spans from cycle ``end`` on are further on than those from ``begin`` on."""
    first, last = np.searchsorted(columns["start"], [begin, end]).tolist()
    step = columns["time_step"]
    numbered = np.flatnonzero(step[first:last] != NONE)
    if len(numbered) and last + int(numbered[0]) < len(step):
        yield int(step[last + numbered[0]] - step[first + numbered[0]])
