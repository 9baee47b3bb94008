"""GPipe: all forward passes, then all backward passes (Huang et al., GPipe, NeurIPS 2019, figure 2)."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count, check_stages


def order(shape: PlanShape) -> Order:
    """Return the Order; an IPU with several stages runs all micro-batches through each before the next.

    Raises ProgramError for fewer than two stages and CountError for a count below 1.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    return Order.of("gpipe", shape, {ipu: _passes(shape, ipu) for ipu in sorted(set(shape.mapping))})


def _passes(shape: PlanShape, ipu: int) -> Iterator[Op]:
    stages = [stage for stage in range(shape.stages) if shape.mapping[stage] == ipu]
    kinds = (Pass.FORWARD, Pass.BACKWARD) if shape.training else (Pass.FORWARD,)
    for kind in kinds:
        for stage in stages if kind is Pass.FORWARD else reversed(stages):
            for micro_batch in range(shape.micro_batches):
                yield Op(kind, stage, micro_batch)
