"""Lay out micro-batches over time-steps like Graphcore's compiler: in V rows with offsets, one step per time-step.

A micro-batch takes S steps: a pass in each stage forward, then backward. Micro-batches are divided among V rows: row j
runs micro-batches j, V + j, 2V + j, ... one after another, from time-step k_j = ``offsets[j]`` on. At time-step t it
runs step ``(t - k_j) mod S`` of micro-batch ``floor((t - k_j) / S) * V + j`` (``pipeline_visitor_utils.h`` in
Graphcore's TensorFlow: ramp-up, repeat and ramp-down blocks of one rotated stage sequence).
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_overlapped_count, check_stages
from ipusim.pipeline.shape import PlanShape


def lay_out(shape: PlanShape, offsets: tuple[int, ...]) -> Table:
    """Return the operations as a Plan's table, shape (operations, 5).

    Operations of one IPU and time-step are in descending step order (backward
    before forward, older micro-batches first), followed by recomputations.
    ``shape.micro_batches`` must be a multiple of the number of offsets.
    """
    steps, overlap = shape.steps, len(offsets)
    step_of_row = np.arange(steps * shape.micro_batches // overlap)
    step = np.tile(step_of_row % steps, overlap)
    row = np.repeat(np.arange(overlap), len(step_of_row))
    time_step = np.tile(step_of_row, overlap) + np.asarray(offsets)[row]
    micro_batch = np.tile(step_of_row // steps, overlap) * overlap + row
    backward = step >= shape.positions
    position = np.where(backward, 2 * shape.positions - 1 - step, step)
    if shape.sizes:  # concurrent parts run in the same step
        parts = np.asarray(shape.sizes)[position]
        row = np.repeat(np.arange(len(position)), parts)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
        time_step, micro_batch, step, backward = time_step[row], micro_batch[row], step[row], backward[row]
        position = np.asarray([stages[0] for stages in shape.parts])[position[row]] + nth
    stage = position
    kind = np.where(backward, int(Pass.BACKWARD), int(Pass.FORWARD))
    rank = -step
    if shape.overlapped_io:
        time_step += 1  # the first stage's infeed precedes
    table = np.stack([time_step, np.asarray(shape.mapping)[stage], kind, stage, micro_batch], axis=1)
    if shape.recompute and shape.training:
        recompute_rows = table[backward & (stage < shape.stages - 1)].copy()
        recompute_rows[:, 0] -= 1
        recompute_rows[:, 2] = Pass.RECOMPUTE
        table = np.concatenate([table, recompute_rows])
        rank = np.concatenate([rank, steps - np.asarray(shape.position_of)[recompute_rows[:, 3]]])
    # A single number sorts by time-step, IPU and rank.
    ipus, ranks = int(table[:, 1].max()) + 1, 2 * steps + 1
    return table[np.argsort((table[:, 0] * ipus + table[:, 1]) * ranks + rank + steps, kind="stable")]


def order_of_rows(schedule: str, shape: PlanShape, offsets: tuple[int, ...], depth: int) -> Order:
    """Build the Order of a schedule with overlapping rows.

    With overlapped I/O, passes run one time-step later, and one time-step follows.

    Args:
        schedule: name of the schedule.
        shape: shape to lay out.
        offsets: offsets of the rows; the number of micro-batches must be a multiple of the number of rows.
        depth: depth of a stage's activation FIFO per position of the pipeline after the stage.

    Raises ProgramError for fewer than two stages, and CountError for an indivisible count.
    """
    check_stages(shape.positions)
    check = check_overlapped_count if shape.overlapped_io else check_count
    check(shape.micro_batches, len(offsets))
    return Order(
        schedule,
        shape,
        offsets=offsets,
        emitted=shape.steps * shape.micro_batches // len(offsets) + shape.steps + (2 if shape.overlapped_io else 0),
        fifo_depths=fifo_depths(shape, depth),
        table=lay_out(shape, offsets),
    )


def fifo_depths(shape: PlanShape, factor: int) -> tuple[int, ...]:
    """Return the depth of each stage's activation FIFO: ``factor`` times the number of positions after the stage."""
    last = shape.positions - 1
    return tuple(factor * (last - position) for position in shape.position_of) if shape.training else ()
