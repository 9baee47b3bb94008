"""Define the problem of the search: passes of every IPU as words of letters, with cycles and needs.

A letter is a pass of a stage over the next micro-batch. Micro-batches are alike, so no other order of micro-batches is
faster. An Order is a word per IPU that contains every letter once per micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ipusim.api import Job, pipelines

#: Letters of every IPU's passes in order of execution; in lock-step with bars between time-steps.
Words = tuple[tuple[int, ...], ...]
#: Separator of time-steps in a word of lock-step.
BAR: Final = -1


class Way(NamedTuple):
    """Transfer of a pass's output to another IPU.

    Attributes:
        pair: index of the pair of IPUs in :attr:`Tasks.pairs`; copies of a pair use links in sequence.
        lead: cycles before the links are used.
        cycles: cycles of use.
    """

    pair: int
    lead: int
    cycles: int


@dataclass(frozen=True, eq=False)
class Tasks:
    """Letters of a program, with costs on a device without shared links.

    Attributes:
        letters: (kind, stage) of every letter, numbered as in :class:`Op`; a letter is an index into this tuple.
        ipus: IPU of every word.
        word_of: word of every letter.
        cycles: cycles of every letter's pass, including the IPU's work around it.
        needs: letters that precede each letter over the same micro-batch, and whether their output
            comes from another IPU.
        ways: transfer of every letter's output to another IPU; None for missing or free transfers.
        pairs: pairs of IPUs with transfers.
        updates: cycles of every word's weight update, which begins after the IPU's last pass; 0 if IPUs
            meet.
        meeting: cycles of a meeting after a time-step; None without meetings.
        whole: cycles of every stage's whole backward pass, replacing two halves in a time-step; empty
            without halves, or if IPUs do not meet.
        outfeed: cycles in which an IPU sends a micro-batch's result to the host, in lock-step one time-step after the
            last stage's forward pass.
    """

    letters: tuple[tuple[int, int], ...]
    ipus: tuple[int, ...]
    word_of: tuple[int, ...]
    cycles: tuple[int, ...]
    needs: tuple[tuple[tuple[int, bool], ...], ...]
    ways: tuple[Way | None, ...]
    pairs: tuple[tuple[int, int], ...]
    updates: tuple[int, ...]
    meeting: int | None = None
    whole: tuple[int, ...] = ()
    outfeed: int = 0

    @cached_property
    def passes(self) -> tuple[tuple[int, int], ...]:
        """(kind, stage) of every letter, followed by every stage's whole backward pass."""
        return (*self.letters, *((int(pipelines.Pass.BACKWARD), stage) for stage in range(len(self.whole))))

    @cached_property
    def stages(self) -> int:
        """Number of stages."""
        return 1 + max(stage for _, stage in self.letters)

    @cached_property
    def outfed(self) -> int:
        """Letter whose results go to the host."""
        return self.letters.index((pipelines.Pass.FORWARD, self.stages - 1))

    def parts(self, kind: int, stage: int) -> tuple[int, ...]:
        """Return the letters of a pass; two halves for a whole backward pass of split letters."""
        if kind == pipelines.Pass.BACKWARD and self.whole:
            halves = pipelines.Pass.INPUT_GRADIENT, pipelines.Pass.WEIGHT_GRADIENT
            return tuple(self.letters.index((half, stage)) for half in halves)
        return (self.letters.index((kind, stage)),)

    def gap_between(self, need: int, letter: int) -> int:
        """Return the minimum distance in time-steps between a pass and its user.

        Tensors do not move between the last stage's forward and backward pass, or between halves.
        """
        (_, need_stage), (kind, stage) = self.letters[need], self.letters[letter]
        turns = need_stage == stage == self.stages - 1 and kind != pipelines.Pass.FORWARD
        return 0 if turns or kind == pipelines.Pass.WEIGHT_GRADIENT else 1

    @cached_property
    def of_word(self) -> tuple[tuple[int, ...], ...]:
        """Letters of every word."""
        places = range(len(self.letters))
        return tuple(tuple(letter for letter in places if self.word_of[letter] == word) for word in range(self.words))

    @property
    def words(self) -> int:
        """Number of IPUs with passes."""
        return len(self.ipus)

    @cached_property
    def own_needs(self) -> tuple[tuple[int, ...], ...]:
        """Needs of every letter within the same word."""
        return tuple(
            tuple(need for need, _ in needs if self.word_of[need] == self.word_of[letter])
            for letter, needs in enumerate(self.needs)
        )

    def is_ordered(self, word: Sequence[int]) -> bool:
        """Tell whether every letter of a word follows its needs in the same word."""
        counts = [0] * len(self.letters)
        for letter in word:
            counts[letter] += 1
            if any(counts[need] < counts[letter] for need in self.own_needs[letter]):
                return False
        return True


