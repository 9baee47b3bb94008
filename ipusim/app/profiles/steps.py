"""Divide spans into training steps, which end at weight updates; drop warm-up and steps of unusual counts."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from ipusim.app.profiles.names import FORWARD, OVERLAP, UPDATE
from ipusim.app.profiles.spans import Span

#: Minimum ratio of the length of a warm-up step's passes to the length of later passes.
_WARM_UP_RATIO: Final = Fraction(3, 2)


def number_steps(spans: Sequence[Span], first: int = 0) -> int:
    """Number a rank's steps from ``first``; return the next number.

    A step ends at the updates after its passes. Spans without a start keep the step of their file.
    """
    step, has_update = first, False
    for span in sorted(spans, key=lambda span: span.start_us or 0):
        if span.start_us is not None:
            if has_update and span.activity != UPDATE:
                step, has_update = step + 1, False
            has_update |= span.activity == UPDATE
            span.step = step
        else:
            span.step += first
    return max((span.step for span in spans), default=first - 1) + 1


def drop_warm_up(spans: Sequence[Span], notes: list[str], path: str) -> list[Span]:
    """Drop a first step that took longer than the others, with a note."""
    pass_times: dict[int, list[Fraction]] = defaultdict(list)
    for span in spans:
        if span.activity != UPDATE:
            pass_times[span.step].append(span.pass_us)
    if len(pass_times) < 2:
        return [*spans]
    first = min(pass_times)
    mean_us = {step: sum(values, Fraction(0)) / len(values) for step, values in pass_times.items()}
    usual_us = statistics.median(value for step, value in mean_us.items() if step != first)
    if mean_us[first] <= _WARM_UP_RATIO * usual_us:
        return [*spans]
    ratio = float(mean_us[first] / usual_us) if usual_us else float("inf")
    notes.append(
        f"{path}: passes of the first step took {ratio:.3g} times as long as passes of the other steps: the first "
        "step is left out as warm-up."
    )
    return [span for span in spans if span.step != first]


def with_usual_count(spans: Sequence[Span], notes: list[str]) -> tuple[list[Span], int | None]:
    """Return the spans of steps with the usual number of micro-batches, and this number.

    Other steps are left out with a note: a restarted job, a ramp-up of the batch, or a partly measured step. The number
    is None if unknown.
    """
    update_steps = {(span.rank, span.step) for span in spans if span.activity == UPDATE}
    sums: dict[tuple[int, str, int], int] = defaultdict(int)
    numbers_of: dict[tuple[int, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for span in spans:
        if span.activity in (FORWARD, OVERLAP):
            sums[span.rank, span.stage, span.step] += span.micro_batches
            if span.micro_batch is not None:
                numbers_of[span.rank, span.stage][span.step].add(span.micro_batch)
    counts = {}
    for (rank, stage, step), number in sums.items():
        if steps := numbers_of.get((rank, stage)):
            # If the first step does not hold micro-batches 0, 1, ... without a gap, the steps are parts of a single
            # step.
            is_gapless = steps[min(steps)] == {*range(len(steps[min(steps)]))}
            counts[rank, stage, step] = len(steps[step] if is_gapless else set().union(*steps.values()))
        elif not update_steps or (rank, step) in update_steps:
            counts[rank, stage, step] = number
    if not counts or not (update_steps or numbers_of or any(span.micro_batches > 1 for span in spans)):
        return [*spans], None
    steps_of_count = Counter(counts.values())
    usual = max(
        steps_of_count,
        key=lambda count: (steps_of_count[count], max(key[2] for key, value in counts.items() if value == count)),
    )
    unusual = {(rank, step) for (rank, _, step), count in counts.items() if count != usual}
    if not unusual:
        return [*spans], usual
    counts_text = ", ".join(
        f"{count} in {len({key[2] for key, value in counts.items() if value == count})}"
        for count in sorted(steps_of_count)
    )
    notes.append(f"Micro-batches of a step differ: {counts_text} steps. The medians are of steps with {usual}.")
    return [span for span in spans if (span.rank, span.step) not in unusual], usual
