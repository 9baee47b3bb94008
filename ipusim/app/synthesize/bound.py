"""What no Order can beat: the longest path through a program's passes, and its busiest IPU, or pair of IPUs.

On an IPU the earliest moment at which each of its passes may begin and the least that must follow it are known from the
passes of all others; if it could put any of them off for a while, it would run the one with the most behind it first,
and that is the best that it could do (J. R. Jackson's rule, with preemption; the bound of J. Carlier, The one-machine
sequencing problem, EJOR 1982). The same holds of what one IPU sends another: copies that share links at the same time
are no sooner there. Memory is left out, and links that several pairs share.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Final

from ipusim.api import pipelines
from ipusim.app.synthesize.tasks import Tasks

#: Passes that need a later stage's, where there is one.
_BACKWARD: Final = (pipelines.Pass.BACKWARD, pipelines.Pass.INPUT_GRADIENT)
#: Micro-batches up to which each is a piece of its own.
_APART: Final = 512
#: Earliest begin, cycles, and the least that follows.
_Piece = tuple[int, int, int]


@dataclass(frozen=True)
class Bound:
    """The least cycles of any Order of a program's passes.

    Attributes:
        cycles: of the pipeline, with the IPUs' weight updates where its tasks have any.
        what: the IPU, or the copies, that need so long; empty where the longest path does.
        busy, head, tail: cycles that it works, those before it can begin, and the rest, behind its last piece of work
            or while it has to wait.
        states: of the pipeline that an exhaustive search looked at; 0 without one.
    """

    cycles: int
    what: str = ""
    busy: int = 0
    head: int = 0
    tail: int = 0
    states: int = 0

    @property
    def words(self) -> str:
        """The binding limit, in words."""
        if self.states:
            return "the passes of all IPUs together, as an exhaustive search of their Orders found"
        if not self.what:
            return "the longest path of passes that need each other"
        return (
            f"{self.what}: {self.head:,} cycles before the first, {self.busy:,} of work, and at least {self.tail:,} of "
            "waiting or of what others end with"
        )


def lower_bound(tasks: Tasks, count: int) -> Bound:
    """Return the least cycles in which ``count`` micro-batches can run, and what needs so long.

    Of very many the passes of a letter are taken together, which costs what one of them does and is hardly less.
    """
    tasks = _relaxed(tasks)
    turns, times = (count, 1) if count <= _APART else (1, count)
    heads, comes = _heads(tasks, turns)
    tails, behind = _tails(tasks, turns)
    # Where IPUs meet, each of these steps ends with a meeting: as many as the longest chain of passes has.
    meetings = 0 if tasks.meeting is None else tasks.meeting * _steps(tasks, count)
    pieces: dict[str, list[_Piece]] = {}
    for letter, (word, way) in enumerate(zip(tasks.word_of, tasks.ways, strict=True)):
        of = zip(heads[letter], [tasks.cycles[letter]] * turns, tails[letter], strict=True)
        pieces.setdefault(f"IPU {tasks.ipus[word]}", []).extend(of)
        if way is not None and way.cycles:
            source, target = tasks.pairs[way.pair]
            begins = [come - way.cycles for come in comes[letter]]
            sent = zip(begins, [way.cycles] * turns, behind[letter], strict=True)
            pieces.setdefault(f"copies from IPU {source} to IPU {target}", []).extend(sent)
    best = Bound(max(sum(piece) for of in pieces.values() for piece in of) + meetings)
    for what, own in pieces.items():
        least = meetings + (_preempted(own) if times == 1 else _together(own, times))
        if least > best.cycles:
            busy, first = times * sum(cycles for _, cycles, _ in own), min(head for head, _, _ in own)
            best = Bound(least, what, busy, first, least - busy - first)
    return best


def _relaxed(tasks: Tasks) -> Tasks:
    """Return tasks whose halves together take no more than a whole backward pass, as stages may run either."""
    cycles = list(tasks.cycles)
    for stage, whole in enumerate(tasks.whole):
        first, second = tasks.parts(pipelines.Pass.BACKWARD, stage)
        cycles[first] = min(tasks.cycles[first], whole)
        cycles[second] = min(tasks.cycles[first] + tasks.cycles[second], whole) - cycles[first]
    return replace(tasks, cycles=tuple(cycles))


def _together(pieces: Sequence[_Piece], times: int) -> int:
    """Return the least end of pieces that are each there so many ``times``, none before its head or behind its tail."""
    every = [
        (head, tail, sum(cycles for begin, cycles, after in pieces if begin >= head and after >= tail))
        for head, _, _ in pieces
        for _, _, tail in pieces
    ]
    return max(head + tail + times * cycles for head, tail, cycles in every)


def _order(tasks: Tasks) -> list[int]:
    """Return the letters, each behind those that it needs."""
    graph = {letter: [need for need, _ in needs] for letter, needs in enumerate(tasks.needs)}
    return [*TopologicalSorter(graph).static_order()]


def earliest(tasks: Tasks, count: int) -> list[list[int]]:
    """Return of each letter the earliest begins of its passes over ``count`` micro-batches."""
    return _heads(tasks, count)[0]


def _heads(tasks: Tasks, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the earliest begin of each letter's passes, if its IPU ran nothing else, and of what they send the end."""
    heads = [[0] * count for _ in tasks.letters]
    comes = [[0] * count for _ in tasks.letters]
    for letter in _order(tasks):
        own, cycles, way = heads[letter], tasks.cycles[letter], tasks.ways[letter]
        for turn in range(count):
            begin = own[turn - 1] + cycles if turn else 0
            for need, away in tasks.needs[letter]:
                begin = max(begin, comes[need][turn] if away else heads[need][turn] + tasks.cycles[need])
            own[turn] = begin
            if way is not None:
                before = comes[letter][turn - 1] if turn else 0
                comes[letter][turn] = max(begin + cycles + way.lead, before) + way.cycles
    return heads, comes


def _tails(tasks: Tasks, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the least cycles that follow each letter's passes, if its IPU ran nothing else, and its copies."""
    tails = [[tasks.updates[word]] * count for word in tasks.word_of]
    behind = [[0] * count for _ in tasks.letters]
    for letter in reversed(_order(tasks)):
        own, cycles, way = tails[letter], tasks.cycles[letter], tasks.ways[letter]
        for turn in reversed(range(count)):
            if way is not None:
                if turn + 1 < count:
                    behind[letter][turn] = max(behind[letter][turn], behind[letter][turn + 1] + way.cycles)
                own[turn] = max(own[turn], way.lead + way.cycles + behind[letter][turn])
            if turn + 1 < count:
                own[turn] = max(own[turn], own[turn + 1] + cycles)
            for need, away in tasks.needs[letter]:
                least = behind if away else tails
                least[need][turn] = max(least[need][turn], own[turn] + cycles)
    return tails, behind


def _steps(tasks: Tasks, count: int) -> int:
    """Return the time-steps that there are at least: a micro-batch's life, and one for each micro-batch behind it.

    A pass comes a time-step after what it needs, but for the last stage's backward pass and for both halves of a whole
    one, which may share a time-step.
    """
    depth = [0] * len(tasks.letters)
    for letter in _order(tasks):
        needs = tasks.needs[letter]
        together = (len(needs) == 1 and tasks.letters[letter][0] in _BACKWARD) or (
            bool(tasks.whole) and tasks.letters[letter][0] == pipelines.Pass.WEIGHT_GRADIENT
        )
        depth[letter] = max((depth[need] for need, _ in needs), default=0) + (not together)
    return max(depth) + count - 1


def _preempted(jobs: Sequence[_Piece]) -> int:
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
