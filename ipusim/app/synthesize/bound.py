"""Compute a lower bound on the time of all Orders of a program, from longest path, busiest IPU and busiest copies.

A letter stands for a pass of a stage over its next micro-batch, a turn for the number of a micro-batch (see ``tasks``).

Passes of other IPUs determine a pass's head (earliest begin) and tail (minimum time after the pass).
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
#: Piece of work: cycles before the piece can begin (head), its cycles, and minimum cycles after its end (tail).
_Piece = tuple[int, int, int]


@dataclass(frozen=True)
class Bound:
    """Lower bound on the cycles of all Orders of a program's passes.

    Attributes:
        cycles: bound on the pipeline, plus the IPUs' weight updates if included in the tasks.
        name: IPU or copies behind the bound; empty for the longest path.
        busy: cycles of the IPU's work, or of the copies.
        head: cycles before they begin.
        tail: remaining cycles, waits included.
        states: number of pipeline states visited by an exhaustive search; 0 for bounds from other sources.
    """

    cycles: int
    name: str = ""
    busy: int = 0
    head: int = 0
    tail: int = 0
    states: int = 0

    @property
    def words(self) -> str:
        """What limits the time, in words."""
        if self.states:
            return "the passes of all IPUs together, from an exhaustive search of their Orders"
        if not self.name:
            return "the longest path of dependent passes"
        begin = f"{self.name}: {self.head:,} cycles before its first pass"
        if not self.tail:
            return f"{begin}, and {self.busy:,} of work"
        return (
            f"{begin}, {self.busy:,} of work, and at least {self.tail:,} more for its waits and for the last passes of "
            "other IPUs"
        )


def lower_bound(tasks: Tasks, count: int) -> Bound:
    """Return a lower bound on the cycles of ``count`` micro-batches, and its cause.

    For large counts, all passes of a letter form a single piece, for speed; the bound is hardly weaker.
    """
    tasks = _relax_halves(tasks)
    turn_count, times = (count, 1) if count <= _MOST_PIECES else (1, count)
    heads, arrivals = earliest_begins(tasks, turn_count)
    tails, send_tails = _tails(tasks, turn_count)
    # If IPUs meet, every time-step ends with a meeting, and the longest chain of passes gives the number of steps.
    meetings = 0 if tasks.meeting_cycles is None else tasks.meeting_cycles * _minimum_steps(tasks, count)
    pieces: dict[str, list[_Piece]] = {}
    for letter, (word, send) in enumerate(zip(tasks.word_of, tasks.sends, strict=True)):
        letter_pieces = zip(heads[letter], [tasks.cycles[letter]] * turn_count, tails[letter], strict=True)
        pieces.setdefault(f"IPU {tasks.ipus[word]}", []).extend(letter_pieces)
        if send is not None and send.cycles:
            source, target = tasks.pairs[send.pair]
            begins = [arrival - send.cycles for arrival in arrivals[letter]]
            first_cycles = send.cycles if times == 1 else send.least_cycles
            cycles = [first_cycles, *[send.least_cycles] * (turn_count - 1)]
            copies = zip(begins, cycles, send_tails[letter], strict=True)
            pieces.setdefault(f"copies from IPU {source} to IPU {target}", []).extend(copies)
    best = Bound(max(sum(piece) for pieces_of_one in pieces.values() for piece in pieces_of_one) + meetings)
    for name, jobs in pieces.items():
        bound = meetings + (_preemptive_end(jobs) if times == 1 else _bound_in_turns(jobs, times))
        if bound > best.cycles:
            busy, first = times * sum(cycles for _, cycles, _ in jobs), min(head for head, _, _ in jobs)
            best = Bound(bound, name, busy, first, bound - busy - first)
    return best


def _relax_halves(tasks: Tasks) -> Tasks:
    """Let the two halves of a backward pass take no more cycles than the whole pass, which a stage may run instead."""
    cycles = list(tasks.cycles)
    for stage, whole_cycles in enumerate(tasks.whole_cycles):
        first, second = tasks.parts(pipelines.Pass.BACKWARD, stage)
        cycles[first] = min(tasks.cycles[first], whole_cycles)
        cycles[second] = min(tasks.cycles[first] + tasks.cycles[second], whole_cycles) - cycles[first]
    return replace(tasks, cycles=tuple(cycles))


def _bound_in_turns(pieces: Sequence[_Piece], times: int) -> int:
    """Return a lower bound on the end of pieces that repeat ``times`` times each."""
    sums = [
        (head, tail, sum(cycles for begin, cycles, job_tail in pieces if begin >= head and job_tail >= tail))
        for head, _, _ in pieces
        for _, _, tail in pieces
    ]
    return max(head + tail + times * cycles for head, tail, cycles in sums)


def _topological_order(tasks: Tasks) -> list[int]:
    """Sort letters topologically: each letter follows all needed letters."""
    graph = {letter: [need for need, _ in needs] for letter, needs in enumerate(tasks.needs)}
    return [*TopologicalSorter(graph).static_order()]


def earliest_begins(tasks: Tasks, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the earliest begins of ``count`` passes of each letter on otherwise idle IPUs, and arrivals of copies."""
    heads = [[0] * count for _ in tasks.letters]
    arrivals = [[0] * count for _ in tasks.letters]
    for letter in _topological_order(tasks):
        letter_heads, cycles, send = heads[letter], tasks.cycles[letter], tasks.sends[letter]
        for turn in range(count):
            begin = letter_heads[turn - 1] + cycles if turn else 0
            for need, is_apart in tasks.needs[letter]:
                begin = max(begin, arrivals[need][turn] if is_apart else heads[need][turn] + tasks.cycles[need])
            letter_heads[turn] = begin
            if send is not None:
                after_last_copy = arrivals[letter][turn - 1] + send.least_cycles if turn else 0
                arrivals[letter][turn] = max(begin + cycles + send.lead + send.cycles, after_last_copy)
    return heads, arrivals


