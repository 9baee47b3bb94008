"""What a search orders: the passes of each IPU as words of letters, with the cycles of each and what it needs.

A letter is a pass of a stage, over whichever micro-batch is next: as micro-batches are alike, no other order of them is
faster, and an Order is one word for each IPU in which every letter stands as often as there are micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ipusim.api import Job, pipelines

#: Of each IPU the letters of its passes in the order in which it runs them; in lock-step with bars between time-steps.
Words = tuple[tuple[int, ...], ...]
#: What stands in a word of lock-step between two time-steps.
BAR: Final = -1


class Way(NamedTuple):
    """How what a pass makes gets to another IPU.

    Attributes:
        pair: which pair of IPUs, by its place in :attr:`Tasks.pairs`; one copy after the other takes its links.
        lead: cycles before it takes them.
        cycles: for which it does.
    """

    pair: int
    lead: int
    cycles: int


@dataclass(frozen=True, eq=False)
class Tasks:
    """The letters of a program, with their costs on a device where pairs of IPUs share no links.

    Attributes:
        letters: (kind, stage) of each, as :class:`Op` counts them; a letter is its place in here.
        ipus: the IPU of each word.
        word_of: which word each letter is in.
        cycles: of each letter's pass, with what its IPU does around it.
        needs: of each letter the letters that run over the same micro-batch before it, and whether what they hand over
            comes from another IPU.
        ways: of each letter how what it makes gets to another IPU; None where it does not, or takes no time.
        pairs: the pairs of IPUs between which that happens.
        updates: cycles of the weight update of each word's IPU, which begins behind its last pass, or that of all where
            they meet.
        meeting: cycles in which all IPUs meet after a time-step; None where they do not.
        whole: cycles of each stage's whole backward pass, which runs instead of both halves in one time-step; empty
            if passes are not in halves, or IPUs do not meet.
        outfeed: cycles in which an IPU sends a micro-batch's result to the host, in lock-step a time-step after the
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
        """(kind, stage) of each letter, and behind them of each stage's whole backward pass."""
        return (*self.letters, *((int(pipelines.Pass.BACKWARD), stage) for stage in range(len(self.whole))))

    @cached_property
    def stages(self) -> int:
        """The number of stages."""
        return 1 + max(stage for _, stage in self.letters)

    @cached_property
    def outfed(self) -> int:
        """The letter behind which results go to the host."""
        return self.letters.index((pipelines.Pass.FORWARD, self.stages - 1))

    def parts(self, kind: int, stage: int) -> tuple[int, ...]:
        """Return the letters of a pass: both halves of a whole backward pass if these are letters."""
        if kind == pipelines.Pass.BACKWARD and self.whole:
            halves = pipelines.Pass.INPUT_GRADIENT, pipelines.Pass.WEIGHT_GRADIENT
            return tuple(self.letters.index((half, stage)) for half in halves)
        return (self.letters.index((kind, stage)),)

    def apart(self, need: int, letter: int) -> int:
        """Return the least time-steps between a pass and one that needs it.

        Nothing moves between the last stage's forward and backward pass, or between the halves of a whole one.
        """
        (_, before), (kind, stage) = self.letters[need], self.letters[letter]
        turns = before == stage == self.stages - 1 and kind != pipelines.Pass.FORWARD
        return 0 if turns or kind == pipelines.Pass.WEIGHT_GRADIENT else 1

    @cached_property
    def of_word(self) -> tuple[tuple[int, ...], ...]:
        """The letters of each word."""
        places = range(len(self.letters))
        return tuple(tuple(letter for letter in places if self.word_of[letter] == word) for word in range(self.words))

    @property
    def words(self) -> int:
        """How many IPUs run passes."""
        return len(self.ipus)

    @cached_property
    def own_needs(self) -> tuple[tuple[int, ...], ...]:
        """Of each letter the needs that are in its own word."""
        return tuple(
            tuple(need for need, _ in needs if self.word_of[need] == self.word_of[letter])
            for letter, needs in enumerate(self.needs)
        )

    def is_ordered(self, word: Sequence[int]) -> bool:
        """Whether each letter of a word stands behind those of the same word that it needs."""
        seen = [0] * len(self.letters)
        for letter in word:
            seen[letter] += 1
            if any(seen[need] < seen[letter] for need in self.own_needs[letter]):
                return False
        return True


