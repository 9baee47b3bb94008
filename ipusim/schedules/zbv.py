"""ZB-V: two stages per IPU, placed as a V, with split backward passes; no bubble for equally long passes.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6; ScheduleZBVZeroBubble of
torch.distributed.pipelining. The last stage is on the first IPU, so gradients begin on the same IPU as
activations, and no IPU keeps more than the first IPU of 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, ranked_order, zigzag_chunks_of
from ipusim.schedules.zbv_search import searched

#: The two stages of an IPU: for a micro-batch's way there, and for the way back.
_THERE, _BACK = 0, 1
_F, _I, _W = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT


def order(shape: PlanShape) -> Order:
    """Lay out ZB-V; adjacent stages of an IPU form a chunk per direction.

    The rule needs at least twice as many micro-batches as IPUs, minus one. With fewer, passes of nonexistent
    micro-batches are dropped; for the authors' order, :mod:`ipusim.schedules.zbv_search` searches like their code.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    stages that are not placed as a V.
    """
    count, lanes = shape.micro_batches, cache(searched)

    def passes(rank: int, ipus: int, _: int) -> Iterable[ChunkPass]:
        if shape.authors and count < 2 * ipus - 1:
            return lanes(ipus, count)[rank]
        return _passes(count, rank, ipus)

    return ranked_order("zbv", shape, zigzag_chunks_of, passes)


def _passes(count: int, rank: int, ipus: int) -> Iterator[ChunkPass]:
    """Yield the passes of the ``rank``-th IPU of a V of ``ipus``."""
    done = {(kind, chunk): 0 for kind in (_F, _I, _W) for chunk in (_THERE, _BACK)}
    for kind, chunk in _turns(max(count, 2 * ipus - 1), rank, ipus):
        micro_batch = done[kind, chunk]
        done[kind, chunk] += 1
        if micro_batch < count:
            yield kind, chunk, micro_batch


def _turns(count: int, rank: int, ipus: int) -> Iterator[tuple[Pass, int]]:
    """Yield kind and chunk of each pass; micro-batches follow in order."""
    left = ipus - rank  # number of IPUs from this one to the last
    yield from [(_F, _THERE)] * (2 * left - 1)
    yield from [(_F, _BACK), (_F, _THERE)] * rank
    yield from [(_F, _BACK), (_I, _BACK), (_W, _BACK)] * left
    for forward in range(2 * left - 1 + rank, count + left - 1):
        if forward < count:
            yield _F, _THERE
        yield from ((_I, _THERE), (_W, _THERE), (_F, _BACK), (_I, _BACK), (_W, _BACK))
    yield from [(_I, _THERE), (_I, _BACK)] * rank
    yield from [(_I, _THERE), (_W, _THERE)] * left
    yield from [(_W, _BACK)] * rank
    yield from [(_W, _THERE)] * rank