def unsearched_for(job: Job) -> str:
    """Return the feature of a named schedule that searches do not support; empty for supported schedules.

    Args:
        job: Job of the schedule.
    """
    shape = job.program.shape
    if shape.mirrored:
        return "two copies of each stage"
    if shape.segments > 1:
        return "segments of a micro-batch"
    if any(job.costs.composites(job.plan)):
        return "composite passes with a given duration"
    return ""


def tasks_of(job: Job) -> Tasks | None:
    """Return the passes of a Job to be ordered; None for passes inexpressible in words.

    These are concurrent stages, recomputations in separate passes, and mixtures of whole and split backward passes.
    """
    shape, plan, costs = job.plan.shape, job.plan, job.costs
    kind_of = pipelines.Pass
    letters = sorted({(kind, stage) for _, kind, stage, _ in plan.order.passes.tolist()})
    if shape.sizes or shape.overlapped_io or shape.serialization > 1 or unsearched_for(job):
        return None
    recomputes = any(kind == kind_of.RECOMPUTE for kind, _ in letters)
    if recomputes or len(letters) * shape.micro_batches != len(plan.order.passes):
        return None
    number_of = {letter: number for number, letter in enumerate(letters)}
    ipus = tuple(sorted(set(shape.mapping)))
    free = not plan.sync.meets
    sends = _sends(job) if free else {}

    def number_of_need(need: tuple[int, int]) -> int:
        return number_of.get(need, number_of.get((kind_of.INPUT_GRADIENT, need[1]), -1))

    needs = tuple(
        tuple((number_of_need(need), (need[1], stage) in sends) for need in pipelines.needs(shape, kind, stage))
        for kind, stage in letters
    )
    outfeed = _outfeed(job)
    cycles = [costs.passes[letter] for letter in letters]
    cycles[number_of[kind_of.FORWARD, 0]] += costs.host.infeed
    if free:
        cycles[number_of[kind_of.FORWARD, shape.stages - 1]] += outfeed
    pairs = tuple(sorted({(shape.mapping[source], shape.mapping[target]) for source, target in sends}))
    ways: list[Way | None] = []
    for number, (kind, stage) in enumerate(letters):
        target = stage + {kind_of.FORWARD: 1, kind_of.WEIGHT_GRADIENT: 0}.get(kind_of(kind), -1)
        if (send := sends.get((stage, target))) is None:
            ways.append(None)
            continue
        if not job.program.overlap_copies:  # the IPU waits for the end of its send
            cycles[number] += sum(send)
            send = 0, 0
        ways.append(Way(pairs.index((shape.mapping[stage], shape.mapping[target])), *send))
    word_of = tuple(ipus.index(shape.mapping[stage]) for _, stage in letters)
    updates = tuple(costs.updates.get(ipu, 0) if free else 0 for ipu in ipus)
    meetings = [copy.total_cycles for copies in costs.copies.meetings for copy in copies]
    meeting = None if free else min(meetings, default=0)
    halved = (kind_of.WEIGHT_GRADIENT, 0) in number_of
    whole = () if free or not halved else tuple(costs.passes[kind_of.BACKWARD, stage] for stage in range(shape.stages))
    return Tasks(
        letters=tuple(letters),
        ipus=ipus,
        word_of=word_of,
        cycles=tuple(cycles),
        needs=needs,
        ways=tuple(ways),
        pairs=pairs,
        updates=updates,
        meeting=meeting,
        whole=whole,
        outfeed=0 if free else outfeed,
    )


def _sends(job: Job) -> Mapping[tuple[int, int], tuple[int, int]]:
    """Return the cycles of every transfer between stages: lead time, and use of links.

    Among replicas, the longest transfer counts.
    """
    longest: dict[tuple[int, int], tuple[int, int]] = {}
    for (_, _, source, target), send in job.costs.sends.items():
        longest[source, target] = max(longest.get((source, target), (0, 0)), (send.lead_cycles, send.cycles), key=sum)
    return longest


def _outfeed(job: Job) -> int:
    """Return the cycles of sending a micro-batch's result to the host."""
    outfeed = job.program.outfeed
    return job.costs.host.outfeed if outfeed.mode == "ALL" and not outfeed.accumulate else 0


def words_of(tasks: Tasks, passes: Sequence[Sequence[int]]) -> Words | None:
    """Convert an Order's rows of (IPU, kind, stage, micro-batch) to words; None for words without a valid execution.

    Micro-batches are renumbered in order of execution. The words have no bars.
    """
    number_of = {letter: number for number, letter in enumerate(tasks.letters)}
    words: dict[int, list[int]] = {ipu: [] for ipu in tasks.ipus}
    for ipu, kind, stage, _ in passes:
        words[ipu].append(number_of[kind, stage])
    result = tuple(tuple(words[ipu]) for ipu in tasks.ipus)
    return result if all(map(tasks.is_ordered, result)) else None
