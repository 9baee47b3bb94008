"""Waves, after Hanayo: stages go over the IPUs and back any number of times, with whole backward passes.

Liu et al., Hanayo, SC 2023, joins the two directions of Chimera (Li and Hoefler, SC 2021) to one, without a second copy
of the weights. The paper's own list of passes was not seen: this one is Chimera's rule on the joined way. Passes lie in
slots of equal length. As many micro-batches as there are IPUs make a unit, and enter two slots after each other; a
micro-batch takes a stage a slot, forward and then backward, and no two passes of an IPU fall into one slot. Units
follow each other as closely as an IPU has passes in one, so that none keeps more than those of a unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, ranked_order, zigzag_chunks_of


def order(shape: PlanShape) -> Order:
    """Return the Order; stages that follow each other on an IPU on the way there, or back, run as one.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    stages that do not go over the IPUs and back, as often as there are waves.
    """
    waves = partial(zigzag_chunks_of, most_waves=shape.stages // 2)
    return ranked_order("hanayo", shape, waves, partial(_passes, shape.micro_batches))


def _passes(count: int, rank: int, ipus: int, chunks: int) -> Iterator[ChunkPass]:
    """Yield the passes of the IPU that is ``rank``-th on the way over ``ipus``, with so many ``chunks``."""
    steps = ipus * chunks  # of a micro-batch's way
    length = 2 * steps  # of a unit, which reaches into the slots of the next one
    slots = (
        (2 * inside + (step if kind is Pass.FORWARD else length - 1 - step), kind, chunk, inside)
        for inside in range(ipus)
        for chunk in range(chunks)
        for step in (chunk * ipus + (ipus - 1 - rank if chunk % 2 else rank),)
        for kind in (Pass.FORWARD, Pass.BACKWARD)
    )
    turns = sorted((slot % length, kind, chunk, inside, slot // length) for slot, kind, chunk, inside in slots)
    for unit in range(-(-count // ipus) + 1):
        for _, kind, chunk, inside, behind in turns:
            micro_batch = (unit - behind) * ipus + inside
            if 0 <= micro_batch < count:
                yield kind, chunk, micro_batch
