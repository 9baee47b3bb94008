"""Lay out zero bubble H1 and H2: split backward passes, with weight-gradient halves in otherwise idle time.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, sections 2.3 and 2.4. H1 has the order of 1F1B, and no IPU keeps
more micro-batches than the first IPU of 1F1B. The last IPU returns gradients before it computes weight gradients, so
other IPUs begin earlier; for three equally long passes, the bubble is a third of 1F1B's. H2 begins
nearly twice as many micro-batches: then no IPU waits between its first and last pass.
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import in_turns, one_chunk_order


def order(shape: PlanShape) -> Order:
    """Lay out zero bubble H1; adjacent stages of an IPU form a chunk.

    Raises:
        ProgramError: for fewer than two stages.
        CountError: for a count below 1.
        UnsupportedProgramError: if a micro-batch returns to an IPU.
    """
    return one_chunk_order(
        "zero_bubble_h1",
        shape,
        lambda ipus_to_last, ipus_before: _passes(shape.micro_batches, ipus_to_last, ipus_before),
    )


def order_h2(shape: PlanShape) -> Order:
    """Lay out H2: the ``rank``-th IPU begins 2 (N - ``rank``) - 1 micro-batches before its first backward pass.

    Adjacent stages of an IPU form a chunk.

    Raises:
        ProgramError: for fewer than two stages.
        CountError: for a count below 1.
        UnsupportedProgramError: if a micro-batch returns to an IPU.
    """
    return one_chunk_order(
        "zero_bubble_h2",
        shape,
        lambda ipus_to_last, ipus_before: _passes(shape.micro_batches, 2 * ipus_to_last - 1, 2 * ipus_before),
    )


def _passes(count: int, ahead: int, lag: int) -> Table:
    """Return an IPU's passes, with ``ahead`` forward passes before the first backward pass.

    The weight-gradient half of a micro-batch follows the input-gradient half of a later micro-batch: the number of this
    micro-batch is ``lag`` larger.
    """
    numbers = np.arange(count)
    return in_turns(
        (Pass.INPUT_GRADIENT, 0, numbers, numbers + ahead),
        (Pass.WEIGHT_GRADIENT, 0, numbers, numbers + ahead + lag),
        (Pass.FORWARD, 0, numbers, numbers),
    )
