"""Interleaved 1F1B: several stages an IPU, far apart in the model, so that the ramps are as short as a stage is.

Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
section 2.2.2: micro-batches go in groups of as many as there are IPUs, each group through all stages of an IPU. Groups
of other sizes are those of ScheduleInterleaved1F1B of torch.distributed.pipelining, or of an option of Megatron-LM.

GIS and GIS-H of Wan et al., PipeOffload (arXiv 2503.01328, section 3), have backward passes in halves, one behind the
other. An IPU begins a micro-batch fewer for each IPU behind it. GIS-H has groups of half as many micro-batches as IPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ipusim.base.errors import UnsupportedProgramError
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_grouped_count
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, chunks_of, ipus_of, ranked_order

_WHOLE: Final = (Pass.BACKWARD,)
_HALVES: Final = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)


def order(shape: PlanShape) -> Order:
    """Return the Order.

    Groups have the shape's group size, and the last one what is left. Without one they are equal, and as near to the
    number of IPUs as the count allows: floor(count / IPUs) groups, or one, as torch has them.

    Raises ProgramError for fewer than two stages, CountError for a count that has no such groups, and
    UnsupportedProgramError for groups that are smaller than the number of IPUs, and unless a micro-batch goes round all
    IPUs in one order, equally often.
    """
    count, size = shape.micro_batches, group_size(shape)
    if 0 < shape.group_size < ipus_of(shape):
        raise UnsupportedProgramError(
            f"The schedule 'interleaved_1f1b' needs groups of at least as many micro-batches as there are IPUs, "
            f"{ipus_of(shape)}, got micro_batch_group_size {shape.group_size}."
        )
    check_grouped_count(count, ipus_of(shape), shape.group_size)

    def passes(rank: int, ipus: int, chunks: int) -> Iterator[ChunkPass]:
        ahead = (ipus - rank - 1) * (2 if chunks > 1 else 1) + (chunks - 1) * size + 1
        return _passes(_turns(count, size, chunks), ahead, chunks, _WHOLE)

    return ranked_order("interleaved_1f1b", shape, chunks_of, passes)


def gis(shape: PlanShape) -> Order:
    """Return the Order of GIS; raises as :func:`order` does, and CountError for a count that is no multiple of IPUs."""
    return _group_interleaved("gis", shape, ipus_of(shape))


def gis_h(shape: PlanShape) -> Order:
    """Return the Order of GIS-H; raises as :func:`gis` does, for a count by half as many IPUs, and for odd IPUs."""
    if ipus_of(shape) % 2:
        raise UnsupportedProgramError(
            f"The schedule 'gis_h' needs an even number of IPUs, of which half is a group; got {ipus_of(shape)}."
        )
    return _group_interleaved("gis_h", shape, half_of_ipus(shape))


def group_size(shape: PlanShape) -> int:
    """Return how many micro-batches a group has, but for the last."""
    return shape.group_size or shape.micro_batches // max(1, shape.micro_batches // ipus_of(shape))


def half_of_ipus(shape: PlanShape) -> int:
    """Return half of the number of IPUs, rounded up where it is odd."""
    return (ipus_of(shape) + 1) // 2


def _group_interleaved(name: str, shape: PlanShape, size: int) -> Order:
    def passes(rank: int, ipus: int, chunks: int) -> Iterator[ChunkPass]:
        turns = _turns(shape.micro_batches, size, chunks)
        return _passes(turns, ipus - rank + (chunks - 1) * size, chunks, _HALVES)

    return ranked_order(name, shape, chunks_of, passes, size)


def _turns(count: int, size: int, chunks: int) -> list[tuple[int, int]]:
    """Return chunk and micro-batch of each forward pass in turn."""
    return [
        (chunk, micro_batch)
        for first in range(0, count, size)
        for chunk in range(chunks)
        for micro_batch in range(first, min(first + size, count))
    ]


def _passes(
    turns: Sequence[tuple[int, int]], ahead: int, chunks: int, backward: tuple[Pass, ...]
) -> Iterator[ChunkPass]:
    """Yield an IPU's passes, ``ahead`` forward ones before the first of ``backward``; these run from the last chunk."""
    ahead = min(len(turns), ahead)
    for turn in range(len(turns) + ahead):
        if turn >= ahead:
            chunk, micro_batch = turns[turn - ahead]
            yield from ((kind, chunks - 1 - chunk, micro_batch) for kind in backward)
        if turn < len(turns):
            yield (Pass.FORWARD, *turns[turn])
