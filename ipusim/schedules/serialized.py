"""Batch serialization: Sequential on one IPU, each stage running several micro-batches before the next stage begins.

In Graphcore's compiler the body of each stage becomes a loop, and the values between
stages become buffers of as many elements; the last stage's forward and backward share one
loop (pipeline_batch_serialization_loop_inserter.cc, .._buffer_inserter.cc).
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PlanShape
from ipusim.schedules.layout import Table


def time_step_of(shape: PlanShape, step: int, micro_batch: int) -> int:
    """Return when a step of a micro-batch's life runs: one pass a time-step, a loop of each stage after another."""
    loop = shape.serialization
    group, turn = divmod(micro_batch, loop)
    start = group * shape.steps * loop
    if shape.training and step in (
        shape.positions - 1,
        shape.positions,
    ):  # the last stage: forward and backward in turn
        return start + (shape.positions - 1) * loop + 2 * turn + (step - shape.positions + 1)
    return start + step * loop + turn


def lay_out_serialized(shape: PlanShape) -> Table:
    """Return the table of all operations, shape (operations, 5), in the order of a Plan's columns."""
    rows = []
    for step in range(shape.steps):
        kind = Pass.FORWARD if step < shape.positions else Pass.BACKWARD
        for stage in shape.stages_of_step(step):
            for micro_batch in range(shape.micro_batches):
                at = time_step_of(shape, step, micro_batch)
                rows.append((at, shape.mapping[stage], int(kind), stage, micro_batch))
    return np.array(rows, dtype=np.int64)


def buffer_depths(shape: PlanShape) -> tuple[int, ...]:
    """Return the elements of each stage's buffer of activations: a loop's, but for the last stage, which needs none."""
    last = shape.positions - 1
    return tuple(shape.serialization if position < last else 0 for position in shape.position_of)
