"""Lay out Graphcore's grouped schedule, the default of pipelines.

In every time-step between the ramps (fill and drain) each IPU runs a backward pass, and then a forward pass.
"""

from __future__ import annotations

from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.layout import order_of_rows


def offsets(shape: PlanShape) -> tuple[int, ...]:
    """Return the start time-steps of overlapping micro-batches.

    A micro-batch starts in every time-step, for any mapping.
    """
    return tuple(range(shape.steps))


def order(shape: PlanShape) -> Order:
    """Lay out the default schedule of Graphcore's pipelines.

    Raises ProgramError for fewer than two stages, and CountError for a count
    that is not a multiple of 2N in training, of N in inference.
    """
    return order_of_rows("grouped", shape, offsets(shape), 2)
