"""Bound the time of all Orders of a program from below: longest path of passes, busiest IPU or IPU pair.

A letter stands for a pass of a stage over its next micro-batch, a turn for the number of a micro-batch (see ``tasks``).

Passes of other IPUs determine the earliest begin (head) and the least remaining time (tail) of every pass of an IPU.
With preemption, running the ready pass with the longest tail first is optimal (J. R. Jackson's rule; the bound of
J. Carlier, The one-machine sequencing problem, EJOR 1982). The same bound holds for copies from one IPU to another:
simultaneous copies over shared links arrive no sooner. The bound ignores memory, and links shared by several pairs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Final

from ipusim.api import pipelines
from ipusim.app.synthesize.tasks import Tasks

#: Passes that need a later stage's gradient, except in the last stage.
_BACKWARD: Final = (pipelines.Pass.BACKWARD, pipelines.Pass.INPUT_GRADIENT)
#: Maximum number of micro-batches for which every pass is a separate piece of work.
_MOST_PIECES: Final = 512
#: Piece of work: cycles before the piece can begin (head), its cycles, and least cycles after its end (tail).
_Piece = tuple[int, int, int]


@dataclass(frozen=True)
class Bound:
    """Lower bound on the cycles of all Orders of a program's passes.

    Attributes:
        cycles: bound on the pipeline, plus the IPUs' weight updates if included in the tasks.
        name: IPU or copies behind the bound; empty for the longest path.
        busy, head, tail: cycles of the IPU's work or copies, cycles before their begin, and remaining cycles, waits
            included.
        states: number of pipeline states visited by an exhaustive search; 0 without one.
    """

    cycles: int
    name: str = ""
    busy: int = 0
    head: int = 0
    tail: int = 0
    states: int = 0

    @property
    def words(self) -> str:
        """Binding limit in words."""
        if self.states:
            return "the passes of all IPUs together, from an exhaustive search of their Orders"
        if not self.name:
            return "the longest path of dependent passes"
        return (
            f"{self.name}: {self.head:,} cycles before the first pass, {self.busy:,} of work, and at least "
            f"{self.tail:,} of waiting or of the last passes of other IPUs"
        )


def lower_bound(tasks: Tasks, count: int) -> Bound:
    """Return a lower bound on the cycles of ``count`` micro-batches, and its cause.

    For large counts, passes of a letter form a single piece: faster to compute, and hardly weaker.
    """
    tasks = _relaxed(tasks)
    turns, times = (count, 1) if count <= _MOST_PIECES else (1, count)
    heads, comes = earliest(tasks, turns)
    tails, way_tails = _tails(tasks, turns)
    # If IPUs meet, every time-step ends with a meeting, and the longest chain of passes gives the number of steps.
    meetings = 0 if tasks.meeting is None else tasks.meeting * _steps(tasks, count)
    pieces: dict[str, list[_Piece]] = {}
    for letter, (word, way) in enumerate(zip(tasks.word_of, tasks.ways, strict=True)):
        parts = zip(heads[letter], [tasks.cycles[letter]] * turns, tails[letter], strict=True)
        pieces.setdefault(f"IPU {tasks.ipus[word]}", []).extend(parts)
        if way is not None and way.cycles:
            source, target = tasks.pairs[way.pair]
            begins = [come - way.cycles for come in comes[letter]]
            copies = zip(begins, [way.cycles] * turns, way_tails[letter], strict=True)
            pieces.setdefault(f"copies from IPU {source} to IPU {target}", []).extend(copies)
    best = Bound(max(sum(piece) for pieces_of_one in pieces.values() for piece in pieces_of_one) + meetings)
    for name, jobs in pieces.items():
        least = meetings + (_preempted(jobs) if times == 1 else _bound_in_turns(jobs, times))
        if least > best.cycles:
            busy, first = times * sum(cycles for _, cycles, _ in jobs), min(head for head, _, _ in jobs)
            best = Bound(least, name, busy, first, least - busy - first)
    return best


def _relaxed(tasks: Tasks) -> Tasks:
    """Let the halves of a backward pass take at most the cycles of the whole pass, as stages may run either."""
    cycles = list(tasks.cycles)
    for stage, whole in enumerate(tasks.whole):
        first, second = tasks.parts(pipelines.Pass.BACKWARD, stage)
        cycles[first] = min(tasks.cycles[first], whole)
        cycles[second] = min(tasks.cycles[first] + tasks.cycles[second], whole) - cycles[first]
    return replace(tasks, cycles=tuple(cycles))


def _bound_in_turns(pieces: Sequence[_Piece], times: int) -> int:
    """Return the least end of pieces repeated ``times`` times, given their heads and tails."""
    sums = [
        (head, tail, sum(cycles for begin, cycles, job_tail in pieces if begin >= head and job_tail >= tail))
        for head, _, _ in pieces
        for _, _, tail in pieces
    ]
    return max(head + tail + times * cycles for head, tail, cycles in sums)


def _order(tasks: Tasks) -> list[int]:
    """Sort letters topologically by needs."""
    graph = {letter: [need for need, _ in needs] for letter, needs in enumerate(tasks.needs)}
    return [*TopologicalSorter(graph).static_order()]


def earliest(tasks: Tasks, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return earliest begins of ``count`` passes of each letter on otherwise idle IPUs, and arrivals of copies."""
    heads = [[0] * count for _ in tasks.letters]
    comes = [[0] * count for _ in tasks.letters]
    for letter in _order(tasks):
        own_heads, cycles, way = heads[letter], tasks.cycles[letter], tasks.ways[letter]
        for turn in range(count):
            begin = own_heads[turn - 1] + cycles if turn else 0
            for need, is_apart in tasks.needs[letter]:
                begin = max(begin, comes[need][turn] if is_apart else heads[need][turn] + tasks.cycles[need])
            own_heads[turn] = begin
            if way is not None:
                last_copy = comes[letter][turn - 1] if turn else 0
                comes[letter][turn] = max(begin + cycles + way.lead, last_copy) + way.cycles
    return heads, comes


