"""Lay out 1F1B, where IPUs alternate forward and backward passes after a warm-up, and eager 1F1B.

Eager 1F1B has a longer warm-up.

PipeDream-Flush in Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021; the default of
Megatron-LM. 1F1B is as fast as GPipe. An IPU keeps at most as many micro-batches as there are IPUs from itself to the
last.
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import in_turns, one_chunk_order


def order(shape: PlanShape) -> Order:
    """Lay out 1F1B; adjacent stages of an IPU form a chunk.

    Raises:
        ProgramError: for fewer than two stages.
        CountError: for a count below 1.
        UnsupportedProgramError: if a micro-batch returns to an IPU.
    """
    return one_chunk_order("1f1b", shape, lambda ipus_to_last, _: passes(shape.micro_batches, ipus_to_last))


def eager_order(shape: PlanShape) -> Order:
    """Lay out eager 1F1B; adjacent stages of an IPU form a chunk.

    Before its first backward pass, each IPU begins two micro-batches more than the next IPU, while 1F1B begins one
    more. A copy to the next IPU or back may therefore take up to half a forward plus backward pass without idle time.

    An IPU that is ``rank`` IPUs from the end keeps 2 ``rank`` + 1 micro-batches. Source: the slackness of Wu et al.,
    Adaptra (arXiv 2504.19232).

    Raises:
        ProgramError: for fewer than two stages.
        CountError: for a count below 1.
        UnsupportedProgramError: if a micro-batch returns to an IPU.
    """
    return one_chunk_order(
        "eager_1f1b", shape, lambda ipus_to_last, _: passes(shape.micro_batches, 2 * ipus_to_last - 1)
    )


def passes(count: int, ahead: int, segments: int = 1) -> Table:
    """Return the passes of an IPU that keeps up to ``ahead`` segments of micro-batches.

    ``count`` is the number of all segments; backward passes visit the ``segments`` of a micro-batch in reverse.
    """
    numbers = np.arange(count)
    reverse = numbers + segments - 1 - 2 * (numbers % segments)
    return in_turns((Pass.BACKWARD, 0, reverse, numbers + ahead), (Pass.FORWARD, 0, numbers, numbers))
