"""Simulate a run under disturbances that begin and end, and leave out the repeating parts between these changes.

A block is the part of a run from a state of the machine until this state repeats. Its copies then follow one another
until a disturbance begins or ends: a change. Copies that end before the next change are left out. After the first copy,
the shorter run continues with times shifted by the left-out cycles (:class:`Skip`), and reaches the change in the same
state as the whole run. With a single execution, micro-batches are left out; with several, whole executions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from ipusim.hardware.system import System
from ipusim.machine.disturbances import changes
from ipusim.machine.recurrence import Mark
from ipusim.machine.repeating import short_run
from ipusim.machine.run_changes import Skip
from ipusim.pipeline.instructions import NONE
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs
from ipusim.runs.assemble.limits import SIMULATED_EXECUTIONS
from ipusim.runs.assemble.short_counts import nearest_count, short_counts
from ipusim.runs.job import Job
from ipusim.runs.marked import marked_run
from ipusim.timeline.repeats import Repeat, block_between
from ipusim.timeline.timeline import Timeline

#: Maximum number of short runs simulated for a whole run.
_MOST_RUNS: Final = 40
#: Copies of a block that are kept: two copies with equal states, and a further copy.
_COPIES: Final = 3


@dataclass
class BetweenChanges:
    """Run under changing disturbances, with the parts left out so far.

    Attributes:
        job: simulated Job.
        price: function that returns the costs and the system of this Job, or of this Job with other counts.
        executions: number of pipeline executions.
        in_a_row: number of executions after which the run may repeat.
        skips: numbers of left-out cycles, with the cycles at which the shorter run leaves them out.
        blocks: pairs of a repeated block, as rows of the shorter run's Timeline, and its number of left-out copies.
    """

    job: Job
    price: Callable[[Job], tuple[Costs, System]]
    executions: int = 1
    in_a_row: int = 1
    skips: list[Skip] = field(default_factory=list)
    blocks: list[tuple[Repeat, int]] = field(default_factory=list)

    def timeline(self) -> Timeline | None:
        """Return the Timeline of the whole run; None if no part can be left out."""
        change_cycles = changes(self.price(self.job)[1])
        total, count = self._whole_count, next(self._counts(), 0)
        if not change_cycles or not count or self.job.with_counts is None:
            return None
        segments = deque[tuple[int, int | None]]([*pairwise((0, *change_cycles)), (change_cycles[-1], None)])
        for _ in range(_MOST_RUNS):
            plan, marks, timeline = self._simulate(count)
            cycles = [mark.cycle for mark in marks]
            skipped_cycles = sum(skip.cycles for skip in self.skips)
            # Segments without repeated blocks do not change the run, so the next segment needs no new simulation.
            while True:
                begin, end = (
                    segments[0][0] - skipped_cycles,
                    None if segments[0][1] is None else segments[0][1] - skipped_cycles,
                )
                segment_marks = marks[bisect_left(cycles, begin) : None if end is None else bisect_left(cycles, end)]
                block, left_out = next(self._blocks(segment_marks, plan, timeline, end, total - count), (None, 0))
                if block is not None or end is None or not cycles or cycles[-1] < end or count == total:
                    break
                segments.popleft()
            if block is not None and end is not None:
                self.skips.append(Skip(int(timeline.start[block.first]) + block.cycles, left_out * block.cycles))
                self.blocks.append((block, left_out))
                total -= left_out * self._length(block)
                segments.popleft()
            elif block is not None and (total - count) % self._length(block):
                count = nearest_count(count, total, math.lcm(self._step, self._length(block)))
            elif block is not None or count == total:
                self.blocks += [] if block is None else [(block, left_out)]
                return self._whole_timeline(timeline)
            else:
                count = total if 2 * count > total else nearest_count(2 * count, total, self._step)
        return None

    @property
    def _whole_count(self) -> int:
        """Number of micro-batches, or executions, of the run."""
        return self.executions if self.executions > 1 else self.job.program.shape.micro_batches

    @property
    def _step(self) -> int:
        """Number of which every number of left-out micro-batches, or executions, is a multiple."""
        return self.in_a_row if self.executions > 1 else self.job.schedule.step(self.job.program.shape)

    def _length(self, block: Repeat) -> int:
        """Return the number of micro-batches, or executions, in a copy of a block."""
        return block.executions or block.length

    def _counts(self) -> Iterator[int]:
        """Yield numbers of micro-batches, or executions, for a first short run. A short run needs no shorter one."""
        if self.executions == 1:
            if not self.job.schedule.in_phases:  # each phase would leave out different micro-batches
                yield from short_counts(self.job.schedule, self.job.program.shape)
        elif 2 * (least_count := SIMULATED_EXECUTIONS * self.in_a_row) <= self.executions:
            yield nearest_count(least_count, self.executions, self.in_a_row)

    def _simulate(self, count: int) -> tuple[Plan, list[Mark], Timeline]:
        """Simulate ``count`` micro-batches or executions; return Plan, states at block starts, and Timeline."""
        shape, schedule = self.job.program.shape, self.job.schedule
        assert self.job.with_counts is not None
        counts = range(0)
        if self.executions == 1:
            assert schedule.period is not None
            short_job = self.job.with_counts(count, self.job.program.repeat_count)
            counts = range(0, count, schedule.period(shape))
        elif self.executions == self.job.program.repeat_count:
            short_job = self.job.with_counts(shape.micro_batches, count)
        else:
            short_job = self.job.whole
        costs, system = self.price(short_job)
        system = replace(system, disturbances=(*system.disturbances, *self.skips))
        timeline, marks = marked_run(short_job, costs, system, 1 if self.executions == 1 else count, counts)
        return short_job.plan, [mark for mark in marks if (mark.micro_batch == NONE) == (self.executions > 1)], timeline

    def _blocks(
        self, marks: Sequence[Mark], plan: Plan, timeline: Timeline, end: int | None, most: int
    ) -> Iterator[tuple[Repeat, int]]:
        """Yield blocks between recorded states, each with the number of its copies to leave out; early blocks first.

        The left-out copies end before cycle ``end``. Together they have at most ``most`` micro-batches, or executions.
        """
        for part in (4, 2, 1) if end is not None else (1,):
            first_marks = marks[: len(marks) // part]
            if len(first_marks) < _COPIES:
                continue
            if self.executions == 1:
                blocks = short_run(timeline, first_marks, plan, needs_inner=True, outer_length=0).inner
            else:
                outer_block = short_run(
                    timeline, first_marks, plan, needs_inner=False, outer_length=self.in_a_row
                ).outer
                blocks = () if outer_block is None else (outer_block,)
            for block in blocks:
                length = self._length(block)
                if end is None:
                    yield block, most // length
                    continue
                begin = int(timeline.start[block.first]) + _COPIES * block.cycles
                last_end = int(timeline.end[timeline.start < begin].max())
                left_out = min((end - max(begin, last_end)) // block.cycles, most // length)
                left_out -= left_out % (math.lcm(self._step, length) // length)
                if left_out > 0:
                    yield block, left_out

    def _whole_timeline(self, timeline: Timeline) -> Timeline | None:
        """Return the whole run's Timeline, given the shorter run; None if the blocks do not repeat exactly."""
        for block, _ in self.blocks:
            begin = int(timeline.start[block.first])
            numbers = {key: getattr(block, key) for key in ("micro_batches", "time_steps", "executions")}
            if block_between(timeline.columns, begin, begin + block.cycles, **numbers) != block:
                return None
        folded = timeline.fold_copies([block for block, _ in self.blocks]) if self.blocks else None
        if folded is None:
            return None
        short_info, program = timeline.info, self.job.program
        left_out_time_steps = sum(
            left_out * block.time_steps for block, left_out in self.blocks if not block.executions
        )
        info = replace(
            short_info,
            count=program.shape.micro_batches,
            time_steps=short_info.time_steps + left_out_time_steps,
            executions=self.executions,
            executions_per_step=program.repeat_count,
        )
        repeats = [
            repeat._replace(times=1 + left_out)
            for repeat, (_, left_out) in zip(folded.repeats, self.blocks, strict=True)
        ]
        return folded.contiguous().repeat_blocks(info, repeats)