def _tails(tasks: Tasks, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return least cycles after passes on otherwise idle IPUs, and after their copies."""
    tails = [[tasks.updates[word]] * count for word in tasks.word_of]
    way_tails = [[0] * count for _ in tasks.letters]
    for letter in reversed(_order(tasks)):
        own_tails, cycles, way = tails[letter], tasks.cycles[letter], tasks.ways[letter]
        for turn in reversed(range(count)):
            if way is not None:
                if turn + 1 < count:
                    way_tails[letter][turn] = max(way_tails[letter][turn], way_tails[letter][turn + 1] + way.cycles)
                own_tails[turn] = max(own_tails[turn], way.lead + way.cycles + way_tails[letter][turn])
            if turn + 1 < count:
                own_tails[turn] = max(own_tails[turn], own_tails[turn + 1] + cycles)
            for need, is_apart in tasks.needs[letter]:
                least = way_tails if is_apart else tails
                least[need][turn] = max(least[need][turn], own_tails[turn] + cycles)
    return tails, way_tails


def _steps(tasks: Tasks, count: int) -> int:
    """Return the minimum number of time-steps: a micro-batch's life, plus one per further micro-batch.

    A pass runs at least one time-step after its inputs. Exceptions are the last stage's backward pass and the halves of
    a whole backward pass, which may share a time-step.
    """
    depth = [0] * len(tasks.letters)
    for letter in _order(tasks):
        needs = tasks.needs[letter]
        is_joined = (len(needs) == 1 and tasks.letters[letter][0] in _BACKWARD) or (
            bool(tasks.whole) and tasks.letters[letter][0] == pipelines.Pass.WEIGHT_GRADIENT
        )
        depth[letter] = max((depth[need] for need, _ in needs), default=0) + (not is_joined)
    return max(depth) + count - 1


def _preempted(jobs: Sequence[_Piece]) -> int:
    """Return the least end of jobs (head, cycles, tail) on one IPU with preemption."""
    pending = sorted(jobs, reverse=True)
    ready: list[list[int]] = []
    time = end = 0
    while pending or ready:
        if not ready:
            time = max(time, pending[-1][0])
        while pending and pending[-1][0] <= time:
            _, cycles, tail = pending.pop()
            heapq.heappush(ready, [-tail, cycles])
        job = ready[0]
        stop = time + job[1] if not pending else min(time + job[1], pending[-1][0])
        job[1] -= stop - time
        time = stop
        if not job[1]:
            end = max(end, time - job[0])
            heapq.heappop(ready)
    return end
