"""Lay out PopART's pipeline: the last stage's forward and backward pass are one pipeline stage, in one cycle.

Graphcore, PopART, docs/notes/transforms/pipelining.md: L IPUs have P = 2 L - 1 pipeline stages in training, and
pipeline stage s runs micro-batch c - s in cycle c. An IPU runs its forward pass before its backward pass. PopART needs
one cycle fewer than Grouped, where the last IPU's two passes are one cycle apart. PopART accepts any count from P up.
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_main_cycles, check_stages
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.layout import fifo_depths


def order(shape: PlanShape) -> Order:
    """Lay out the Order with a time-step per cycle.

    Raises ProgramError for fewer than two stages, and CountError for fewer micro-batches than pipeline stages.
    """
    check_stages(shape.positions)
    last = shape.stages - 1
    pipeline_stages = 2 * last + 1 if shape.training else last + 1
    check_main_cycles(shape.micro_batches, pipeline_stages)
    stage, micro_batch = np.divmod(np.arange(shape.stages * shape.micro_batches), shape.micro_batches)
    ipu = np.asarray(shape.mapping)[stage]
    kinds_and_numbers = [(Pass.FORWARD, stage), (Pass.BACKWARD, 2 * last - stage)]
    tables = [
        np.column_stack([micro_batch + number, ipu, np.full_like(stage, kind), stage, micro_batch])
        for kind, number in kinds_and_numbers[: 2 if shape.training else 1]
    ]
    return Order(
        "popart",
        shape,
        offsets=tuple(range(pipeline_stages)),
        emitted=shape.micro_batches + pipeline_stages - 1,
        fifo_depths=fifo_depths(shape, 2),
        table=np.concatenate(tables),
    )
