"""Grouped: every IPU runs a backward and then a forward in each full time-step."""

from __future__ import annotations

from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count, check_overlapped_count, check_stages
from ipusim.schedules.layout import fifo_depths, lay_out


def offsets(shape: PlanShape) -> tuple[int, ...]:
    """Return every rotation, 0..S-1, whatever the mapping: a micro-batch starts in every time-step."""
    return tuple(range(shape.steps))


def order(shape: PlanShape) -> Order:
    """Lay out the default schedule of Graphcore's pipelines.

    With overlapped I/O, passes run one time-step later and there is one more behind them.
    Raises ProgramError for fewer than two stages, and CountError for a count
    that is no multiple of 2N in training, of N in inference.
    """
    check_stages(shape.positions)
    starts = offsets(shape)
    if shape.overlapped_io:
        check_overlapped_count(shape.micro_batches, len(starts))
    else:
        check_count(shape.micro_batches, len(starts))
    return Order(
        "grouped",
        shape,
        offsets=starts,
        emitted=shape.steps * shape.micro_batches // len(starts) + shape.steps + (2 if shape.overlapped_io else 0),
        fifo_depths=fifo_depths(shape, 2),
        table=lay_out(shape, starts),
    )
