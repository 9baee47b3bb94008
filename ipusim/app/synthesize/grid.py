"""Assign passes to the time-steps of lock-step, and compute their cycles.

A time-step lasts as long as its slowest IPU, and a merged copy follows. The cycles therefore depend on time-steps of
passes, not only on their order. If the two halves of a backward pass (for input and weight gradients) share a
time-step, they run as one whole pass. A program is the code of a stage's pass; an IPU runs a program at most once per
time-step. A letter is a pass of a stage over its next micro-batch, a turn the number of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ipusim.api import pipelines
from ipusim.app.synthesize.tasks import BAR, Tasks, Words

#: Kind of the weight-gradient half of a backward pass.
_WEIGHTS: Final = pipelines.Pass.WEIGHT_GRADIENT
#: Kinds of passes in order of execution within a time-step.
_RANKS: Final = (_WEIGHTS, pipelines.Pass.BACKWARD, pipelines.Pass.INPUT_GRADIENT, pipelines.Pass.FORWARD)


class Layout:
    """Passes of some micro-batches, and their minimum distances in time-steps.

    Attributes:
        tasks: letters and their cycles.
        letter_of: letter of every pass.
        number_of: pass of every (letter, micro-batch).
        needs, users: predecessors and successors of each pass, with minimum distance in time-steps.
        partner: second half of a first half, and first half of a second half; -1 for other passes.
    """

    def __init__(self, tasks: Tasks, begins: Sequence[int], ends: Sequence[int]) -> None:
        """Take each letter's micro-batches from ``begins`` up to ``ends``; earlier micro-batches have run."""
        self.tasks = tasks
        keys = [(letter, turn) for letter in range(len(begins)) for turn in range(begins[letter], ends[letter])]
        self.letter_of = [letter for letter, _ in keys]
        self.number_of = {key: number for number, key in enumerate(keys)}
        self.needs: list[list[tuple[int, int]]] = [[] for _ in keys]
        self.users: list[list[tuple[int, int]]] = [[] for _ in keys]
        self.partner = [-1] * len(keys)
        for number, (letter, turn) in enumerate(keys):
            for need, _ in tasks.needs[letter]:
                source = self.number_of.get((need, turn))
                if source is not None:
                    self.needs[number].append((source, tasks.gap_between(need, letter)))
                    self.users[source].append((number, tasks.gap_between(need, letter)))
                    if tasks.letters[letter][0] == _WEIGHTS:
                        self.partner[number], self.partner[source] = source, number

    @classmethod
    def of_count(cls, tasks: Tasks, count: int) -> Layout:
        """Return all passes of ``count`` micro-batches."""
        return cls(tasks, [0] * len(tasks.letters), [count] * len(tasks.letters))

    def program(self, number: int, steps: Sequence[int]) -> tuple[int, int] | None:
        """Return a pass's program as letter and time-step; None for the weight-gradient half of a whole backward
        pass."""
        letter, partner = self.letter_of[number], self.partner[number]
        if partner < 0 or steps[partner] != steps[number]:
            return letter, steps[number]
        kind, stage = self.tasks.letters[letter]
        return None if kind == _WEIGHTS else (len(self.tasks.letters) + stage, steps[number])

    def is_legal(self, steps: Sequence[int]) -> bool:
        """Tell whether passes keep distances, and no program runs twice in a time-step."""
        if any(steps[need] + gap > steps[number] for number, needs in enumerate(self.needs) for need, gap in needs):
            return False
        programs = [program for number in range(len(steps)) if (program := self.program(number, steps)) is not None]
        return len(set(programs)) == len(programs)

    def earliest(self) -> list[int]:
        """Return the earliest time-step of every pass, if backward passes run whole."""
        steps = [-1] * len(self.letter_of)
        occupied: set[tuple[int, int]] = set()
        pending = list(range(len(steps)))
        while pending:
            for number in pending:
                needs = self.needs[number]
                if all(steps[need] >= 0 for need, _ in needs):
                    step = max((steps[need] + gap for need, gap in needs), default=0)
                    while (self.letter_of[number], step) in occupied:
                        step += 1
                    steps[number] = step
                    occupied.add((self.letter_of[number], step))
            pending = [number for number in pending if steps[number] < 0]
        return steps

    def steps_of_order(self, order: pipelines.Order) -> list[int] | None:
        """Return the time-step of every pass in an Order of equal passes; None for an illegal Order."""
        if order.emitted is None:
            times = pipelines.earliest_time_steps(order, one_at_a_time=False)
        else:
            times = order.table[:, 0]
        steps = [-1] * len(self.letter_of)
        for step, (_, kind, stage, turn) in zip(times.tolist(), order.passes.tolist(), strict=True):
            for letter in self.tasks.parts(kind, stage):
                steps[self.number_of[letter, turn]] = step
        return steps if min(steps, default=0) >= 0 and self.is_legal(steps) else None

    def steps_of_words(self, words: Words) -> list[int] | None:
        """Return the time-step of every pass in words with bars; None for invalid words."""
        tasks = self.tasks
        steps = [-1] * len(self.letter_of)
        counts = [0] * len(tasks.letters)
        half_turns: list[list[int]] = [[] for _ in tasks.letters]
        for word in words:
            step = 0
            for letter in word:
                if letter == BAR:
                    step += 1
                    continue
                kind, stage = tasks.passes[letter]
                first, *second = tasks.parts(kind, stage)
                turn = counts[first]
                counts[first] += 1
                if kind == pipelines.Pass.INPUT_GRADIENT:
                    half_turns[stage].append(turn)
                elif kind == _WEIGHTS:
                    if turn >= len(half_turns[stage]):
                        return None
                    turn = half_turns[stage][turn]
                if any(counts[need] <= turn for need in tasks.needs_in_word[first]):
                    return None
                for part in (first, *second):
                    steps[self.number_of[part, turn]] = step
        return steps if self.is_legal(steps) else None


