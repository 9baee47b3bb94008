"""Words made pass by pass: whichever IPU can begin first runs what others wait for, as far as its memory allows.

A backward pass, or its half for the input, goes first, then a forward pass, and the halves for the weights where an IPU
would wait: the rule of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3.1, whose search tries whether
they may also come where they delay others a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import itemgetter

from ipusim.api import pipelines
from ipusim.app.synthesize.bound import earliest
from ipusim.app.synthesize.tasks import Tasks, Words

#: A pass that can begin: when, how urgent it is, and its letter.
_Candidate = tuple[int, tuple[int, int], int]


def greedy(
    tasks: Tasks,
    count: int,
    room: Sequence[float],
    stashed: Sequence[int],
    rest: Sequence[int],
    patience: float,
    *,
    awaits: bool,
) -> Words | None:
    """Return words of ``count`` micro-batches; None where memory lets no IPU go on.

    Args:
        tasks: the letters.
        count: micro-batches.
        room: the most that the IPU of each word may hold, in what ``stashed`` and ``rest`` are in.
        stashed: of each stage and micro-batch from the start of its forward pass to the end of its backward pass.
        rest: from there to the end of the half for the weights.
        patience: the part of such a half for which an IPU would rather wait for something more urgent.
        awaits: whether an IPU begins no forward pass during which its first backward pass might begin.
    """
    state = _State(tasks, count, stashed, rest)
    if awaits:
        state.await_first_backward()
    while any(left for left in state.left):
        best: tuple[int, int, int] | None = None
        for word in range(tasks.words):
            chosen = state.next(word, room[word], patience)
            if chosen is not None and (best is None or chosen < best[:2]):
                best = (*chosen, word)
        if best is None:
            return None
        state.run(best[1], best[0], best[2])
    return tuple(map(tuple, state.words))


class _State:
    """How far each IPU is."""

    def __init__(self, tasks: Tasks, count: int, stashed: Sequence[int], rest: Sequence[int]) -> None:
        self.tasks, self.count, self._stashed, self._rest = tasks, count, stashed, rest
        self.left = [count * len(letters) for letters in tasks.of_word]
        self.words: list[list[int]] = [[] for _ in tasks.ipus]
        self._ends: list[list[int]] = [[] for _ in tasks.letters]
        self._now = [0] * tasks.words
        self._stashed_now = [0] * tasks.words
        #: Until when the forward passes before the first backward pass of an IPU are to end.
        self._until = [inf] * tasks.words
        self._halved = {stage for kind, stage in tasks.letters if kind == pipelines.Pass.WEIGHT_GRADIENT}
        self._lag = [0 if way is None else way.lead + way.cycles for way in tasks.ways]
        #: Of each IPU what :meth:`next` returns, as long as nothing changes that.
        self._next: dict[int, tuple[int, int] | None] = {}
        self._word_after: list[set[int]] = [set() for _ in tasks.letters]
        for letter, needs in enumerate(tasks.needs):
            for need, _ in needs:
                self._word_after[need].add(tasks.word_of[letter])

    def await_first_backward(self) -> None:
        """Let no IPU begin a forward pass that could not end before its first backward pass might begin."""
        heads = earliest(self.tasks, 1)
        for word, letters in enumerate(self.tasks.of_word):
            kinds = [(self.tasks.letters[letter][0], letter) for letter in letters]
            self._until[word] = min((heads[of][0] for kind, of in kinds if kind != pipelines.Pass.FORWARD), default=inf)

    def next(self, word: int, room: float, patience: float) -> tuple[int, int] | None:
        """Return when an IPU begins its next pass, and its letter; None where nothing can."""
        if word not in self._next:
            self._next[word] = self._chosen(word, room, patience)
        return self._next[word]

    def _chosen(self, word: int, room: float, patience: float) -> tuple[int, int] | None:
        now = self._now[word]
        urgent: list[_Candidate] = []
        filling: list[_Candidate] = []
        for letter in self.tasks.of_word[word]:
            begin = self._begin(letter, now)
            if begin is None:
                continue
            kind, stage = self.tasks.letters[letter]
            end = begin + self.tasks.cycles[letter]
            if kind == pipelines.Pass.WEIGHT_GRADIENT:
                filling.append((begin, (0, len(self._ends[letter])), letter))
            elif kind != pipelines.Pass.FORWARD:
                urgent.append((begin, (0, stage), letter))
            elif self._stashed_now[word] + self._stashed[stage] <= room and end <= self._until[word]:
                urgent.append((begin, (1, -stage), letter))
        first = min((begin for begin, _, _ in urgent), default=None)
        if filling:
            begin, _, letter = min(filling, key=itemgetter(0, 1))
            if first is None or (first > begin and first >= begin + patience * self.tasks.cycles[letter]):
                return begin, letter
        if first is None:
            return None
        return first, min((item for item in urgent if item[0] == first), key=itemgetter(1))[2]

    def _begin(self, letter: int, now: int) -> int | None:
        turn = len(self._ends[letter])
        if turn == self.count:
            return None
        begin = now
        for need, away in self.tasks.needs[letter]:
            of = self._ends[need]
            if len(of) <= turn:
                return None
            begin = max(begin, of[turn] + (self._lag[need] if away else 0))
        return begin

    def run(self, letter: int, begin: int, word: int) -> None:
        """Run a pass on its IPU."""
        kind, stage = self.tasks.letters[letter]
        self._now[word] = begin + self.tasks.cycles[letter]
        self._ends[letter].append(self._now[word])
        self.words[word].append(letter)
        self.left[word] -= 1
        if kind == pipelines.Pass.FORWARD:
            self._stashed_now[word] += self._stashed[stage]
        elif kind == pipelines.Pass.WEIGHT_GRADIENT:
            self._stashed_now[word] -= self._rest[stage]
        else:
            self._until[word] = inf
            self._stashed_now[word] -= self._stashed[stage] - (self._rest[stage] if stage in self._halved else 0)
        for other in (word, *self._word_after[letter]):
            self._next.pop(other, None)
