"""Schedules with one micro-batch alive at a time: Sequential, sharded execution, and a single IPU."""

from __future__ import annotations

from ipusim.base.errors import ProgramError
from ipusim.pipeline.order import CopyRule, Order
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count, check_serialized, check_stages
from ipusim.schedules.layout import lay_out
from ipusim.schedules.serialized import buffer_depths, lay_out_serialized


def offsets(shape: PlanShape) -> tuple[int, ...]:  # noqa: ARG001 - the signature that every schedule has
    """Return the one start, 0: the next micro-batch begins when the one before is done."""
    return (0,)


def sequential(shape: PlanShape) -> Order:
    """Lay out Graphcore's Sequential schedule: one stage at a time, a copy and a sync after each.

    With batch serialization each stage runs several micro-batches before the next one begins.
    Raises ProgramError for fewer than two stages, CountError for a count below 1, and
    UnsupportedProgramError for batch serialization over several IPUs.
    """
    check_stages(shape.positions)
    check_serialized(shape.serialization, shape.mapping)
    if shape.serialization > 1:
        return _serialized(shape)
    return _one_at_a_time("sequential", shape, CopyRule.EACH_STAGE)


def sharded(shape: PlanShape) -> Order:
    """Lay out sharded execution: no pipeline, copies and syncs only where a tensor crosses IPUs.

    Raises CountError for a count below 1.
    """
    return _one_at_a_time("sharded", shape, CopyRule.CROSSING)


def single(shape: PlanShape) -> Order:
    """Lay out a program of one IPU with gradient accumulation: no copies, no syncs.

    Raises ProgramError when the stages are mapped to more than one IPU, CountError for a count below 1.
    """
    if len(set(shape.mapping)) > 1:
        raise ProgramError(
            f"The schedule 'single' runs on one IPU, but the stages are mapped to IPUs "
            f"{', '.join(map(str, sorted(set(shape.mapping))))}; use 'sharded' to run one micro-batch at a time there."
        )
    return _one_at_a_time("single", shape, CopyRule.CROSSING)


def _serialized(shape: PlanShape) -> Order:
    check_count(shape.micro_batches, 1)
    return Order(
        "sequential",
        shape,
        offsets=(0,),
        emitted=shape.steps * shape.micro_batches,
        fifo_depths=buffer_depths(shape) if shape.training else (),
        copy_rule=CopyRule.EACH_STAGE,
        table=lay_out_serialized(shape),
    )


def _one_at_a_time(schedule: str, shape: PlanShape, copy_rule: CopyRule) -> Order:
    check_count(shape.micro_batches, 1)
    return Order(
        schedule,
        shape,
        offsets=offsets(shape),
        emitted=shape.steps * shape.micro_batches,
        fifo_depths=(0,) * shape.stages if shape.training else (),
        copy_rule=copy_rule,
        table=lay_out(shape, offsets(shape)),
    )
