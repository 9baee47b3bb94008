"""Compute the times of words (sequences of IPUs' passes).

Passes run as early as possible, in whole cycles, as if no pairs of IPUs shared links. In lock-step, IPUs meet after
every time-step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, sub

from ipusim.app.synthesize.grid import Grid
from ipusim.app.synthesize.tasks import Tasks, Words


@dataclass(frozen=True, eq=False)
class Outcome:
    """Times of words.

    Attributes:
        makespan: cycles from the first pass to the last end of a pass or weight update.
        cost: longest time from an IPU's first pass to its last, in cycles; 0 if IPUs meet.
        ends: end of every pass by letter and micro-batch; empty if IPUs meet.
        arrivals: arrival of every pass's output on another IPU, by letter and micro-batch; empty if IPUs meet.
    """

    makespan: int
    cost: int
    ends: Sequence[Sequence[int]]
    arrivals: Sequence[Sequence[int]]


def evaluate(tasks: Tasks, words: Words) -> Outcome | None:
    """Return the times of ``words``; None for deadlocks and illegal time-steps."""
    if tasks.meeting_cycles is None:
        return _evaluate_point_to_point(tasks, words)
    grid = Grid.from_words(tasks, words)
    return None if grid is None else Outcome(grid.cycles, 0, (), ())


def _evaluate_point_to_point(tasks: Tasks, words: Words) -> Outcome | None:
    cycles, sends = tasks.cycles, tasks.sends
    ends: list[list[int]] = [[] for _ in tasks.letters]
    arrivals: list[list[int]] = [[] for _ in tasks.letters]
    sources = [[arrivals[need] if is_apart else ends[need] for need, is_apart in needs] for needs in tasks.needs]
    indices, times, busy_until = [0] * len(words), [0] * len(words), [0] * len(tasks.pairs)
    pending = list(range(len(words)))
    while pending:
        blocked = []
        progress = False
        for number in pending:
            word, index, time = words[number], indices[number], times[number]
            length = len(word)
            while index < length:
                letter = word[index]
                letter_ends = ends[letter]
                turn = len(letter_ends)
                begin = time
                for source_ends in sources[letter]:
                    if len(source_ends) <= turn:
                        break
                    if source_ends[turn] > begin:  # noqa: PLR1730 - a call of max takes as long as the rest of the loop
                        begin = source_ends[turn]
                else:
                    time = begin + cycles[letter]
                    letter_ends.append(time)
                    send = sends[letter]
                    if send is not None:
                        pair, lead, busy = send
                        busy_until[pair] = arrival = max(time + lead, busy_until[pair]) + busy
                        arrivals[letter].append(arrival)
                    index += 1
                    continue
                break
            if index != indices[number]:
                progress = True
                indices[number], times[number] = index, time
            if index < length:
                blocked.append(number)
        if blocked and not progress:
            return None
        pending = blocked
    begins = (ends[word[0]][0] - cycles[word[0]] for word in words)
    return Outcome(max(map(add, times, tasks.update_cycles)), max(map(sub, times, begins)), ends, arrivals)
