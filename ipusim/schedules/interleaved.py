"""Interleaved: every IPU runs one pass a time-step, forward and backward in turn, and keeps fewer activations."""

from __future__ import annotations

from collections import defaultdict

from ipusim.pipeline.plan import CopyRule, Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import (
    INTERLEAVED,
    THEN_BACKPROPAGATE,
    check_count,
    check_interleaved,
    check_no_overlapped_io,
    check_not_serialized,
    check_stages,
    recomputation,
)
from ipusim.schedules.layout import fifo_depths, lay_out


def offsets(shape: PlanShape) -> tuple[int, ...]:
    """Return the rotations that never put two steps on one IPU at once, chosen greedily from 0.

    A rotation of the steps' IPUs is taken if it differs from every one taken
    before in every place, so that each IPU has at most one step a time-step.
    """
    steps, places = shape.steps, defaultdict[int, list[int]](list)
    for place, ipu in enumerate(shape.device_of_step):
        places[ipu].append(place)
    # Two rotations meet on an IPU where they are as far apart as two steps on it.
    meeting = {(one - other) % steps for each in places.values() for one in each for other in each}
    chosen: list[int] = []
    for start in range(steps):
        if not any(start - other in meeting for other in chosen):
            chosen.append(start)
    return tuple(chosen)


def plan(shape: PlanShape) -> Plan:
    """Lay out the schedule with the smallest overlap that keeps every IPU busy.

    Raises ProgramError for fewer than two stages, UnsupportedProgramError for
    training with several stages on one IPU, and CountError for a count that is
    no multiple of the overlap length.
    """
    check_not_serialized(shape.serialization)
    check_stages(shape.positions)
    check_interleaved([[shape.mapping[stage] for stage in parts] for parts in shape.parts], shape.training)
    check_no_overlapped_io(shape.overlapped_io, "interleaved")
    if shape.recompute_inline:
        recomputation(INTERLEAVED, (THEN_BACKPROPAGATE,), "interleaved")
    starts = offsets(shape)
    check_count(shape.micro_batches, len(starts))
    return Plan(
        "interleaved",
        shape,
        offsets=starts,
        emitted=shape.steps * shape.micro_batches // len(starts) + shape.steps,
        fifo_depths=fifo_depths(shape, 1),
        copy_rule=CopyRule.MERGED,
        table=lay_out(shape, starts),
    )