def _tails(tasks: Tasks, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return minimum cycles after passes on otherwise idle IPUs, and after their copies."""
    tails = [[tasks.update_cycles[word]] * count for word in tasks.word_of]
    send_tails = [[0] * count for _ in tasks.letters]
    for letter in reversed(_topological_order(tasks)):
        letter_tails, cycles, send = tails[letter], tasks.cycles[letter], tasks.sends[letter]
        for turn in reversed(range(count)):
            if send is not None:
                if turn + 1 < count:
                    later_copies = send_tails[letter][turn + 1] + send.least_cycles
                    send_tails[letter][turn] = max(send_tails[letter][turn], later_copies)
                letter_tails[turn] = max(letter_tails[turn], send.lead + send.cycles + send_tails[letter][turn])
            if turn + 1 < count:
                letter_tails[turn] = max(letter_tails[turn], letter_tails[turn + 1] + cycles)
            for need, is_apart in tasks.needs[letter]:
                need_tails = send_tails if is_apart else tails
                need_tails[need][turn] = max(need_tails[need][turn], letter_tails[turn] + cycles)
    return tails, send_tails


def _minimum_steps(tasks: Tasks, count: int) -> int:
    """Return the minimum number of time-steps: all steps of the first micro-batch, plus one per further micro-batch.

    A pass runs at least one time-step after its inputs. Exceptions are the last stage's backward pass and the halves of
    a whole backward pass, which may share a time-step.
    """
    depth = [0] * len(tasks.letters)
    for letter in _topological_order(tasks):
        needs = tasks.needs[letter]
        is_joined = (len(needs) == 1 and tasks.letters[letter][0] in _BACKWARD) or (
            bool(tasks.whole_cycles) and tasks.letters[letter][0] == pipelines.Pass.WEIGHT_GRADIENT
        )
        depth[letter] = max((depth[need] for need, _ in needs), default=0) + (not is_joined)
    return max(depth) + count - 1


def _preemptive_end(jobs: Sequence[_Piece]) -> int:
    """Return the minimum end of jobs (head, cycles, tail) on one IPU with preemption."""
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
