"""Lay out ZB-V: two stages per IPU, placed as a V, with split backward passes.

If all passes are equally long, ZB-V has no bubble (idle time between an IPU's first and last pass).

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6; ScheduleZBVZeroBubble of
torch.distributed.pipelining. The last stage is on the first IPU, so gradients begin on the same IPU as activations, and
no IPU keeps more than the first IPU of 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, ranked_order, zigzag_chunks_of
from ipusim.schedules.zbv_search import search

#: The two stages of an IPU: for a micro-batch's way there, and for the way back.
_WAY_OUT, _WAY_BACK = 0, 1
_F, _I, _W = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT


def order(shape: PlanShape) -> Order:
    """Lay out ZB-V; adjacent stages of an IPU form a chunk per direction.

    For N IPUs, the rule needs at least 2 N - 1 micro-batches. With fewer, passes of micro-batches that do not exist are
    dropped; for the authors' order, :mod:`ipusim.schedules.zbv_search` searches like the authors' code.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    stages that are not placed as a V.
    """
    count, cached_search = shape.micro_batches, cache(search)

    def passes(rank: int, ipus: int, _: int) -> Iterable[ChunkPass]:
        if shape.authors and count < 2 * ipus - 1:
            return cached_search(ipus, count)[rank]
        return _passes(count, rank, ipus)

    return ranked_order("zbv", shape, zigzag_chunks_of, passes)


def _passes(count: int, rank: int, ipus: int) -> Iterator[ChunkPass]:
    """Yield the passes of the ``rank``-th IPU of a V of ``ipus``."""
    counts = {(kind, chunk): 0 for kind in (_F, _I, _W) for chunk in (_WAY_OUT, _WAY_BACK)}
    for kind, chunk in _turns(max(count, 2 * ipus - 1), rank, ipus):
        micro_batch = counts[kind, chunk]
        counts[kind, chunk] += 1
        if micro_batch < count:
            yield kind, chunk, micro_batch


def _turns(count: int, rank: int, ipus: int) -> Iterator[tuple[Pass, int]]:
    """Yield kind and chunk of each pass; micro-batches follow in order."""
    ipus_to_last = ipus - rank  # number of IPUs from this one to the last
    yield from [(_F, _WAY_OUT)] * (2 * ipus_to_last - 1)
    yield from [(_F, _WAY_BACK), (_F, _WAY_OUT)] * rank
    yield from [(_F, _WAY_BACK), (_I, _WAY_BACK), (_W, _WAY_BACK)] * ipus_to_last
    for forward in range(2 * ipus_to_last - 1 + rank, count + ipus_to_last - 1):
        if forward < count:
            yield _F, _WAY_OUT
        yield from ((_I, _WAY_OUT), (_W, _WAY_OUT), (_F, _WAY_BACK), (_I, _WAY_BACK), (_W, _WAY_BACK))
    yield from [(_I, _WAY_OUT), (_I, _WAY_BACK)] * rank
    yield from [(_I, _WAY_OUT), (_W, _WAY_OUT)] * ipus_to_last
    yield from [(_W, _WAY_BACK)] * rank
    yield from [(_W, _WAY_OUT)] * rank
