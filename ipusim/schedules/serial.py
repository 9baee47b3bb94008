"""Lay out schedules with one micro-batch alive at a time: Sequential, sharded execution, a single IPU.

Batch serialization is Sequential on one IPU, with each stage running several micro-batches before the next begins.
In Graphcore's compiler the body of each stage becomes a loop, and values between stages become buffers with as many
elements; the last stage's forward and backward share one loop (pipeline_batch_serialization_loop_inserter.cc,
.._buffer_inserter.cc).
"""

from __future__ import annotations

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import CopyRule, Order
from ipusim.pipeline.rules import check_count, check_serialized, check_stages
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.layout import lay_out


def sequential(shape: PlanShape) -> Order:
    """Lay out Graphcore's Sequential schedule: one stage at a time, followed by a copy and a sync.

    With batch serialization each stage runs several micro-batches before the next begins.
    Raises ProgramError for fewer than two stages, CountError for a count below 1, and
    UnsupportedProgramError for batch serialization over several IPUs.
    """
    check_stages(shape.positions)
    check_serialized(shape.serialization, shape.mapping)
    return _one_at_a_time("sequential", shape, CopyRule.EACH_STAGE)


def sharded(shape: PlanShape) -> Order:
    """Lay out sharded execution: no pipeline, copies and syncs only between IPUs.

    Raises CountError for a count below 1.
    """
    return _one_at_a_time("sharded", shape, CopyRule.CROSSING)


def single(shape: PlanShape) -> Order:
    """Lay out a program of one IPU with gradient accumulation: no copies, no syncs.

    Raises ProgramError for stages mapped to several IPUs, CountError for a count below 1.
    """
    if len(set(shape.mapping)) > 1:
        raise ProgramError(
            f"The schedule 'single' runs on one IPU, but the stages are mapped to IPUs "
            f"{', '.join(map(str, sorted(set(shape.mapping))))}; use 'sharded' to run one micro-batch at a time there."
        )
    return _one_at_a_time("single", shape, CopyRule.CROSSING)


def _one_at_a_time(schedule: str, shape: PlanShape, copy_rule: CopyRule) -> Order:
    check_count(shape.micro_batches, 1)
    offsets = (0,)  # the next micro-batch begins after the previous one
    serialized = shape.serialization > 1
    depths = _buffer_depths(shape) if serialized else (0,) * shape.stages
    return Order(
        schedule,
        shape,
        offsets=offsets,
        emitted=shape.steps * shape.micro_batches,
        fifo_depths=depths if shape.training else (),
        copy_rule=copy_rule,
        table=_lay_out_serialized(shape) if serialized else lay_out(shape, offsets),
    )


def time_step_of(shape: PlanShape, step: int, micro_batch: int) -> int:
    """Return the time-step in which a micro-batch runs a step of its life, under batch serialization.

    A time-step has a single pass. Each stage runs a loop over a group of micro-batches, then the next stage follows."""
    loop = shape.serialization
    group, index_in_group = divmod(micro_batch, loop)
    start = group * shape.steps * loop
    if shape.training and step in (
        shape.positions - 1,
        shape.positions,
    ):  # the last stage alternates forward and backward
        return start + (shape.positions - 1) * loop + 2 * index_in_group + (step - shape.positions + 1)
    return start + step * loop + index_in_group


def _lay_out_serialized(shape: PlanShape) -> Table:
    """Return the operations as a Plan's table, shape (operations, 5)."""
    rows = []
    for step in range(shape.steps):
        kind = Pass.FORWARD if step < shape.positions else Pass.BACKWARD
        for stage in shape.stages_of_step(step):
            for micro_batch in range(shape.micro_batches):
                time_step = time_step_of(shape, step, micro_batch)
                rows.append((time_step, shape.mapping[stage], int(kind), stage, micro_batch))
    return np.array(rows, dtype=np.int64)


def _buffer_depths(shape: PlanShape) -> tuple[int, ...]:
    """Return elements of each stage's activation buffer: loop length, or 0 for the last stage."""
    last = shape.positions - 1
    return tuple(shape.serialization if position < last else 0 for position in shape.position_of)
