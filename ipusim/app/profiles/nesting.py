"""Resolve nested spans of a thread: subtract receives and updates from passes, note recomputation."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from ipusim.app.profiles.names import BACKWARD, FORWARD, OVERLAP, UPDATE, WAIT
from ipusim.app.profiles.spans import Span
from ipusim.base.errors import FileError

#: Maximum rounding of a span's end by profilers, in microseconds.
_TOLERANCE_US: Final = Fraction(2)


def resolve_nesting(spans: Sequence[Span], remarks: Counter[tuple[str, str]]) -> list[Span]:
    """Return a thread's passes and updates, with the times of nested spans.

    A span is nested if its middle is inside the outer span, since profilers round ends. Nested receives and updates are
    subtracted from the outer pass. A forward pass inside a backward pass is recomputation, and stays in the time of the
    backward pass. A span inside another of the same kind, stage and micro-batch is left out. Spans inside an overlapped
    forward and backward pass, and parts of a pass inside another part, are returned like spans of their own. A receive
    that is posted before a pass and ends inside the pass belongs to this pass.

    ``remarks`` counts nested spans by kind of span and treatment of time, the two parts of a later note.

    Raises FileError for any other pass inside a pass or update.
    """
    open_spans: list[tuple[Span, Fraction]] = []
    result: list[Span] = []
    in_order = sorted(spans, key=lambda span: (span.start_us or 0, -span.us))
    for span in in_order:
        start = span.start_us or Fraction(0)
        while open_spans and start + span.us / 2 >= open_spans[-1][1]:
            open_spans.pop()
        outer = open_spans[-1][0] if open_spans else None
        if span.activity == WAIT:
            continue
        if outer is None or outer.activity == OVERLAP or (outer.is_part and span.is_part):
            open_spans.append((span, start + span.us))
            result.append(span)
        elif (
            span.activity == outer.activity
            and span.activity != UPDATE
            and (span.stage, span.micro_batch) != (outer.stage, outer.micro_batch)
        ):
            raise FileError(_nested_passes_text(span, outer))
        elif span.activity == outer.activity:
            remarks[f"{span.activity} span", "inside others of the same kind: part of their time"] += 1
        elif span.activity == FORWARD and outer.activity in BACKWARD:
            outer.recomputed_us += span.us
            remarks["forward span", "inside backward passes: recomputation, in the time of backward"] += 1
        elif span.activity == UPDATE:
            outer.subtracted_us += span.us
            remarks["update", "inside passes: subtracted from their time"] += 1
            result.append(span)
        else:
            raise FileError(_nested_passes_text(span, outer))
    _subtract_receives([span for span in in_order if span.activity == WAIT], result, remarks)
    return result


def _subtract_receives(receives: Sequence[Span], passes: Sequence[Span], remarks: Counter[tuple[str, str]]) -> None:
    """Subtract receives from the innermost passes in which they end; simultaneous receives count once."""
    starts = [span.start_us or Fraction(0) for span in passes]
    ends_of_receives: dict[int, Fraction] = {}
    for receive in receives:
        start = receive.start_us or Fraction(0)
        last_moment = start + receive.us - min(receive.us / 2, _TOLERANCE_US)
        number = bisect_right(starts, last_moment) - 1
        has_ended = number >= 0 and last_moment >= starts[number] + passes[number].us
        if number > 0 and has_ended and passes[number - 1].activity == OVERLAP:
            number -= 1  # the receive follows this pass, but an overlapped pair around the pass may still run
        if number < 0 or last_moment >= starts[number] + passes[number].us:
            continue
        begin = max(start, starts[number], ends_of_receives.get(number, starts[number]))
        end = min(start + receive.us, starts[number] + passes[number].us)
        if begin < end:
            passes[number].subtracted_us += end - begin
            ends_of_receives[number] = end
            remarks["receive", "inside passes: subtracted from their time"] += 1


def _nested_passes_text(span: Span, outer: Span) -> str:
    return (
        f"expected passes side by side, got one of {span.activity} within one of {outer.activity}, at "
        f"{float(span.start_us or 0):.16g} us: say with --name PASS=NAME which of the two is the pass"
    )
