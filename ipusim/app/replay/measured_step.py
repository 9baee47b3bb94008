"""Align the passes of a measured training step on a common clock, in cycles, and return a Timeline."""

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
_BACKWARD: Final = (SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT)
#: Maximum error from rounding by profilers, in microseconds.
_TOLERANCE_US: Final = 2
#: A send within a pass's span takes at most the shortest pass's time, divided by this number.
_SEND_DIVISOR: Final = 20
#: Row of a Timeline before columns are set.
_ROW: Final = Row(0, 0, 0, -1, -1, -1, 0, 0, -1, 0, -1, 0)


class Key(NamedTuple):
    """Pass: span kind, stage and micro-batch."""

    kind: SpanKind
    stage: int
    micro_batch: int


class PassRun(NamedTuple):
    """Executed pass.

    Attributes:
        key: the pass.
        ipu: IPU of the pass.
        begin, end: begin and end in cycles.
        idle_from: end of the previous pass on the IPU; 0 for the first.
        source: pass on another IPU that produces the input tensor; None without one.
        sender: IPU of ``source``.
        made_at: end of ``source``.
    """

    key: Key
    ipu: int
    begin: int
    end: int
    idle_from: int
    source: Key | None
    sender: int
    made_at: int


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
        ends = [end for spans in self.passes.values() for _, end in spans.values()]
        return max(*ends, *(end for _, end in self.updates.values()))

    def pass_runs(self) -> list[PassRun]:
        """Return the passes, sorted by begin, with predecessors and senders."""
        producers = {key: (ipu, end) for ipu, spans in self.passes.items() for key, (_, end) in spans.items()}
        result = []
        for ipu, spans in self.passes.items():
            last_end = 0
            for key, (begin, end) in spans.items():
                forward = key.kind == SpanKind.FORWARD
                kinds = (SpanKind.FORWARD,) if forward else _BACKWARD if key.kind in _BACKWARD else ()
                sources = (Key(kind, key.stage + (-1 if forward else 1), key.micro_batch) for kind in kinds)
                source = next(
                    (candidate for candidate in sources if candidate in producers and producers[candidate][0] != ipu),
                    None,
                )
                result.append(
                    PassRun(key, ipu, begin, end, last_end, source, *(producers[source] if source else (0, 0)))
                )
                last_end = end
        return sorted(result, key=lambda item: (item.begin, item.end))


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
        if span.activity in KINDS:
            ranks[stages.mapping[names[span.stage]]].add(span.rank)
    for ipu, ranks_of_ipu in ranks.items():
        if len(ranks_of_ipu) > 1:
            stage = [*stages.stages][stages.mapping.index(ipu)]
            raise FileError(
                f"expected one rank of each stage to replay, got {len(ranks_of_ipu)} of stage {stage}: import the "
                "files of one pipeline"
            )
    ipu_of = {rank: ipu for ipu, (rank,) in ranks.items()}
    by_step: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(stages.spans, key=lambda span: (span.start_us or 0) + span.subtracted_us):
        if span.rank in ipu_of:
            by_step[span.step].append(span)
    origin = min(span.start_us or Fraction(0) for span in stages.spans)
    steps = [_step(spans, ipu_of, names, origin, clock_hz) for spans in by_step.values()]
    sizes = [sum(map(len, step.passes.values())) for step in steps]
    complete_steps = [step for step, size in zip(steps, sizes, strict=True) if size == max(sizes)]
    shifts = _shifts(complete_steps)
    return [_shift_step(step, shifts) for step in complete_steps], shifts


def _step(
    spans: Sequence[Span], ipu_of: Mapping[int, int], names: Mapping[str, int], origin: Fraction, clock_hz: int
) -> Step:
    """Return the step of spans sorted by begin."""

    def cycles(us: Fraction) -> int:
        return round((us - origin) * clock_hz / 1_000_000)

    step = Step({ipu: {} for ipu in sorted(ipu_of.values())})
    micro_batches = {span.micro_batch for span in spans if span.micro_batch is not None}
    numbers = {number: position for position, number in enumerate(sorted(micro_batches))}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    last_end_cycles: dict[int, int] = {}
    last_end_us: dict[int, Fraction] = defaultdict(Fraction)
    for span in spans:
        ipu, begin = ipu_of[span.rank], (span.start_us or Fraction(0)) + span.subtracted_us
        end = begin - span.subtracted_us + span.us
        if span.activity == OVERLAP:
            if not any(_is_inside(neighbour, span) for neighbour in spans):
                raise FileError(
                    "expected the times of each pass to replay, got overlapped pairs of a forward and a backward pass: "
                    "give each of the two a span in the pair"
                )
            continue
        if begin < last_end_us[ipu] - _TOLERANCE_US:
            raise FileError(
                f"expected the passes and updates of rank {span.rank} one after the other to replay, got "
                f"{span.activity} at {float(begin):.16g} us before the end of the previous pass"
            )
        last_end_us[ipu] = max(end, last_end_us[ipu])
        begin_cycles = max(cycles(begin), last_end_cycles.get(ipu, 0))
        last_end_cycles[ipu] = max(cycles(end), begin_cycles)
        if span.activity == UPDATE:
            step.updates[ipu] = (step.updates.get(ipu, (begin_cycles, 0))[0], last_end_cycles[ipu])
            continue
        count = counts[span.activity, span.stage]
        counts[span.activity, span.stage] += 1
        number = count if span.micro_batch is None else numbers[span.micro_batch]
        key = Key(KINDS[span.activity], names[span.stage], number)
        if key in step.passes[ipu]:
            raise FileError(
                f"expected each pass once in a step to replay, got {span.activity} of stage {span.stage} and "
                f"micro-batch {number} twice, at {float(begin):.16g} us: a weight update ends a step"
            )
        step.passes[ipu][key] = (begin_cycles, last_end_cycles[ipu])
    return step


