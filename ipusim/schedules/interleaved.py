"""Interleaved: every IPU alternates forward and backward passes, one per time-step, and keeps fewer activations."""

from __future__ import annotations

from collections import defaultdict

from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.layout import order_of_rows


def offsets(shape: PlanShape) -> tuple[int, ...]:
    """Choose start time-steps of overlapping micro-batches greedily, so that no IPU has two steps at once.

    A start rotates the cyclic sequence of the IPUs of a micro-batch's steps. A start is accepted if its rotation
    differs from every accepted rotation in every place.
    """
    steps, steps_of = shape.steps, defaultdict[int, list[int]](list)
    for step, ipu in enumerate(shape.device_of_step):
        steps_of[ipu].append(step)
    # Two rotations collide on an IPU if their distance equals the distance of two of its steps.
    meeting = {
        (first - second) % steps for ipu_steps in steps_of.values() for first in ipu_steps for second in ipu_steps
    }
    starts: list[int] = []
    for start in range(steps):
        if not any(start - earlier in meeting for earlier in starts):
            starts.append(start)
    return tuple(starts)


def order(shape: PlanShape) -> Order:
    """Lay out the schedule with the smallest overlap that keeps every IPU busy.

    Raises ProgramError for fewer than two stages, and CountError for a count that
    is no multiple of the overlap length.
    """
    return order_of_rows("interleaved", shape, offsets(shape), 1)
