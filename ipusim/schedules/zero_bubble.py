"""Zero bubble H1 and H2: backward passes in two halves, the one for the weights put where an IPU would wait.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, sections 2.3 and 2.4. H1 has 1F1B's order, and no more
micro-batches are kept than its first IPU keeps. The last IPU hands gradients back before it works on its weights, so
that the others begin earlier; their bubble is a third of 1F1B's where all three passes take equally long. H2 begins
nearly twice as many micro-batches: from its first pass to its last, no IPU waits then.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, one_chunk_order


def order(shape: PlanShape) -> Order:
    """Return the Order; several stages of one IPU that follow each other run as one.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    a micro-batch that comes back to an IPU.
    """
    return one_chunk_order("zero_bubble_h1", shape, lambda ahead, behind: _passes(shape.micro_batches, ahead, behind))


def order_h2(shape: PlanShape) -> Order:
    """Return the Order of H2: the IPU that is ``rank``-th begins 2 (N - ``rank``) - 1 micro-batches before it turns.

    Several stages of one IPU that follow each other run as one. Raises as :func:`order` does.
    """
    return one_chunk_order(
        "zero_bubble_h2", shape, lambda ahead, behind: _passes(shape.micro_batches, 2 * ahead - 1, 2 * behind)
    )


def _passes(count: int, ahead: int, behind: int) -> Iterator[ChunkPass]:
    """Yield the passes of an IPU that begins ``ahead`` micro-batches before its first backward pass.

    The weights' half of a micro-batch follows the other's of the micro-batch ``behind`` later.
    """
    for turn in range(count + ahead + behind):
        if 0 <= turn - ahead < count:
            yield Pass.INPUT_GRADIENT, 0, turn - ahead
        if 0 <= turn - ahead - behind < count:
            yield Pass.WEIGHT_GRADIENT, 0, turn - ahead - behind
        if turn < count:
            yield Pass.FORWARD, 0, turn