def _is_inside(span: Span, pair: Span) -> bool:
    begin = pair.start_us or Fraction(0)
    return span.rank == pair.rank and span.activity != OVERLAP and begin <= (span.start_us or 0) < begin + pair.us


def _shifts(steps: Sequence[Step]) -> dict[int, int]:
    """Return the clock shift of every IPU in cycles.

    Shifts make passes begin after their tensors are produced.

    An IPU's shift is 0 unless awaited tensors usually arrive before they are produced. They must arrive earlier by more
    than sends within the spans of both ranks explain, and by more than a small share of the shortest pass, since sends
    may be within one rank's spans only.
    """
    #: Cycles by which awaited tensors arrive before the end of their pass, by sending and receiving IPU.
    early: dict[tuple[int, int], list[int]] = defaultdict(list)
    passes = [item for step in steps for item in step.pass_runs()]
    shortest = min(item.end - item.begin for item in passes)
    for item in passes:
        if item.source is not None and item.made_at >= item.idle_from:
            early[item.sender, item.ipu].append(item.made_at - item.begin)
    usual = {ends: statistics.median_low(cycles) for ends, cycles in early.items()}
    shifts: dict[int, int] = {}
    for ipu in steps[0].passes:
        lows = [
            shifts[sender] + cycles
            for (sender, receiver), cycles in usual.items()
            if receiver == ipu and sender in shifts
        ]
        highs = [
            shifts[receiver] - cycles
            for (sender, receiver), cycles in usual.items()
            if sender == ipu and receiver in shifts
        ]
        low = max(lows, default=min([0, *highs]))
        high = min(highs, default=max(low, 0))
        is_aligned = max(low, -high, 0) <= max(low - high, shortest // _SEND_DIVISOR, 0)
        shifts[ipu] = 0 if is_aligned else (low + high) // 2
    return shifts


def _shift_step(step: Step, shifts: Mapping[int, int]) -> Step:
    """Return a step with aligned clocks, in cycles from its first pass.

    A pass ends at the latest when another IPU first uses its tensor; the rest of its span was a send, and is cut off.
    Raises FileError for a tensor used before its pass begins.
    """
    first = min(shifts[ipu] + begin for ipu, spans in step.passes.items() for begin, _ in spans.values())

    def shift_span(ipu: int, span: tuple[int, int]) -> tuple[int, int]:
        return span[0] + shifts[ipu] - first, span[1] + shifts[ipu] - first

    result = Step(
        {ipu: {key: shift_span(ipu, span) for key, span in spans.items()} for ipu, spans in step.passes.items()},
        {ipu: shift_span(ipu, span) for ipu, span in step.updates.items()},
    )
    for item in result.pass_runs():
        if item.source is not None and item.begin < item.made_at:
            begin, end = result.passes[item.sender][item.source]
            if item.begin <= begin < end:
                raise FileError(
                    f"expected passes that begin after their inputs to replay, got a pass of stage {item.key.stage} "
                    f"and micro-batch {item.key.micro_batch} before the pass of stage {item.source.stage} begins: "
                    "spans may contain waits, which --name wait=NAME subtracts"
                )
            result.passes[item.sender][item.source] = (begin, item.begin)
    return result


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

    def add(kind: SpanKind, start: int, end: int, cause: int, **columns: int) -> int:
        rows.append(_ROW._replace(kind=kind, start=start, end=end, cause=cause, **columns))
        return len(rows) - 1

    def add_wait(ipu: int, idle_from: int, begin: int, cause: int) -> int:
        if idle_from == begin:
            return cause
        add(SpanKind.HOST_WAIT, idle_from, begin, cause, ipu=ipu)
        return add(SpanKind.HOST, idle_from, begin, cause, link=timelines.HostTrack.OUTSIDE)

    for key, ipu, begin, end, last_end, source, sender, made_at in step.pass_runs():
        cause, idle_from = last.get(ipu, timelines.NONE), last_end
        if source:
            arrival, send_row = min(made_at + copies[source.stage, key.stage], begin), row_of[source]
            if arrival > made_at:
                send_row = add(
                    SpanKind.SEND,
                    made_at,
                    arrival,
                    send_row,
                    ipu=sender,
                    stage=source.stage,
                    micro_batch=key.micro_batch,
                )
            if arrival > idle_from:
                add(SpanKind.RECEIVE_WAIT, idle_from, arrival, cause, ipu=ipu)
                idle_from, cause = arrival, send_row
        cause = add_wait(ipu, idle_from, begin, cause)
        row_of[key] = last[ipu] = add(
            key.kind, begin, end, cause, ipu=ipu, stage=key.stage, micro_batch=key.micro_batch
        )
    for ipu, (begin, end) in step.updates.items():
        cause = add_wait(ipu, rows[last[ipu]].end, begin, last[ipu])
        add(SpanKind.WEIGHT_UPDATE, begin, end, cause, ipu=ipu, time_step=info.time_steps)
    order = sorted(range(len(rows)), key=lambda row: (rows[row].start, rows[row].end, row))
    row_number = {row: number for number, row in enumerate(order)} | {timelines.NONE: timelines.NONE}
    table = [rows[row]._replace(cause=row_number[rows[row].cause]) for row in order]
    return Timeline(info, np.array(table, dtype=np.int64))
