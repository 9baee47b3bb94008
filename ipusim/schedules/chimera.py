"""Lay out Chimera: two copies of the pipeline in opposite directions, each filling the other's idle time.

Li and Hoefler, Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines, SC 2021. With N
IPUs, N / 2 micro-batches enter from either end, and their passes never collide. Further groups of N micro-batches are
appended ("direct concatenation").
"""

from __future__ import annotations

from itertools import product

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, mirrored_chunks_of, order_of


def order(shape: PlanShape) -> Order:
    """Lay out the Order; adjacent stages of an IPU form a chunk.

    Of N IPUs, outer IPUs keep N / 2 + 1 micro-batches, and inner IPUs up to N.

    Raises ProgramError for fewer than two stages, CountError unless the count is a multiple of the number of IPUs, and
    UnsupportedProgramError for stages without a mirror image.
    """
    check_stages(shape.positions)
    chunks = mirrored_chunks_of(shape, "chimera")
    check_count(shape.micro_batches, len(chunks))
    passes = {
        ipu: (ipu_chunks, _passes(rank, len(chunks), shape.micro_batches))
        for rank, (ipu, ipu_chunks) in enumerate(chunks.items())
    }
    return order_of("chimera", shape, passes)


def _passes(rank: int, ipus: int, count: int) -> list[ChunkPass]:
    """Return the passes of the ``rank``-th of ``ipus`` IPUs in order, each pass in its own slot (place in time)."""
    slots = {}
    for group, turn, copy in product(range(count // ipus), range(ipus // 2), (0, 1)):
        stage = ipus - 1 - rank if copy else rank
        begin = 2 * (group * ipus + turn)
        micro_batch = group * ipus + 2 * turn + copy
        slots[begin + stage] = Pass.FORWARD, copy, micro_batch
        slots[begin + 2 * ipus - 1 - stage] = Pass.BACKWARD, copy, micro_batch
    return [slots[slot] for slot in sorted(slots)]