def unsearched_for(job: Job) -> str:
    """Return the feature of a named schedule that no search has; empty for one that a search may begin with.

    Args:
        job: its run.
    """
    shape = job.program.shape
    if shape.mirrored:
        return "two copies of each stage"
    if shape.segments > 1:
        return "segments of a micro-batch"
    if any(job.costs.composites(job.plan)):
        return "composite passes of a duration of their own"
    return ""


def tasks_of(job: Job) -> Tasks | None:
    """Return the passes of a Job that a search orders; None for passes that words of letters cannot express.

    These are concurrent stages, recomputations as passes of their own, and backward passes of which some alone are in
    halves.
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

    needs = _needs(number_of, shape.stages, set(sends))
    outfeed = _outfeed(job)
    last = (kind_of.FORWARD, shape.stages - 1)
    cycles = [costs.passes[letter] for letter in letters]
    cycles[number_of[kind_of.FORWARD, 0]] += costs.host.infeed
    if free:
        cycles[number_of[last]] += outfeed
    targets = [(stage, _target(kind, stage)) for kind, stage in letters]
    pairs = tuple(sorted({(shape.mapping[source], shape.mapping[target]) for source, target in sends}))
    ways: list[Way | None] = []
    for number, (source, target) in enumerate(targets):
        send = sends.get((source, target))
        if send is None:
            ways.append(None)
        elif job.program.overlap_copies:
            ways.append(Way(pairs.index((shape.mapping[source], shape.mapping[target])), *send))
        else:  # the IPU waits until all has gone
            cycles[number] += sum(send)
            ways.append(Way(pairs.index((shape.mapping[source], shape.mapping[target])), 0, 0))
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
        needs=tuple(needs),
        ways=tuple(ways),
        pairs=pairs,
        updates=updates,
        meeting=meeting,
        whole=whole,
        outfeed=0 if free else outfeed,
    )


def _needs(
    number_of: Mapping[tuple[int, int], int], stages: int, sends: set[tuple[int, int]]
) -> list[tuple[tuple[int, bool], ...]]:
    """Return of each letter, by its (kind, stage), its needs, and whether they come from another IPU."""
    kind_of = pipelines.Pass

    def first_half(stage: int) -> int:
        return number_of.get((kind_of.BACKWARD, stage), number_of.get((kind_of.INPUT_GRADIENT, stage), -1))

    needs: list[tuple[tuple[int, bool], ...]] = []
    for kind, stage in number_of:
        match kind:
            case kind_of.FORWARD:
                of = [(number_of[kind_of.FORWARD, stage - 1], (stage - 1, stage) in sends)] if stage else []
            case kind_of.WEIGHT_GRADIENT:
                of = [(first_half(stage), False)]
            case _:
                of = [(number_of[kind_of.FORWARD, stage], False)]
                if stage < stages - 1:
                    of.append((first_half(stage + 1), (stage + 1, stage) in sends))
        needs.append(tuple(of))
    return needs


def _sends(job: Job) -> Mapping[tuple[int, int], tuple[int, int]]:
    """Return the cycles of each tensor's way from stage to stage, before it takes links and for which it does.

    They are those of the replica in which it takes longest.
    """
    longest: dict[tuple[int, int], tuple[int, int]] = {}
    for (_, _, source, target), send in job.costs.sends.items():
        longest[source, target] = max(longest.get((source, target), (0, 0)), (send.lead_cycles, send.cycles), key=sum)
    return longest


def _target(kind: int, stage: int) -> int:
    """Return the stage that takes what a pass makes; none has the number of the stage itself."""
    if kind == pipelines.Pass.WEIGHT_GRADIENT:
        return stage
    return stage + 1 if kind == pipelines.Pass.FORWARD else stage - 1


def _outfeed(job: Job) -> int:
    """Return the cycles in which an IPU sends the result of a micro-batch to the host."""
    outfeed = job.program.outfeed
    return job.costs.host.outfeed if outfeed.mode == "ALL" and not outfeed.accumulate else 0


def words_of(tasks: Tasks, passes: Sequence[Sequence[int]]) -> Words | None:
    """Return an Order's rows of (IPU, kind, stage, micro-batch) as words; None where these would not run.

    Micro-batches are taken in order, whatever the order that the rows have them in. The words have no bars.
    """
    number_of = {letter: number for number, letter in enumerate(tasks.letters)}
    words: dict[int, list[int]] = {ipu: [] for ipu in tasks.ipus}
    for ipu, kind, stage, _ in passes:
        words[ipu].append(number_of[kind, stage])
    result = tuple(tuple(words[ipu]) for ipu in tasks.ipus)
    return result if all(map(tasks.is_ordered, result)) else None
