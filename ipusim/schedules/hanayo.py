"""Lay out waves, after Hanayo: stages go over the IPUs and back several times, with whole backward passes.

Liu et al., Hanayo, SC 2023, merges the two directions of Chimera (Li and Hoefler, SC 2021) into one, without a second
copy of weights. The paper's list of passes was not available: this schedule applies Chimera's rule to the merged path.
Passes occupy slots of equal length. A unit has as many micro-batches as there are IPUs, entering two slots apart. A
micro-batch takes one slot per stage, forward and then backward, and no two passes of an IPU share a slot. Units
follow each other as closely as an IPU's number of passes permits, so an IPU keeps at most one unit of micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, ranked_order, zigzag_chunks_of


def order(shape: PlanShape) -> Order:
    """Lay out the Order; adjacent stages of an IPU form a chunk per direction.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    stages that do not go over the IPUs and back, once per wave.
    """
    waves = partial(zigzag_chunks_of, most_waves=shape.stages // 2)
    return ranked_order("hanayo", shape, waves, partial(_passes, shape.micro_batches))


def _passes(count: int, rank: int, ipus: int, chunks: int) -> Iterator[ChunkPass]:
    """Yield the passes of the ``rank``-th of ``ipus``, which has ``chunks`` chunks."""
    steps = ipus * chunks  # length of a micro-batch's path
    length = 2 * steps  # length of a unit, which overlaps the next unit
    slots = (
        (2 * number_in_unit + (step if kind is Pass.FORWARD else length - 1 - step), kind, chunk, number_in_unit)
        for number_in_unit in range(ipus)
        for chunk in range(chunks)
        for step in (chunk * ipus + (ipus - 1 - rank if chunk % 2 else rank),)
        for kind in (Pass.FORWARD, Pass.BACKWARD)
    )
    turns = sorted(
        (slot % length, kind, chunk, number_in_unit, slot // length) for slot, kind, chunk, number_in_unit in slots
    )
    for unit in range(-(-count // ipus) + 1):
        for _, kind, chunk, number_in_unit, units_before in turns:
            micro_batch = (unit - units_before) * ipus + number_in_unit
            if 0 <= micro_batch < count:
                yield kind, chunk, micro_batch
