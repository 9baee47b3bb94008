"""Nested spans of one thread: the time of a pass without receives, updates and recomputations inside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ipusim.app.profiles.names import BACKWARD, FORWARD, OVERLAP, UPDATE, WAIT
from ipusim.app.profiles.spans import Span
from ipusim.base.errors import FileError


def outermost(spans: Sequence[Span], told: Counter[tuple[str, str]]) -> Iterator[Span]:
    """Yield the passes and updates of one thread, which note the receives, updates and recomputations inside them.

    A span lies within another if its middle does: profilers round ends. ``told`` counts spans that are not yielded, by
    a noun and words on their time.

    Raises FileError, whose text is the reason, for a pass within a pass of another kind that is no recomputation.
    """
    open_spans: list[tuple[Span, Fraction]] = []
    waits_until = Fraction(-1)
    for span in sorted(spans, key=lambda span: (span.start_us or 0, -span.us)):
        start = span.start_us or Fraction(0)
        while open_spans and start + span.us / 2 >= open_spans[-1][1]:
            open_spans.pop()
        outer = open_spans[-1][0] if open_spans else None
        if span.what == WAIT:
            if outer is not None and start + span.us / 2 >= waits_until:
                waits_until = start + span.us
                outer.waited_us += span.us
                told["receive", "inside passes: time that is taken off"] += 1
            continue
        if outer is None or outer.what == OVERLAP or (outer.is_part and span.is_part):
            open_spans.append((span, start + span.us))
            yield span
        elif (
            span.what == outer.what
            and span.what != UPDATE
            and (span.stage, span.micro_batch)
            != (
                outer.stage,
                outer.micro_batch,
            )
        ):
            raise FileError(_within(span, outer))
        elif span.what == outer.what:
            told[f"{span.what} span", "inside others of the same kind: in their time"] += 1
        elif span.what == FORWARD and outer.what in BACKWARD:
            outer.recomputed_us += span.us
            told["forward span", "inside backward passes: recomputation, in the time of backward"] += 1
        elif span.what == UPDATE:
            outer.waited_us += span.us
            told["update", "inside passes: time that is taken off"] += 1
            yield span
        else:
            raise FileError(_within(span, outer))


def _within(span: Span, outer: Span) -> str:
    return (
        f"expected passes side by side, got one of {span.what} within one of {outer.what}, at "
        f"{float(span.start_us or 0):.16g} us: say with --name PASS=NAME which of the two is a pass"
    )
