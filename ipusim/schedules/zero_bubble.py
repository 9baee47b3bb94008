"""Zero bubble H1: backward passes in two halves, the one for the weights put where an IPU would wait.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.3: 1F1B's order, and no more micro-batches kept
than its first IPU keeps. The last IPU hands gradients back before it works on its weights, so that the others
begin earlier; their bubble is a third of 1F1B's where all three passes take equally long.
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
    return one_chunk_order("zero_bubble_h1", shape, lambda ahead, behind: _passes(shape.micro_batches, ahead, behind))


def _passes(count: int, ahead: int, behind: int) -> Iterator[ChunkPass]:
    """Yield the passes of an IPU that is ``ahead`` micro-batches from the end and ``behind`` from the beginning."""
    for turn in range(count + ahead + behind):
        if 0 <= turn - ahead < count:
            yield Pass.INPUT_GRADIENT, 0, turn - ahead
        if 0 <= turn - ahead - behind < count:
            yield Pass.WEIGHT_GRADIENT, 0, turn - ahead - behind
        if turn < count:
            yield Pass.FORWARD, 0, turn
