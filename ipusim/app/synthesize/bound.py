"""What no Order can beat: the longest path through a program's passes, and its busiest IPU with its head and tail.

Either counts the passes alone. On an IPU the earliest moment at which each of its passes may begin and the least that
must follow it are known from the passes of all others; if it could put any of them off for a while, it would run the
one with the most behind it first, and that is the best that it could do (J. R. Jackson's rule, with preemption; the
bound of J. Carlier, The one-machine sequencing problem, EJOR 1982). Memory and contention are left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ipusim.api import pipelines
from ipusim.app.synthesize.tasks import Tasks

#: Passes that need a later stage's, where there is one.
_BACKWARD: Final = (pipelines.Pass.BACKWARD, pipelines.Pass.INPUT_GRADIENT)


@dataclass(frozen=True)
class Bound:
    """The least cycles of any Order of a program's passes.

    Attributes:
        cycles: of the pipeline, without its weight update.
        ipu: the IPU that needs so long; None where the longest path does.
        busy, head, tail: cycles that this IPU works, those before it can begin, and the rest, behind its last pass or
            while it has to wait.
    """

    cycles: int
    ipu: int | None = None
    busy: int = 0
    head: int = 0
    tail: int = 0

    @property
    def words(self) -> str:
        """What binds."""
        if self.ipu is None:
            return "the longest path of passes that need each other"
        return (
            f"IPU {self.ipu}: {self.head:,} cycles before its first pass, {self.busy:,} of work, and at least "
            f"{self.tail:,} in which it waits or others end"
        )


def lower_bound(tasks: Tasks, count: int) -> Bound:
    """Return the least cycles in which ``count`` micro-batches can run, and what needs so long."""
    heads, tails = _heads(tasks, count), _tails(tasks, count)
    # Where IPUs meet, each of these steps ends with a meeting: as many as the longest chain of passes has.
    meetings = 0 if tasks.meeting is None else tasks.meeting * _steps(tasks, count)
    places = range(len(tasks.letters))
    path = max(heads[each][turn] + tasks.cycles[each] + tails[each][turn] for each in places for turn in range(count))
    best = Bound(path + meetings)
    for number, letters in enumerate(tasks.of_word):
        jobs = [(heads[each][turn], tasks.cycles[each], tails[each][turn]) for each in letters for turn in range(count)]
        least = _preempted(jobs) + meetings
        if least > best.cycles:
            busy, head = sum(cycles for _, cycles, _ in jobs), min(head for head, _, _ in jobs)
            best = Bound(least, tasks.ipus[number], busy, head, least - busy - head)
    return best


def _order(tasks: Tasks) -> list[int]:
    """Return the letters, each behind those that it needs."""
    found: list[int] = []
    while len(found) < len(tasks.letters):
        found += [
            letter
            for letter, needs in enumerate(tasks.needs)
            if letter not in found and all(need in found for need, _ in needs)
        ]
    return found


def _heads(tasks: Tasks, count: int) -> list[list[int]]:
    """Return when each letter's passes may begin at the earliest, if its IPU ran nothing else."""
    heads = [[0] * count for _ in tasks.letters]
    for letter in _order(tasks):
        own, cycles = heads[letter], tasks.cycles[letter]
        for turn in range(count):
            begins = [heads[need][turn] + tasks.cycles[need] + lag for need, lag in tasks.needs[letter]]
            own[turn] = max([0, *begins, *([own[turn - 1] + cycles] if turn else [])])
    return heads


def _tails(tasks: Tasks, count: int) -> list[list[int]]:
    """Return the least cycles that follow each letter's passes, if its IPU ran nothing else."""
    tails = [[0] * count for _ in tasks.letters]
    for letter in reversed(_order(tasks)):
        own, cycles = tails[letter], tasks.cycles[letter]
        for turn in reversed(range(count)):
            if turn + 1 < count:
                own[turn] = max(own[turn], own[turn + 1] + cycles)
            for need, lag in tasks.needs[letter]:
                tails[need][turn] = max(tails[need][turn], own[turn] + cycles + lag)
    return tails


def _steps(tasks: Tasks, count: int) -> int:
    """Return the time-steps that there are at least: a micro-batch's life, and one for each micro-batch behind it.

    A pass comes a time-step after what it needs, but for the last stage's backward pass, which may share its own.
    """
    depth = [0] * len(tasks.letters)
    for letter in _order(tasks):
        needs = tasks.needs[letter]
        together = len(needs) == 1 and tasks.letters[letter][0] in _BACKWARD
        depth[letter] = max((depth[need] for need, _ in needs), default=0) + (not together)
    return max(depth) + count - 1


def _preempted(jobs: Sequence[tuple[int, int, int]]) -> int:
    """Return the least end of jobs (head, cycles, tail) on one IPU that may put off any of them for a while."""
    waiting = sorted(jobs, reverse=True)
    ready: list[list[int]] = []
    now = end = 0
    while waiting or ready:
        if not ready:
            now = max(now, waiting[-1][0])
        while waiting and waiting[-1][0] <= now:
            _, cycles, tail = waiting.pop()
            heapq.heappush(ready, [-tail, cycles])
        job = ready[0]
        until = now + job[1] if not waiting else min(now + job[1], waiting[-1][0])
        job[1] -= until - now
        now = until
        if not job[1]:
            end = max(end, now - job[0])
            heapq.heappop(ready)
    return end
