"""Measured training step: passes in cycles on aligned rank clocks, and as a Timeline."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from ipusim.api import Span as Row
from ipusim.api import SpanKind, Timeline, timelines
from ipusim.app.profiles.names import OVERLAP, PASSES, UPDATE
from ipusim.app.profiles.spans import Span
from ipusim.app.profiles.stages import Stages
from ipusim.base.errors import FileError

#: Span kinds of passes.
KINDS: Final = dict(
    zip(
        PASSES[:-1],
        (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT, SpanKind.WEIGHT_GRADIENT),
        strict=True,
    )
)
#: Passes that produce the tensor for the previous stage's backward pass.
_BACK: Final = (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT)
#: Microseconds of rounding by profilers.
_ROUNDED: Final = 2
#: Divisor of the shortest pass: largest share of a send within a pass's span.
_SEND: Final = 20
_ROW: Final = Row(0, 0, 0, -1, -1, -1, 0, 0, -1, 0, -1, 0)


class Key(NamedTuple):
    """Pass: span kind, stage and micro-batch."""

    kind: SpanKind
    stage: int
    micro_batch: int


class Ran(NamedTuple):
    """Executed pass.

    Attributes:
        key: the pass.
        ipu: IPU of the pass.
        begin, end: begin and end in cycles.
        until: end of the previous pass on the IPU; 0 for the first.
        source: pass on another IPU that produces the input tensor; None without one.
        sender: IPU of ``source``.
        made: end of ``source``.
    """

    key: Key
    ipu: int
    begin: int
    end: int
    until: int
    source: Key | None
    sender: int
    made: int


@dataclass
class Step:
    """Passes and updates between two weight updates, in cycles from the first pass.

    Attributes:
        passes: begin and end of the passes, by IPU in order of execution.
        updates: begin and end of weight updates, by IPU.
    """

    passes: dict[int, dict[Key, tuple[int, int]]]
    updates: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """Length of the step."""
        ends = [end for own in self.passes.values() for _, end in own.values()]
        return max(*ends, *(end for _, end in self.updates.values()))

    def ran(self) -> list[Ran]:
        """Return the passes in order of begin, with predecessors and senders."""
        made = {key: (ipu, end) for ipu, own in self.passes.items() for key, (_, end) in own.items()}
        found = []
        for ipu, own in self.passes.items():
            until = 0
            for key, (begin, end) in own.items():
                forward = key.kind == SpanKind.FORWARD
                kinds = (SpanKind.FORWARD,) if forward else _BACK if key.kind in _BACK else ()
                sources = (Key(kind, key.stage + (-1 if forward else 1), key.micro_batch) for kind in kinds)
                source = next((of for of in sources if of in made and made[of][0] != ipu), None)
                found.append(Ran(key, ipu, begin, end, until, source, *(made[source] if source else (0, 0))))
                until = end
        return sorted(found, key=lambda ran: (ran.begin, ran.end))


def steps_of(stages: Stages, clock_hz: int) -> tuple[list[Step], dict[int, int]]:
    """Return the complete measured steps, in cycles, and the shift of every IPU's clock.

    Raises FileError for measurements without begins or with several ranks of a stage, overlapped passes, updates within
    passes, and tensors used before their production.
    """
    names = {name: number for number, name in enumerate(stages.stages)}
    ranks: dict[int, set[int]] = defaultdict(set)
    for span in stages.spans:
        if span.start_us is None:
            raise FileError(f"expected spans with a start time to replay, got only durations of {stages.tool}")
        if span.what in KINDS:
            ranks[stages.mapping[names[span.stage]]].add(span.rank)
    for ipu, several in ranks.items():
        if len(several) > 1:
            stage = [*stages.stages][stages.mapping.index(ipu)]
            raise FileError(
                f"expected one rank of each stage to replay, got {len(several)} of stage {stage}: import the files of "
                "one pipeline"
            )
    ipu_of = {rank: ipu for ipu, (rank,) in ranks.items()}
    by_step: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(stages.spans, key=lambda span: (span.start_us or 0) + span.waited_us):
        if span.rank in ipu_of:
            by_step[span.step].append(span)
    begun = min(span.start_us or Fraction(0) for span in stages.spans)
    every = [_step(spans, ipu_of, names, begun, clock_hz) for spans in by_step.values()]
    sizes = [sum(map(len, step.passes.values())) for step in every]
    whole = [step for step, size in zip(every, sizes, strict=True) if size == max(sizes)]
    shifts = _shifts(whole)
    return [_shifted(step, shifts) for step in whole], shifts


def _step(
    spans: Sequence[Span], ipu_of: Mapping[int, int], names: Mapping[str, int], begun: Fraction, clock_hz: int
) -> Step:
    """Return the step of spans sorted by begin."""

    def cycles(us: Fraction) -> int:
        return round((us - begun) * clock_hz / 1_000_000)

    step = Step({ipu: {} for ipu in sorted(ipu_of.values())})
    known = {span.micro_batch for span in spans if span.micro_batch is not None}
    numbers = {number: place for place, number in enumerate(sorted(known))}
    seen: dict[tuple[str, str], int] = defaultdict(int)
    until: dict[int, int] = {}
    last: dict[int, Fraction] = defaultdict(Fraction)
    for span in spans:
        ipu, begin = ipu_of[span.rank], (span.start_us or Fraction(0)) + span.waited_us
        end = begin - span.waited_us + span.us
        if span.what == OVERLAP:
            if not any(_within(other, span) for other in spans):
                raise FileError(
                    "expected the times of each pass to replay, got overlapped pairs of a forward and a backward pass: "
                    "give each of the two a span in the pair"
                )
            continue
        if begin < last[ipu] - _ROUNDED:
            raise FileError(
                f"expected the passes and updates of rank {span.rank} one after the other to replay, got {span.what} "
                f"at {float(begin):.16g} us before the end of the previous pass"
            )
        last[ipu] = max(end, last[ipu])
        first = max(cycles(begin), until.get(ipu, 0))
        until[ipu] = max(cycles(end), first)
        if span.what == UPDATE:
            step.updates[ipu] = (step.updates.get(ipu, (first, 0))[0], until[ipu])
            continue
        count = seen[span.what, span.stage]
        seen[span.what, span.stage] += 1
        number = count if span.micro_batch is None else numbers[span.micro_batch]
        key = Key(KINDS[span.what], names[span.stage], number)
        if key in step.passes[ipu]:
            raise FileError(
                f"expected each pass once in a step to replay, got {span.what} of stage {span.stage} and micro-batch "
                f"{number} twice, at {float(begin):.16g} us: a weight update ends a step"
            )
        step.passes[ipu][key] = (first, until[ipu])
    return step


def _within(span: Span, pair: Span) -> bool:
    begin = pair.start_us or Fraction(0)
    return span.rank == pair.rank and span.what != OVERLAP and begin <= (span.start_us or 0) < begin + pair.us


def _shifts(steps: Sequence[Step]) -> dict[int, int]:
    """Return the clock shift of every IPU in cycles.

    Shifts make passes begin after their tensors are produced.

    Shifts are 0 unless awaited tensors usually arrive too early. The violation must exceed what sends within both
    ranks' spans explain, and a small share of the shortest pass, since sends may be in one rank's spans only.
    """
    early: dict[tuple[int, int], list[int]] = defaultdict(list)
    every = [ran for step in steps for ran in step.ran()]
    shortest = min(ran.end - ran.begin for ran in every)
    for ran in every:
        if ran.source is not None and ran.made >= ran.until:
            early[ran.sender, ran.ipu].append(ran.made - ran.begin)
    least = {ends: statistics.median_low(cycles) for ends, cycles in early.items()}
    shifts: dict[int, int] = {}
    for ipu in steps[0].passes:
        lows = [shifts[of] + late for (of, to), late in least.items() if to == ipu and of in shifts]
        highs = [shifts[to] - late for (of, to), late in least.items() if of == ipu and to in shifts]
        low = max(lows, default=min([0, *highs]))
        high = min(highs, default=max(low, 0))
        agree = max(low, -high, 0) <= max(low - high, shortest // _SEND, 0)
        shifts[ipu] = 0 if agree else (low + high) // 2
    return shifts


def _shifted(step: Step, shifts: Mapping[int, int]) -> Step:
    """Align a step's clocks, beginning at its first pass.

    Passes end at the first use of their tensors.

    The cut remainder of a span is a send. Raises FileError for a tensor used before its pass begins.
    """
    first = min(shifts[ipu] + begin for ipu, own in step.passes.items() for begin, _ in own.values())

    def moved(ipu: int, span: tuple[int, int]) -> tuple[int, int]:
        return span[0] + shifts[ipu] - first, span[1] + shifts[ipu] - first

    made = Step(
        {ipu: {key: moved(ipu, span) for key, span in own.items()} for ipu, own in step.passes.items()},
        {ipu: moved(ipu, span) for ipu, span in step.updates.items()},
    )
    for ran in made.ran():
        if ran.source is not None and ran.begin < ran.made:
            begin, end = made.passes[ran.sender][ran.source]
            if ran.begin <= begin < end:
                raise FileError(
                    f"expected passes that begin after their inputs to replay, got a pass of stage {ran.key.stage} "
                    f"and micro-batch {ran.key.micro_batch} before the pass of stage {ran.source.stage} begins: spans "
                    "may contain waits, which --name wait=NAME subtracts"
                )
            made.passes[ran.sender][ran.source] = (begin, ran.begin)
    return made


def timeline_of(step: Step, copies: Mapping[tuple[int, int], int], info: timelines.TimelineInfo) -> Timeline:
    """Return a step as a Timeline.

    An idle rank waits for its next pass's tensor until arrival, and then for its host.

    Args:
        step: the step.
        copies: greatest transfer cycles of a tensor, by producing and consuming stage.
        info: info of the Timeline.
    """
    rows: list[Row] = []
    row_of: dict[Key, int] = {}
    last: dict[int, int] = {}

    def add(kind: SpanKind, start: int, end: int, cause: int, **others: int) -> int:
        rows.append(_ROW._replace(kind=kind, start=start, end=end, cause=cause, **others))
        return len(rows) - 1

    def begun(ipu: int, until: int, begin: int, cause: int) -> int:
        if until == begin:
            return cause
        add(SpanKind.HOST_WAIT, until, begin, cause, ipu=ipu)
        return add(SpanKind.HOST, until, begin, cause, link=timelines.HostTrack.OUTSIDE)

    for key, ipu, begin, end, before, source, sender, made in step.ran():
        cause, until = last.get(ipu, timelines.NONE), before
        if source:
            come, sent = min(made + copies[source.stage, key.stage], begin), row_of[source]
            if come > made:
                sent = add(SpanKind.SEND, made, come, sent, ipu=sender, stage=source.stage, micro_batch=key.micro_batch)
            if come > until:
                add(SpanKind.RECEIVE_WAIT, until, come, cause, ipu=ipu)
                until, cause = come, sent
        cause = begun(ipu, until, begin, cause)
        row_of[key] = last[ipu] = add(
            key.kind, begin, end, cause, ipu=ipu, stage=key.stage, micro_batch=key.micro_batch
        )
    for ipu, (begin, end) in step.updates.items():
        cause = begun(ipu, rows[last[ipu]].end, begin, last[ipu])
        add(SpanKind.WEIGHT_UPDATE, begin, end, cause, ipu=ipu, time_step=info.time_steps)
    order = sorted(range(len(rows)), key=lambda row: (rows[row].start, rows[row].end, row))
    place = {row: number for number, row in enumerate(order)} | {timelines.NONE: timelines.NONE}
    table = [rows[row]._replace(cause=place[rows[row].cause]) for row in order]
    return Timeline(info, np.array(table, dtype=np.int64))
