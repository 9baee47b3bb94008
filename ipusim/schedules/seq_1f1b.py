"""Lay out Seq1F1B: 1F1B with micro-batches split into segments along their sequence, for shorter ramps.

Sun et al., Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training (arXiv 2406.03488).
A stage attends to keys and values of earlier segments, so forward passes of a micro-batch run in segment order.
Gradients of keys and values come from all later segments, so backward passes run in reverse order.
"""

from __future__ import annotations

from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import one_chunk_order
from ipusim.schedules.one_forward_one_backward import passes


def order(shape: PlanShape) -> Order:
    """Lay out Seq1F1B; adjacent stages of an IPU form a chunk. A single segment gives 1F1B.

    An IPU with n IPUs from itself to the last keeps n - 1 segments more than a micro-batch has.
    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    a micro-batch that returns to an IPU.
    """
    segments = shape.segments
    return one_chunk_order(
        "seq_1f1b", shape, lambda ipus_to_last, _: passes(shape.micro_batches, ipus_to_last + segments - 1, segments)
    )
