"""Lay out Graphcore's interleaved schedule: IPUs alternate forward and backward passes, one per time-step.

A stage keeps the activations of fewer micro-batches than in the grouped schedule. A micro-batch goes through steps, a
forward and a backward pass of each stage; the overlap, one micro-batch per offset, is the number under way at a time.
"""

from __future__ import annotations

from collections import defaultdict

from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.layout import order_of_rows


def offsets(shape: PlanShape) -> tuple[int, ...]:
    """Choose the start time-steps of overlapping micro-batches, so that no IPU has two steps at once.

    Candidates are the time-steps 0 to S - 1, for S steps of a micro-batch. Micro-batches begin at a start, and every S
    time-steps after it. A candidate is accepted unless one of its micro-batches would meet, on some IPU, a micro-batch
    of an earlier start.
    """
    steps, steps_of = shape.steps, defaultdict[int, list[int]](list)
    for step, ipu in enumerate(shape.device_of_step):
        steps_of[ipu].append(step)
    # Two micro-batches are on an IPU at once if their starts differ by the distance between two steps of that IPU.
    colliding_distances = {
        (first - second) % steps for ipu_steps in steps_of.values() for first in ipu_steps for second in ipu_steps
    }
    starts: list[int] = []
    for start in range(steps):
        if not any(start - accepted in colliding_distances for accepted in starts):
            starts.append(start)
    return tuple(starts)


def order(shape: PlanShape) -> Order:
    """Lay out the schedule, with the overlap that :func:`offsets` finds.

    Raises ProgramError for fewer than two stages, and CountError for a number of micro-batches that is not a multiple
    of the overlap.
    """
    return order_of_rows("interleaved", shape, offsets(shape), 1)
