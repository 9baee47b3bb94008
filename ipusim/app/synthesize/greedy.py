"""Construct words (sequences of IPUs' passes) greedily.

The IPU that can begin first runs its most urgent pass, as far as memory allows.

Backward passes, or their input-gradient halves, come first, then forward passes; weight-gradient halves fill idle time:
the rule of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3.1. Their search also tries halves that
delay other passes a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import itemgetter

from ipusim.api import pipelines
from ipusim.app.synthesize.bound import earliest_begins
from ipusim.app.synthesize.tasks import Tasks, Words

#: A pass that can begin: begin, urgency, and letter.
_Candidate = tuple[int, tuple[int, int], int]


def greedy(
    tasks: Tasks,
    count: int,
    room: Sequence[float],
    stashed: Sequence[int],
    rests: Sequence[int],
    patience: float,
    *,
    avoids_delay: bool,
) -> Words | None:
    """Return words of ``count`` micro-batches; None if memory blocks every IPU.

    Args:
        tasks: the letters.
        count: number of micro-batches.
        room: capacity of each word's IPU, in the unit of ``stashed`` and ``rests``.
        stashed: size of a micro-batch in each stage, from start of forward pass to end of backward pass.
        rests: remaining size until the end of the weight-gradient half.
        patience: fraction of a weight-gradient half that an IPU may wait for a more urgent pass.
        avoids_delay: whether IPUs avoid forward passes during which their first backward pass could begin.
    """
    state = _State(tasks, count, stashed, rests)
    if avoids_delay:
        state.await_first_backward()
    while any(left for left in state.left):
        best: tuple[int, int, int] | None = None
        for word in range(tasks.word_count):
            choice = state.next(word, room[word], patience)
            if choice is not None and (best is None or choice < best[:2]):
                best = (*choice, word)
        if best is None:
            return None
        state.run(best[1], best[0], best[2])
    return tuple(map(tuple, state.words))


class _State:
    """Progress of every IPU."""

    def __init__(self, tasks: Tasks, count: int, stashed: Sequence[int], rests: Sequence[int]) -> None:
        self.tasks, self.count, self._stashed, self._rests = tasks, count, stashed, rests
        self.left = [count * len(letters) for letters in tasks.letters_by_word]
        self.words: list[list[int]] = [[] for _ in tasks.ipus]
        self._ends: list[list[int]] = [[] for _ in tasks.letters]
        self._times = [0] * tasks.word_count
        self._stashed_now = [0] * tasks.word_count
        #: Latest end of forward passes, as long as an IPU's first backward pass is missing.
        self._limits = [inf] * tasks.word_count
        self._halved = {stage for kind, stage in tasks.letters if kind == pipelines.Pass.WEIGHT_GRADIENT}
        self._copy_delay = [0 if send is None else send.lead + send.cycles for send in tasks.sends]
        #: Cached results of :meth:`next` by IPU, until invalidated.
        self._next: dict[int, tuple[int, int] | None] = {}
        self._dependent_words: list[set[int]] = [set() for _ in tasks.letters]
        for letter, needs in enumerate(tasks.needs):
            for need, _ in needs:
                self._dependent_words[need].add(tasks.word_of[letter])

    def await_first_backward(self) -> None:
        """Forbid forward passes that could delay their IPU's first backward pass."""
        heads, _ = earliest_begins(self.tasks, 1)
        for word, letters in enumerate(self.tasks.letters_by_word):
            kinds = [(self.tasks.letters[letter][0], letter) for letter in letters]
            self._limits[word] = min(
                (heads[turn][0] for kind, turn in kinds if kind != pipelines.Pass.FORWARD), default=inf
            )

    def next(self, word: int, room: float, patience: float) -> tuple[int, int] | None:
        """Return the begin and letter of an IPU's next pass; None if blocked."""
        if word not in self._next:
            self._next[word] = self._choose(word, room, patience)
        return self._next[word]

    def _choose(self, word: int, room: float, patience: float) -> tuple[int, int] | None:
        time = self._times[word]
        urgent: list[_Candidate] = []
        filling: list[_Candidate] = []
        for letter in self.tasks.letters_by_word[word]:
            begin = self._begin(letter, time)
            if begin is None:
                continue
            kind, stage = self.tasks.letters[letter]
            end = begin + self.tasks.cycles[letter]
            if kind == pipelines.Pass.WEIGHT_GRADIENT:
                filling.append((begin, (0, len(self._ends[letter])), letter))
            elif kind != pipelines.Pass.FORWARD:
                urgent.append((begin, (0, stage), letter))
            elif self._stashed_now[word] + self._stashed[stage] <= room and end <= self._limits[word]:
                urgent.append((begin, (1, -stage), letter))
        first = min((begin for begin, _, _ in urgent), default=None)
        if filling:
            begin, _, letter = min(filling, key=itemgetter(0, 1))
            if first is None or (first > begin and first >= begin + patience * self.tasks.cycles[letter]):
                return begin, letter
        if first is None:
            return None
        return first, min((item for item in urgent if item[0] == first), key=itemgetter(1))[2]

    def _begin(self, letter: int, time: int) -> int | None:
        turn = len(self._ends[letter])
        if turn == self.count:
            return None
        begin = time
        for need, is_apart in self.tasks.needs[letter]:
            need_ends = self._ends[need]
            if len(need_ends) <= turn:
                return None
            begin = max(begin, need_ends[turn] + (self._copy_delay[need] if is_apart else 0))
        return begin

    def run(self, letter: int, begin: int, word: int) -> None:
        """Run a pass, and update the IPU."""
        kind, stage = self.tasks.letters[letter]
        self._times[word] = begin + self.tasks.cycles[letter]
        self._ends[letter].append(self._times[word])
        self.words[word].append(letter)
        self.left[word] -= 1
        if kind == pipelines.Pass.FORWARD:
            self._stashed_now[word] += self._stashed[stage]
        elif kind == pipelines.Pass.WEIGHT_GRADIENT:
            self._stashed_now[word] -= self._rests[stage]
        else:
            self._limits[word] = inf
            self._stashed_now[word] -= self._stashed[stage] - (self._rests[stage] if stage in self._halved else 0)
        for word_number in (word, *self._dependent_words[letter]):
            self._next.pop(word_number, None)
