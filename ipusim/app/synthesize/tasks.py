"""Define the problem of the search: the passes of every IPU as words of letters, with cycles and dependencies.

A letter is a pass of a stage over the next micro-batch. Micro-batches are alike, so no other order of micro-batches is
faster. An Order is a word per IPU that contains every letter once per micro-batch. In lock-step, IPUs meet after each
time-step: each IPU waits for the slowest IPU, then a joint copy follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ipusim.api import Job, pipelines

#: Separator of time-steps in a word; only lock-step has time-steps.
BAR: Final = -1
#: Letters of every IPU's passes in order of execution; in lock-step, BAR separates time-steps.
Words = tuple[tuple[int, ...], ...]


class Send(NamedTuple):
    """Transfer of a pass's output to another IPU.

    Attributes:
        pair: index of the pair of IPUs in :attr:`Tasks.pairs`; copies of a pair use links in sequence.
        lead: cycles before the links are used.
        cycles: cycles in which the links are used.
    """

    pair: int
    lead: int
    cycles: int

    @property
    def least_cycles(self) -> int:
        """Minimum cycles directly after another copy: cycles are rounded up, and copies in sequence are once."""
        return max(self.cycles - 1, 0)


@dataclass(frozen=True, eq=False)
class Tasks:
    """Letters of a program, with costs on a device without shared links.

    Attributes:
        letters: (kind, stage) of every letter, numbered as in :class:`Op`; a letter is an index into this tuple.
        ipus: IPU of every word.
        word_of: word of every letter.
        cycles: cycles of every letter's pass, including the IPU's work around it.
        needs: letters that precede each letter over the same micro-batch, each with whether its output comes from
            another IPU.
        sends: transfer of every letter's output to another IPU; None for free or missing transfers.
        pairs: pairs of IPUs with transfers.
        update_cycles: cycles of every word's weight update, which begins after the IPU's last pass; 0 in lock-step.
        meeting_cycles: cycles of the meeting after a time-step; None in point-to-point, where IPUs do not meet.
        whole_cycles: cycles of every stage's whole backward pass, which replaces two halves in one time-step; empty for
            passes without halves, and in point-to-point.
        outfeed_cycles: cycles in which an IPU sends a micro-batch's result to the host, in lock-step one time-step
            after the last stage's forward pass.
    """

    letters: tuple[tuple[int, int], ...]
    ipus: tuple[int, ...]
    word_of: tuple[int, ...]
    cycles: tuple[int, ...]
    needs: tuple[tuple[tuple[int, bool], ...], ...]
    sends: tuple[Send | None, ...]
    pairs: tuple[tuple[int, int], ...]
    update_cycles: tuple[int, ...]
    meeting_cycles: int | None = None
    whole_cycles: tuple[int, ...] = ()
    outfeed_cycles: int = 0

    @cached_property
    def passes(self) -> tuple[tuple[int, int], ...]:
        """(kind, stage) of every letter, followed by every stage's whole backward pass."""
        return (*self.letters, *((int(pipelines.Pass.BACKWARD), stage) for stage in range(len(self.whole_cycles))))

    @cached_property
    def stage_count(self) -> int:
        """Number of stages."""
        return 1 + max(stage for _, stage in self.letters)

    @cached_property
    def outfeed_letter(self) -> int:
        """Letter whose results go to the host."""
        return self.letters.index((pipelines.Pass.FORWARD, self.stage_count - 1))

    def parts(self, kind: int, stage: int) -> tuple[int, ...]:
        """Return the letters of a pass; a whole backward pass has two letters besides split passes."""
        if kind == pipelines.Pass.BACKWARD and self.whole_cycles:
            halves = pipelines.Pass.INPUT_GRADIENT, pipelines.Pass.WEIGHT_GRADIENT
            return tuple(self.letters.index((half, stage)) for half in halves)
        return (self.letters.index((kind, stage)),)

    def gap_between(self, need: int, letter: int) -> int:
        """Return the minimum distance in time-steps from pass ``need`` to pass ``letter``, which uses its output.

        The distance is 0 if the tensor stays on its IPU: from forward to backward pass of the last stage, where the
        pipeline turns around, and between the halves of a backward pass.
        """
        (_, need_stage), (kind, stage) = self.letters[need], self.letters[letter]
        is_turning_point = need_stage == stage == self.stage_count - 1 and kind != pipelines.Pass.FORWARD
        return 0 if is_turning_point or kind == pipelines.Pass.WEIGHT_GRADIENT else 1

    @cached_property
    def letters_by_word(self) -> tuple[tuple[int, ...], ...]:
        """Letters of every word."""
        numbers = range(len(self.letters))
        return tuple(
            tuple(letter for letter in numbers if self.word_of[letter] == word) for word in range(self.word_count)
        )

    @property
    def word_count(self) -> int:
        """Number of words, one per IPU with passes."""
        return len(self.ipus)

    @cached_property
    def needs_in_word(self) -> tuple[tuple[int, ...], ...]:
        """Needs of every letter within the same word."""
        return tuple(
            tuple(need for need, _ in needs if self.word_of[need] == self.word_of[letter])
            for letter, needs in enumerate(self.needs)
        )

    def is_ordered(self, word: Sequence[int]) -> bool:
        """Tell whether every letter of a word follows all needed letters of the word."""
        counts = [0] * len(self.letters)
        for letter in word:
            counts[letter] += 1
            if any(counts[need] < counts[letter] for need in self.needs_in_word[letter]):
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
    """Return the passes of a Job to be ordered; None if words cannot express the passes.

    Passes cannot be written as words with concurrent stages, with recomputations in separate passes, with a mixture of
    whole and split backward passes, and with I/O tiles, batch serialization or a feature of :func:`unsearched_for`.
    """
    shape, plan, costs = job.plan.shape, job.plan, job.costs
    kind_of = pipelines.Pass
    letters = sorted({(kind, stage) for _, kind, stage, _ in plan.order.passes.tolist()})
    if shape.sizes or shape.overlapped_io or shape.serialization > 1 or unsearched_for(job):
        return None
    has_recompute = any(kind == kind_of.RECOMPUTE for kind, _ in letters)
    if has_recompute or len(letters) * shape.micro_batches != len(plan.order.passes):
        return None
    letter_of = {letter: number for number, letter in enumerate(letters)}
    ipus = tuple(sorted(set(shape.mapping)))
    is_point_to_point = not plan.sync.has_time_steps
    send_cycles = _sends(job) if is_point_to_point else {}

    def letter_of_need(need: tuple[int, int]) -> int:
        return letter_of.get(need, letter_of.get((kind_of.INPUT_GRADIENT, need[1]), -1))

    needs = tuple(
        tuple((letter_of_need(need), (need[1], stage) in send_cycles) for need in pipelines.needs(shape, kind, stage))
        for kind, stage in letters
    )
    outfeed_cycles = _outfeed_cycles(job)
    cycles = [costs.passes[letter] for letter in letters]
    cycles[letter_of[kind_of.FORWARD, 0]] += costs.host.infeed
    if is_point_to_point:
        cycles[letter_of[kind_of.FORWARD, shape.stages - 1]] += outfeed_cycles
    pairs = tuple(sorted({(shape.mapping[source], shape.mapping[target]) for source, target in send_cycles}))
    sends: list[Send | None] = []
    for number, (kind, stage) in enumerate(letters):
        target = stage + {kind_of.FORWARD: 1, kind_of.WEIGHT_GRADIENT: 0}.get(kind_of(kind), -1)
        if (send := send_cycles.get((stage, target))) is None:
            sends.append(None)
            continue
        if not job.program.overlap_copies:  # the IPU waits for the end of its send
            cycles[number] += sum(send)
            send = 0, 0
        sends.append(Send(pairs.index((shape.mapping[stage], shape.mapping[target])), *send))
    word_of = tuple(ipus.index(shape.mapping[stage]) for _, stage in letters)
    copy_cycles = [copy.total_cycles for copies in costs.copies.by_group for copy in copies]
    has_halves = (kind_of.WEIGHT_GRADIENT, 0) in letter_of
    stages = () if is_point_to_point or not has_halves else range(shape.stages)
    return Tasks(
        letters=tuple(letters),
        ipus=ipus,
        word_of=word_of,
        cycles=tuple(cycles),
        needs=needs,
        sends=tuple(sends),
        pairs=pairs,
        update_cycles=tuple(costs.updates.get(ipu, 0) if is_point_to_point else 0 for ipu in ipus),
        meeting_cycles=None if is_point_to_point else min(copy_cycles, default=0),
        whole_cycles=tuple(costs.passes[kind_of.BACKWARD, stage] for stage in stages),
        outfeed_cycles=0 if is_point_to_point else outfeed_cycles,
    )


