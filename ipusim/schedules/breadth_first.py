"""Breadth first: an IPU runs all micro-batches through one of its stages before the first through its next.

Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023; ScheduleLoopedBFS of torch.distributed.pipelining, which
takes micro-batches backward from the last one, as here. Its ramps are those of interleaved 1F1B, one stage of an IPU
long, but an IPU keeps all micro-batches; what it gains is that the gradients of a stage are complete early.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, chunks_of, ranked_order


def order(shape: PlanShape) -> Order:
    """Return the Order.

    Raises ProgramError for fewer than two stages, CountError for a count below 1, and UnsupportedProgramError unless
    a micro-batch goes round all IPUs in one order, equally often.
    """
    return ranked_order("breadth_first", shape, chunks_of, lambda _rank, _ipus, chunks: _passes(shape, chunks))


def _passes(shape: PlanShape, chunks: int) -> Iterator[ChunkPass]:
    for chunk in range(chunks):
        for micro_batch in range(shape.micro_batches):
            yield Pass.FORWARD, chunk, micro_batch
    for chunk in reversed(range(chunks if shape.training else 0)):
        for micro_batch in reversed(range(shape.micro_batches)):
            yield Pass.BACKWARD, chunk, micro_batch
