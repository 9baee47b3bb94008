"""Evaluate words: passes run as early as possible, in whole cycles, with no links shared between pairs of IPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, sub

from ipusim.app.synthesize.grid import Grid, Layout
from ipusim.app.synthesize.tasks import Tasks, Words


@dataclass(frozen=True, eq=False)
class Outcome:
    """Times of words.

    Attributes:
        makespan: cycles from the first pass to the end of the last, or of a later weight update of an IPU.
        cost: longest time from an IPU's first pass to its last, in cycles; 0 if IPUs meet.
        ends: end of every pass by letter and micro-batch; empty if IPUs meet.
        comes: arrival of every pass's output on another IPU, by letter and micro-batch; empty if IPUs meet.
    """

    makespan: int
    cost: int
    ends: Sequence[Sequence[int]]
    comes: Sequence[Sequence[int]]


def evaluate(tasks: Tasks, words: Words) -> Outcome | None:
    """Return the times of ``words``; None for deadlocks or missed meetings."""
    if tasks.meeting is None:
        return _free(tasks, words)
    forwards = max(word.count(tasks.outfed) for word in words)
    layout = Layout.of_count(tasks, forwards)
    steps = layout.steps_of_words(words)
    return None if steps is None else Outcome(Grid(layout, steps).cycles, 0, (), ())


def _free(tasks: Tasks, words: Words) -> Outcome | None:
    cycles, ways = tasks.cycles, tasks.ways
    ends: list[list[int]] = [[] for _ in tasks.letters]
    comes: list[list[int]] = [[] for _ in tasks.letters]
    sources = [[comes[need] if away else ends[need] for need, away in needs] for needs in tasks.needs]
    at, now, busy_until = [0] * len(words), [0] * len(words), [0] * len(tasks.pairs)
    waiting = list(range(len(words)))
    while waiting:
        still = []
        moved = False
        for number in waiting:
            word, index, time = words[number], at[number], now[number]
            length = len(word)
            while index < length:
                letter = word[index]
                own = ends[letter]
                turn = len(own)
                begin = time
                for of in sources[letter]:
                    if len(of) <= turn:
                        break
                    if of[turn] > begin:  # noqa: PLR1730 - a call of max takes as long as all the rest
                        begin = of[turn]
                else:
                    time = begin + cycles[letter]
                    own.append(time)
                    way = ways[letter]
                    if way is not None:
                        pair, lead, busy = way
                        busy_until[pair] = come = max(time + lead, busy_until[pair]) + busy
                        comes[letter].append(come)
                    index += 1
                    continue
                break
            if index != at[number]:
                moved = True
                at[number], now[number] = index, time
            if index < length:
                still.append(number)
        if still and not moved:
            return None
        waiting = still
    begins = (ends[word[0]][0] - cycles[word[0]] for word in words)
    return Outcome(max(map(add, now, tasks.updates)), max(map(sub, now, begins)), ends, comes)
