"""1F1B: after a warm-up each IPU runs a forward and a backward pass in turn; eager 1F1B has a longer warm-up.

PipeDream-Flush in Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021; the default of
Megatron-LM. As fast as GPipe, and an IPU keeps no more micro-batches than there are IPUs from it to the end.
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
    return one_chunk_order("1f1b", shape, lambda ahead, _: passes(shape.micro_batches, ahead))


def eager_order(shape: PlanShape) -> Order:
    """Return the Order of eager 1F1B; several stages of one IPU that follow each other run as one.

    Each IPU begins two micro-batches more than the next before its first backward pass, where 1F1B begins one: a copy
    to the next IPU or back may take up to half a forward and a backward pass without making an IPU wait.

    An IPU that is ``rank`` IPUs from the end keeps 2 ``rank`` + 1 micro-batches. Source: the slackness of Wu et al.,
    Adaptra (arXiv 2504.19232).

    Raises as :func:`order` does.
    """
    return one_chunk_order("eager_1f1b", shape, lambda ahead, _: passes(shape.micro_batches, 2 * ahead - 1))


def passes(count: int, ahead: int) -> Iterator[ChunkPass]:
    """Yield the passes of an IPU that keeps up to ``ahead`` micro-batches."""
    for turn in range(count + ahead - 1):
        if turn >= ahead:
            yield Pass.BACKWARD, 0, turn - ahead
        if turn < count:
            yield Pass.FORWARD, 0, turn
    yield Pass.BACKWARD, 0, count - 1