def _sends(job: Job) -> Mapping[tuple[int, int], tuple[int, int]]:
    """Return the cycles of every transfer between stages: lead time, and use of links.

    If replicas differ, the longest transfer counts.
    """
    longest: dict[tuple[int, int], tuple[int, int]] = {}
    for (_, _, source, target), send in job.costs.sends.items():
        longest[source, target] = max(longest.get((source, target), (0, 0)), (send.lead_cycles, send.cycles), key=sum)
    return longest


def _outfeed_cycles(job: Job) -> int:
    """Return the cycles of sending a micro-batch's result to the host."""
    outfeed = job.program.outfeed
    return job.costs.host.outfeed if outfeed.mode == "ALL" and not outfeed.accumulate else 0


def words_of(tasks: Tasks, passes: Sequence[Sequence[int]]) -> Words | None:
    """Convert an Order's rows of (IPU, kind, stage, micro-batch) to words; None if the words cannot run.

    Micro-batches are renumbered in order of execution. The words have no bars.
    """
    letter_of = {letter: number for number, letter in enumerate(tasks.letters)}
    words: dict[int, list[int]] = {ipu: [] for ipu in tasks.ipus}
    for ipu, kind, stage, _ in passes:
        words[ipu].append(letter_of[kind, stage])
    result = tuple(tuple(words[ipu]) for ipu in tasks.ipus)
    return result if all(map(tasks.is_ordered, result)) else None
