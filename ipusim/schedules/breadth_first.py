"""Lay out the breadth-first schedule: an IPU runs all micro-batches through a stage before its next stage.

Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023; ScheduleLoopedBFS of torch.distributed.pipelining, which
also runs the last micro-batch backward first. Ramps (fill and drain) are as short as in interleaved 1F1B: each IPU
delays the next by one of its stages. But an IPU keeps all micro-batches. The advantage is that gradients of a stage are
complete early.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, chunks_of, ranked_order


def order(shape: PlanShape) -> Order:
    """Lay out the Order.

    Raises ProgramError for fewer than two stages, CountError for a count below 1, and UnsupportedProgramError unless
    a micro-batch visits all IPUs in one cyclic order, equally often.
    """
    return ranked_order("breadth_first", shape, chunks_of, lambda _rank, _ipus, chunks: _passes(shape, chunks))


def _passes(shape: PlanShape, chunks: int) -> Iterator[ChunkPass]:
    for chunk in range(chunks):
        for micro_batch in range(shape.micro_batches):
            yield Pass.FORWARD, chunk, micro_batch
    for chunk in reversed(range(chunks if shape.training else 0)):
        for micro_batch in reversed(range(shape.micro_batches)):
            yield Pass.BACKWARD, chunk, micro_batch
