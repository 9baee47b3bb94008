"""Lay out GPipe: all forward passes, then all backward passes (Huang et al., NeurIPS 2019, figure 2)."""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.pipeline.shape import PlanShape


def order(shape: PlanShape) -> Order:
    """Lay out the Order; an IPU runs every micro-batch through a stage before its next stage.

    Raises ProgramError for fewer than two stages and CountError for a count below 1.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    runs = [(shape.mapping[stage], Pass.FORWARD, stage) for stage in range(shape.stages)]
    if shape.training:
        runs += [(ipu, Pass.BACKWARD, stage) for ipu, _, stage in reversed(runs)]
    micro_batches = np.tile(np.arange(shape.micro_batches), len(runs))
    table = np.column_stack([np.repeat(np.array(runs), shape.micro_batches, axis=0), micro_batches])
    return Order("gpipe", shape, table=table)