class Grid:
    """Assignment of passes to time-steps.

    Attributes:
        layout: the passes.
        steps: time-step of every pass.
        length: number of time-steps.
        cycles: total cycles of time-steps and meetings.
    """

    def __init__(self, layout: Layout, steps: Sequence[int]) -> None:
        """Take legal ``steps``, and drop time-steps without passes."""
        number_of = {step: number for number, step in enumerate(sorted(set(steps)))}
        self.layout, self.steps, self.length = layout, [number_of[step] for step in steps], len(number_of)
        tasks = layout.tasks
        self._loads = [[0] * tasks.word_count for _ in range(self.length + 1)]
        self._passes_by_step = [0] * self.length
        numbers = range(len(self.steps))
        for number in numbers:
            self._add(number, 1)
        self._add_whole(numbers, 1)
        self._programs = {layout.program(number, self.steps) for number in numbers}
        self._peaks = [max(load) for load in self._loads]
        self.cycles = sum(self._peaks) + self.length * (tasks.meeting_cycles or 0)

    @classmethod
    def from_words(cls, tasks: Tasks, words: Words) -> Grid | None:
        """Return the grid of words with bars; None for impossible words."""
        layout = Layout.of_count(tasks, max(word.count(tasks.outfeed_letter) for word in words))
        steps = layout.steps_of_words(words)
        return None if steps is None else cls(layout, steps)

    def _add(self, number: int, sign: int) -> None:
        """Add a pass to its time-step, or remove it for ``sign`` -1."""
        tasks, letter, step = self.layout.tasks, self.layout.letter_of[number], self.steps[number]
        self._passes_by_step[step] += sign
        self._loads[step][tasks.word_of[letter]] += sign * tasks.cycles[letter]
        if letter == tasks.outfeed_letter:
            self._loads[step + 1][tasks.word_of[letter]] += sign * tasks.outfeed_cycles

    def _add_whole(self, numbers: Iterable[int], sign: int) -> None:
        """Add the difference between whole backward passes among ``numbers`` and their halves."""
        layout, tasks = self.layout, self.layout.tasks
        for number in numbers:
            partner, letter = layout.partner[number], layout.letter_of[number]
            if partner > number and self.steps[partner] == self.steps[number]:
                added_cycles = tasks.whole_cycles[tasks.letters[letter][1]] - tasks.cycles[letter]
                added_cycles -= tasks.cycles[layout.letter_of[partner]]
                self._loads[self.steps[number]][tasks.word_of[letter]] += sign * added_cycles

    @property
    def has_gap(self) -> bool:
        """Whether a time-step has become empty."""
        return not all(self._passes_by_step)

    def window(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Return the first and last legal time-step of passes moved together."""
        steps, needs, users = self.steps, self.layout.needs, self.layout.users
        firsts = [steps[need] + gap for number in numbers for need, gap in needs[number] if need not in numbers]
        lasts = [steps[user] - gap for number in numbers for user, gap in users[number] if user not in numbers]
        return max(firsts, default=0), min(lasts, default=self.length - 1)

    def move(self, numbers: Sequence[int], step: int) -> bool:
        """Move passes to another time-step of their window, unless a program would run twice.

        Args:
            numbers: one pass, or both halves of a whole backward pass.
            step: new time-step.

        Returns:
            True if the passes were moved.
        """
        layout, steps = self.layout, self.steps
        moved_numbers = {*numbers, *(layout.partner[number] for number in numbers)} - {-1}
        old_steps = [steps[number] for number in numbers]
        old_programs = {layout.program(number, steps) for number in moved_numbers}
        for number in numbers:
            steps[number] = step
        programs = {layout.program(number, steps) for number in moved_numbers}
        repeated_programs = (programs - old_programs - {None}) & self._programs
        for number, old in zip(numbers, old_steps, strict=True):
            steps[number] = old
        if repeated_programs:
            return False
        self._programs -= old_programs
        self._programs |= programs
        self._add_whole(moved_numbers, -1)
        for number in numbers:
            self._add(number, -1)
            steps[number] = step
            self._add(number, 1)
        self._add_whole(moved_numbers, 1)
        for load_step in {step, step + 1, *old_steps, *(old + 1 for old in old_steps)}:
            peak = max(self._loads[load_step])
            self.cycles += peak - self._peaks[load_step]
            self._peaks[load_step] = peak
        return True

    def word(self, number: int, *, keeps_end: bool = False) -> tuple[int, ...]:
        """Return an IPU's word, with bars between time-steps, and at the end if ``keeps_end``.

        Within a time-step, passes that free memory come first: weight-gradient halves, then backward passes.
        """
        layout, tasks = self.layout, self.layout.tasks
        letters_by_step: list[list[tuple[float, int]]] = [[] for _ in range(self.length)]
        for pass_, step in enumerate(self.steps):
            program = layout.program(pass_, self.steps)
            if program is not None and tasks.word_of[layout.letter_of[pass_]] == number:
                has_user_in_step = any(self.steps[user] == step for user, gap in layout.users[pass_] if not gap)
                kind = tasks.passes[program[0]][0]
                rank = _RANKS.index(kind) if kind != pipelines.Pass.FORWARD or not has_user_in_step else 0.5
                letters_by_step[step].append((rank, program[0]))
        word = [letter for letters in letters_by_step for letter in (*(letter for _, letter in sorted(letters)), BAR)]
        while word and word[-1] == BAR and not keeps_end:
            word.pop()
        return tuple(word)

    @property
    def words(self) -> Words:
        """Words of all IPUs."""
        return tuple(self.word(number) for number in range(self.layout.tasks.word_count))


def words_in_time_steps(tasks: Tasks, order: pipelines.Order) -> Words | None:
    """Return the words of an Order in lock-step, with bars; None for an illegal Order.

    An Order without time-steps gets the earliest possible time-steps.
    """
    layout = Layout.of_count(tasks, order.shape.micro_batches)
    steps = layout.steps_of_order(order)
    return None if steps is None else Grid(layout, steps).words
