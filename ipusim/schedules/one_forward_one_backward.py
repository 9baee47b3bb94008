"""1F1B: after a warm-up each IPU runs a forward and a backward pass in turn.

PipeDream-Flush in Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021; the default of
Megatron-LM. As fast as GPipe, and an IPU keeps no more micro-batches than there are IPUs from it to the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape
from ipusim.schedules.chunks import ChunkPass, one_chunk_order


def order(shape: PlanShape) -> Order:
    """Return the Order; several stages of one IPU that follow each other run as one.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    a micro-batch that comes back to an IPU.
    """
    return one_chunk_order("1f1b", shape, lambda ahead, _: _passes(shape.micro_batches, ahead))


def _passes(count: int, ahead: int) -> Iterator[ChunkPass]:
    """Yield the passes of an IPU that keeps up to ``ahead`` micro-batches."""
    for turn in range(count + ahead - 1):
        if turn >= ahead:
            yield Pass.BACKWARD, 0, turn - ahead
        if turn < count:
            yield Pass.FORWARD, 0, turn
    yield Pass.BACKWARD, 0, count - 1
