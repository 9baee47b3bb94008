"""Seq1F1B: 1F1B of segments of a micro-batch along its sequence, so that ramps are as short as segments are.

Sun et al., Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training (arXiv 2406.03488).
A stage attends to the keys and values of the segments before, so that forward passes of a micro-batch run in the order
of its segments; gradients reach these from all segments behind, so that backward passes run in the reverse order.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules import one_forward_one_backward
from ipusim.schedules.chunks import ChunkPass, one_chunk_order


def order(shape: PlanShape) -> Order:
    """Return the Order; several stages of one IPU that follow each other run as one. One segment is 1F1B.

    An IPU keeps as many segments as there are IPUs from it to the end, and one less than a micro-batch has more.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    a micro-batch that comes back to an IPU.
    """
    return one_chunk_order("seq_1f1b", shape, lambda ahead, _: _passes(shape, ahead + shape.segments - 1))


def _passes(shape: PlanShape, ahead: int) -> Iterator[ChunkPass]:
    """Yield 1F1B's passes of an IPU that keeps up to ``ahead`` segments, those of a micro-batch backward in reverse."""
    for kind, chunk, number in one_forward_one_backward.passes(shape.micro_batches, ahead):
        if kind is Pass.FORWARD:
            yield kind, chunk, number
        else:
            yield kind, chunk, number + shape.segments - 1 - 2 * (number % shape.segments)
