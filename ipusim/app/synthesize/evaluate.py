"""How long words take: passes as early as their needs allow, in whole cycles, where pairs of IPUs share no links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from ipusim.app.synthesize.tasks import Tasks, Words


@dataclass(frozen=True, eq=False)
class Outcome:
    """When words run.

    Attributes:
        makespan: cycles from the first pass to the end of the last, or of the weight update of an IPU that ends later.
        ends: of each letter, when its pass over each micro-batch ends; in time-steps where IPUs meet.
        comes: of each letter, when what it has made is with another IPU.
    """

    makespan: int
    ends: Sequence[Sequence[int]]
    comes: Sequence[Sequence[int]]


def evaluate(tasks: Tasks, words: Words) -> Outcome | None:
    """Return when ``words`` run; None where IPUs would wait for each other for ever."""
    return _free(tasks, words) if tasks.meeting is None else _in_time_steps(tasks, words, tasks.meeting)


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
    return Outcome(max(map(add, now, tasks.updates)), ends, comes)


def _in_time_steps(tasks: Tasks, words: Words, meeting: int) -> Outcome | None:
    """Return when words run in the time-steps that an Order without any gets: each pass as early as its needs allow."""
    needs, cycles = tasks.needs, tasks.cycles
    ends: list[list[int]] = [[] for _ in tasks.letters]
    at, now = [0] * len(words), [0] * len(words)
    loads: list[list[int]] = [[] for _ in words]
    waiting = list(range(len(words)))
    while waiting:
        still = []
        moved = False
        for number in waiting:
            word, index, step = words[number], at[number], now[number]
            load = loads[number]
            while index < len(word):
                letter = word[index]
                own = ends[letter]
                turn = len(own)
                come = step
                for need, _ in needs[letter]:
                    of = ends[need]
                    if len(of) <= turn:
                        come = -1
                        break
                    come = max(come, of[turn] + 1)
                if come < 0:
                    break
                step = max(come, own[-1] + 1) if own else come
                load += [0] * (step + 1 - len(load))
                load[step] += cycles[letter]
                own.append(step)
                index += 1
            if index != at[number]:
                moved = True
                at[number], now[number] = index, step
            if index < len(word):
                still.append(number)
        if still and not moved:
            return None
        waiting = still
    steps = max(map(len, loads))
    longest = [max(load[step] if step < len(load) else 0 for load in loads) for step in range(steps)]
    return Outcome(sum(longest) + steps * meeting, ends, ends)
