"""Chimera: two copies of the pipeline in opposite directions, each of which works where the other would wait.

Li and Hoefler, Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines, SC 2021. Half of
as many micro-batches as there are IPUs come from either end; their passes never fall together. More of them are
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
    """Return the Order; stages that follow each other on an IPU run as one.

    An IPU keeps from N / 2 + 1 (at the ends) to N micro-batches (in the middle) of N IPUs.

    Raises ProgramError for fewer than two stages, CountError for a count that is no multiple of the IPUs and
    UnsupportedProgramError for stages that have no mirror image.
    """
    check_stages(shape.positions)
    chunks = mirrored_chunks_of(shape, "chimera")
    check_count(shape.micro_batches, len(chunks))
    passes = {
        ipu: (own, _passes(rank, len(chunks), shape.micro_batches)) for rank, (ipu, own) in enumerate(chunks.items())
    }
    return order_of("chimera", shape, passes)


def _passes(rank: int, ipus: int, count: int) -> list[ChunkPass]:
    """Return the passes of the ``rank``-th of ``ipus`` by their slots, of which no two are the same."""
    slots = {}
    for unit, turn, copy in product(range(count // ipus), range(ipus // 2), (0, 1)):
        stage = ipus - 1 - rank if copy else rank
        begin = 2 * (unit * ipus + turn)
        micro_batch = unit * ipus + 2 * turn + copy
        slots[begin + stage] = Pass.FORWARD, copy, micro_batch
        slots[begin + 2 * ipus - 1 - stage] = Pass.BACKWARD, copy, micro_batch
    return [slots[slot] for slot in sorted(slots)]
