"""Construct words (sequences of IPUs' passes) in turns.

A turn has a forward pass of every IPU, then a backward pass of every IPU.

The method is the search of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3.1, as in the authors' code
(module ``zb`` of sail-sg/zero-bubble-pipeline-parallelism). It requires a single stage per IPU and split backward
passes, puts weight-gradient halves into gaps, and keeps a memory limit. Three binary choices give eight candidates; the
search keeps the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from ipusim.api import pipelines
from ipusim.app.synthesize.tasks import Tasks, Words

#: Indices of the kinds of passes: forward pass, input-gradient half and weight-gradient half.
_FORWARD, _INPUT, _WEIGHTS = range(3)
#: Kinds of passes by index.
_KINDS: Final = (pipelines.Pass.FORWARD, pipelines.Pass.INPUT_GRADIENT, pipelines.Pass.WEIGHT_GRADIENT)
#: Change of the half micro-batches held by an IPU, by kind of pass.
_STASH_CHANGES: Final = (2, -1, -1)


def words_in_turns(tasks: Tasks, count: int, most: int) -> Words | None:
    """Return the best words of ``count`` micro-batches; None for unsupported passes or too little memory.

    The best words have the lowest cost: the longest time from an IPU's first pass to its last.

    Args:
        tasks: the letters.
        count: number of micro-batches.
        most: maximum number of micro-batches held by an IPU; a micro-batch counts half after its input-gradient half.
    """
    kinds = {tuple(sorted(tasks.letters[letter] for letter in letters)) for letters in tasks.letters_by_word}
    if tasks.meeting_cycles is not None or kinds != {
        tuple((kind, word) for kind in _KINDS) for word in range(tasks.word_count)
    }:
        return None
    best: tuple[int, Words] | None = None
    for choices in product((True, False), repeat=3):
        turns = _Turns(tasks, count, most, *choices)
        if turns.run() and (best is None or turns.cost < best[0]):
            best = turns.cost, tuple(map(tuple, turns.words))
    return None if best is None else best[1]


class _Turns:
    """Words under construction, by three binary choices.

    With ``waits``, an IPU runs no forward pass that would delay its first backward pass. With ``yields``, an IPU skips
    a forward pass if the next IPU could not run its own forward pass before a backward pass. With ``fills``, a
    weight-gradient half fills a gap shorter than itself, even if other IPUs have waited longer.
    """

    def __init__(self, tasks: Tasks, count: int, most: int, waits: bool, yields: bool, fills: bool) -> None:
        number_of = {letter: number for number, letter in enumerate(tasks.letters)}
        self._letters = [[number_of[kind, stage] for stage in range(tasks.word_count)] for kind in _KINDS]
        self._cycles = [[tasks.cycles[letter] for letter in letters] for letters in self._letters]
        sends = [[tasks.sends[letter] for letter in letters] for letters in self._letters]
        self._copy_delay = [
            [0 if send is None else send.lead + send.cycles for send in sends_of_kind] for sends_of_kind in sends
        ]
        self._count, self._room = count, 2 * most
        self._waits_for_backward, self._yields, self._fills = waits, yields, fills
        self._last = tasks.word_count - 1
        self.words: list[list[int]] = [[] for _ in tasks.ipus]
        #: Ends of passes by kind and IPU.
        self._ends: list[list[list[int]]] = [[[] for _ in tasks.ipus] for _ in _KINDS]
        self._times = [0] * tasks.word_count
        self._stashes = [0] * tasks.word_count
        #: Cycles of waits since the first pass, by IPU.
        self._waits = [0] * tasks.word_count

    @property
    def cost(self) -> int:
        """Longest time from an IPU's first pass to its last."""
        first = (ends[0] - cycles for ends, cycles in zip(self._ends[_FORWARD], self._cycles[_FORWARD], strict=True))
        return max(end - begin for end, begin in zip(self._times, first, strict=True))

    def run(self) -> bool:
        """Construct the words; returns False if memory stops an IPU."""
        ipus = range(self._last + 1)
        for ipu in ipus:
            self._append(_FORWARD, ipu)
        for ipu, count_ahead in enumerate(self._forwards_ahead()):
            for _ in range(count_ahead):
                self._append(_FORWARD, ipu)
        for ipu in reversed(ipus):
            self._append(_INPUT, ipu)
        for _ in range(1, self._count):
            for ipu in self._going_forward():
                while self._stashes[ipu] + _STASH_CHANGES[_FORWARD] > self._room:
                    if not self._weights_left(ipu):
                        return False
                    self._append(_WEIGHTS, ipu)
                self._fill(ipu, _FORWARD, ipu - 1)
                self._append(_FORWARD, ipu)
            for ipu in reversed(ipus):
                self._fill(ipu, _INPUT, ipu + 1)
                if ipu == 0 and len(self._ends[_FORWARD][0]) == self._count:
                    self._finish(0)
                self._append(_INPUT, ipu)
        for ipu in ipus:
            self._finish(ipu)
        return True

    def _forwards_ahead(self) -> list[int]:
        """Return the number of forward passes that every IPU runs between its first forward and first backward pass."""
        cycles, inputs = self._cycles[_FORWARD], self._cycles[_INPUT]
        ahead = [0] * (self._last + 1)
        arrivals = self._times[-1] + inputs[-1]
        for ipu in reversed(range(self._last)):
            time, arrivals = self._times[ipu], arrivals + self._copy_delay[_INPUT][ipu + 1]
            stash = self._stashes[ipu] + _STASH_CHANGES[_FORWARD]
            while ahead[ipu] + 1 < self._count and stash <= self._room:
                if (time + cycles[ipu] > arrivals) if self._waits_for_backward else (time >= arrivals):
                    break
                ahead[ipu] += 1
                time, stash = time + cycles[ipu], stash + _STASH_CHANGES[_FORWARD]
            arrivals = max(time, arrivals) + inputs[ipu]
        for ipu in range(1, self._last + 1):
            # An IPU cannot run passes whose inputs have not arrived.
            limit = ahead[ipu - 1] - (ahead[ipu] + 1 < self._count)
            ahead[ipu] = max(0, min(ahead[ipu], limit))
        return ahead

    def _going_forward(self) -> Iterator[int]:
        """Yield the IPUs that run a forward pass in a turn: an IPU takes part if all later IPUs take part."""
        takes_part = [
            len(ends) < self._count and not self._waits_for_next(ipu) for ipu, ends in enumerate(self._ends[0])
        ]
        first = next((ipu for ipu in reversed(range(len(takes_part))) if not takes_part[ipu]), -1) + 1
        yield from range(first, len(takes_part))

    def _waits_for_next(self, ipu: int) -> bool:
        """Tell whether an IPU skips a forward pass because the next IPU has enough."""
        ends = self._ends[_FORWARD]
        if not self._yields or ipu == self._last or len(ends[ipu]) < len(ends[ipu + 1]) + 2:
            return False
        next_backward_cycles = (
            self._cycles[_FORWARD][ipu + 1] + self._cycles[_INPUT][ipu + 1] + self._copy_delay[_INPUT][ipu + 1]
        )
        arrivals = self._times[ipu + 1] + next_backward_cycles
        if self._times[ipu] >= arrivals:
            return True
        excess = self._stashes[ipu] + _STASH_CHANGES[_FORWARD] - self._room
        halves = min(max(0, excess), self._weights_left(ipu))
        if self._times[ipu] + self._cycles[_FORWARD][ipu] + halves * self._cycles[_WEIGHTS][ipu] <= arrivals:
            return False
        return arrivals - self._times[ipu] <= max(self._waits) - self._waits[ipu]

    def _weights_left(self, ipu: int) -> int:
        return len(self._ends[_INPUT][ipu]) - len(self._ends[_WEIGHTS][ipu])

    def _fill(self, ipu: int, kind: int, source: int) -> None:
        """Run weight-gradient halves until the input of an IPU's next pass arrives from IPU ``source``."""
        if not 0 <= source <= self._last:
            return
        arrivals = self._ends[kind][source][len(self._ends[kind][ipu])] + self._copy_delay[kind][source]
        cycles = self._cycles[_WEIGHTS][ipu]
        while self._weights_left(ipu) and self._times[ipu] + cycles <= arrivals:
            self._append(_WEIGHTS, ipu)
        gap = arrivals - self._times[ipu]
        has_waited_less = gap > max(self._waits) - self._waits[ipu]
        if gap > 0 and self._weights_left(ipu) and (self._fills or has_waited_less):
            self._append(_WEIGHTS, ipu)

    def _finish(self, ipu: int) -> None:
        """Run all pending weight-gradient halves."""
        for _ in range(self._weights_left(ipu)):
            self._append(_WEIGHTS, ipu)

    def _append(self, kind: int, ipu: int) -> None:
        """Run the next pass of a kind."""
        ends, begin = self._ends[kind], self._times[ipu]
        source = ipu - 1 if kind == _FORWARD else ipu + 1
        if kind != _WEIGHTS and 0 <= source <= self._last:
            begin = max(begin, ends[source][len(ends[ipu])] + self._copy_delay[kind][source])
        if self._ends[_FORWARD][ipu]:
            self._waits[ipu] += begin - self._times[ipu]
        self._times[ipu] = begin + self._cycles[kind][ipu]
        ends[ipu].append(self._times[ipu])
        self._stashes[ipu] += _STASH_CHANGES[kind]
        self.words[ipu].append(self._letters[kind][ipu])
