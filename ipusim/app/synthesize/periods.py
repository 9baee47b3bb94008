"""Insert periods into words, for any count of micro-batches; a period contains every letter once.

A word is the sequence of an IPU's passes; a letter is a pass of a stage over its next micro-batch.

The words are cut at a common moment. A period inserted at the cut shifts the rest of every word by a micro-batch
without further changes. Therefore any period that runs by itself can be inserted any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from ipusim.api import pipelines
from ipusim.app.synthesize.evaluate import evaluate
from ipusim.app.synthesize.grid import Grid, Layout
from ipusim.app.synthesize.memory import Memory
from ipusim.app.synthesize.tasks import BAR, Tasks, Words
from ipusim.app.synthesize.time_steps import improve_grid

#: Maximum number of tried cuts; the best cut is kept.
_CUTS: Final = 12
#: Maximum number of moves in a search for a period of time-steps.
_MOST_MOVES: Final = 2000


@dataclass(frozen=True, eq=False)
class Periodic:
    """Words with one period per IPU.

    Attributes:
        tasks: letters of the words.
        heads, periods, tails: letters before, in and after the period, by IPU.
        least_count: number of micro-batches of the words if no period is inserted.
    """

    tasks: Tasks
    heads: Words
    periods: Words
    tails: Words
    least_count: int

    def words(self, count: int) -> Words:
        """Return the words of ``count`` micro-batches, at least ``least_count``."""
        parts = zip(self.heads, self.periods, self.tails, strict=True)
        return tuple(head + period * (count - self.least_count) + tail for head, period, tail in parts)

    def makespan(self, count: int) -> int | None:
        """Return the cycles of ``count`` micro-batches; None for impossible words.

        For counts far above ``least_count``, the cycles are extrapolated linearly.
        """
        base_count, step = self.least_count + 4 * self.tasks.word_count, self.tasks.word_count
        if count <= base_count + step:
            outcome = evaluate(self.tasks, self.words(count))
            return None if outcome is None else outcome.makespan
        ends = [evaluate(self.tasks, self.words(count)) for count in (base_count, base_count + step)]
        if ends[0] is None or ends[1] is None:
            return None
        return ends[1].makespan + -(-(ends[1].makespan - ends[0].makespan) * (count - base_count - step) // step)


def with_periods(
    memory: Memory, words: Words, count: int, target_count: int, go_on: Callable[[], bool]
) -> Periodic | None:
    """Add periods to ``words`` of ``count`` micro-batches; None if no tried period fits in memory.

    Args:
        memory: memory of the IPUs.
        words: words to cut.
        count: micro-batches of the words.
        target_count: number of micro-batches whose time is minimised.
        go_on: whether time is left for improvements.
    """
    tasks = memory.tasks
    large_count = max(target_count, count + 4 * tasks.word_count)
    best: tuple[int, Periodic] | None = None
    if tasks.meeting_cycles is not None:
        return _in_time_steps(memory, words, count, large_count, go_on)
    for parts in _cuts(tasks, words, count):
        cycles = _cycles(memory, parts, large_count)
        if cycles is not None and (best is None or cycles < best[0]):
            best = cycles, parts
    if best is None:
        return None
    random = Random(0)
    movable_words = [word for word in range(tasks.word_count) if len(tasks.letters_by_word[word]) > 1]
    while movable_words and go_on():
        cycles, parts = best
        word = random.choice(movable_words)
        period = list(parts.periods[word])
        letter = period.pop(random.randrange(len(period)))
        period.insert(random.randrange(len(period) + 1), letter)
        periods = (*parts.periods[:word], tuple(period), *parts.periods[word + 1 :])
        candidate = replace(parts, periods=periods)
        new_cycles = _cycles(memory, candidate, large_count)
        if new_cycles is not None and new_cycles <= cycles:
            best = new_cycles, candidate
    return best[1]


def _in_time_steps(
    memory: Memory, words: Words, count: int, large_count: int, go_on: Callable[[], bool]
) -> Periodic | None:
    """Add a period of whole time-steps to words in lock-step; None if no tried period fits in memory."""
    tasks = memory.tasks
    # The memory of a period depends on the passes around it, so it is checked later, with these passes.
    unlimited_memory = replace(memory, limits=[None] * tasks.word_count, micro_batches=None)
    candidates: list[tuple[int, int, Periodic]] = []
    for seed, (heads, tails, begins) in enumerate(_between_time_steps(tasks, words)):
        layout = Layout(tasks, begins, [turn + 1 for turn in begins])
        grid = improve_grid(unlimited_memory, Grid(layout, layout.earliest()), 0, _at_most(_MOST_MOVES, go_on), seed)
        for steps in (grid, Grid(layout, layout.earliest())):
            periods = tuple(steps.word(number, keeps_end=True) for number in range(tasks.word_count))
            parts = Periodic(tasks, heads, periods, tails, count)
            cycles = _cycles(memory, parts, large_count)
            if cycles is not None:
                candidates.append((cycles, len(candidates), parts))
    return min(candidates)[2] if candidates else None


def _at_most(moves: int, go_on: Callable[[], bool]) -> Callable[[], bool]:
    """Limit ``go_on`` to a number of moves."""
    moves_left = iter(range(moves))
    return lambda: go_on() and next(moves_left, None) is not None


def _between_time_steps(tasks: Tasks, words: Words) -> Iterator[tuple[Words, Words, list[int]]]:
    """Yield cuts between two time-steps: heads, tails, and number of each letter's micro-batches before the cut."""
    ends = [[index + 1 for index, letter in enumerate(word) if letter == BAR] for word in words]
    length = max(map(len, ends))
    for step in range(0, length + 1, max(-(-length // _CUTS), 1)):
        heads, tails = [], []
        begins = [0] * len(tasks.letters)
        for word, step_ends in zip(words, ends, strict=True):
            index = len(word) if step > len(step_ends) else step_ends[step - 1] if step else 0
            heads.append(word[:index] + (BAR,) * (step - word[:index].count(BAR)))
            tails.append(word[index:])
            for letter in word[:index]:
                for part in tasks.parts(*tasks.passes[letter]) if letter != BAR else ():
                    begins[part] += 1
        yield tuple(heads), tuple(tails), begins


def _cycles(memory: Memory, parts: Periodic, count: int) -> int | None:
    """Return the cycles of words with periods; None for impossible or oversized words."""
    tasks = memory.tasks
    two_periods = parts.words(parts.least_count + 2)
    # In lock-step, makespan() checks the order.
    runs_in_order = tasks.meeting_cycles is not None or all(map(tasks.is_ordered, two_periods))
    if not runs_in_order or not all(memory.fits(word, two_periods[word]) for word in range(tasks.word_count)):
        return None
    return parts.makespan(count)


def _cuts(tasks: Tasks, words: Words, count: int) -> Iterator[Periodic]:
    """Yield words cut at the begin of a micro-batch; the following letters form periods."""
    outcome = evaluate(tasks, words)
    assert outcome is not None, "the words run"
    begins = [[end - tasks.cycles[letter] for end in ends] for letter, ends in enumerate(outcome.ends)]
    order = sorted(range(len(tasks.letters)), key=lambda letter: (begins[letter][0], letter))
    step = -(-count // _CUTS)
    for turn in range(step // 2, count, step):
        moment = begins[order[0]][turn]
        heads, periods, tails = [], [], []
        for word in words:
            turns = [0] * len(tasks.letters)
            index = 0
            for letter in word:
                if begins[letter][turns[letter]] >= moment:
                    break
                turns[letter] += 1
                index += 1
            heads.append(word[:index])
            tails.append(word[index:])
            word_letters = tasks.letters_by_word[tasks.word_of[word[0]]]
            periods.append(
                tuple(dict.fromkeys((*word[index:], *(letter for letter in order if letter in word_letters))))
            )
        yield Periodic(tasks, tuple(heads), tuple(periods), tuple(tails), count)
        in_order_periods = [tuple(letter for letter in order if letter in period) for period in periods]
        yield Periodic(tasks, tuple(heads), tuple(in_order_periods), tuple(tails), count)


def without_periods(tasks: Tasks, words: Words, count: int) -> Periodic:
    """Return words without periods, for a single count."""
    empty_words = tuple(() for _ in words)
    return Periodic(tasks, words, empty_words, empty_words, count)


def letters_of(periodic: Periodic) -> dict[int, tuple[str, str, str]]:
    """Format the letters of every IPU before, in and after its period."""
    tasks = periodic.tasks
    names = {number: f"{pipelines.Pass(kind).letter}{stage}" for number, (kind, stage) in enumerate(tasks.passes)}
    names[BAR] = "|"

    def text(word: Sequence[int]) -> str:
        return " ".join(names[letter] for letter in word)

    parts = zip(tasks.ipus, periodic.heads, periodic.periods, periodic.tails, strict=True)
    return {ipu: (text(head), text(period), text(tail)) for ipu, head, period, tail in parts}
