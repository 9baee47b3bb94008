"""Lay out interleaved 1F1B: several distant stages per IPU, which shortens the ramps (fill and drain).

Each IPU starts after a single stage of the previous IPU.

Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
section 2.2.2: a group has as many micro-batches as there are IPUs. An IPU runs a group through one of its stages, then
through its next stage. Groups of other sizes follow ScheduleInterleaved1F1B of torch.distributed.pipelining, or an
option of Megatron-LM.

GIS and GIS-H of Wan et al., PipeOffload (arXiv 2503.01328, section 3), split backward passes into two consecutive
halves. Before its first backward pass, each IPU starts one micro-batch fewer than the previous IPU. In GIS-H, the
number of micro-batches in a group is half the number of IPUs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.base.errors import UnsupportedProgramError
from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_grouped_count
from ipusim.pipeline.shape import Column, PlanShape
from ipusim.schedules.chunks import chunks_of, in_turns, ipu_count, ranked_order

#: Kinds of passes of a whole backward pass.
_WHOLE: Final = (Pass.BACKWARD,)
#: Kinds of passes of a backward pass in halves.
_HALVES: Final = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)


def order(shape: PlanShape) -> Order:
    """Lay out interleaved 1F1B.

    Groups have the shape's group size, and the last group has the remainder. Without a group size, groups are equal and
    as close to the number of IPUs as the count allows: floor(count / IPUs) groups, or one, like in torch.

    Raises ProgramError for fewer than two stages. Raises CountError if groups cannot have these sizes. Raises
    UnsupportedProgramError for groups of fewer micro-batches than IPUs, or if a micro-batch does not visit all IPUs in
    one cyclic order, equally often.
    """
    count, size = shape.micro_batches, group_size(shape)
    if 0 < shape.group_size < ipu_count(shape):
        raise UnsupportedProgramError(
            "The schedule 'interleaved_1f1b' needs groups with at least one micro-batch for each IPU, "
            f"{ipu_count(shape)}, got micro_batch_group_size {shape.group_size}."
        )
    check_grouped_count(count, ipu_count(shape), shape.group_size)

    def passes(rank: int, ipus: int, chunks: int) -> Table:
        ahead = (ipus - rank - 1) * (2 if chunks > 1 else 1) + (chunks - 1) * size + 1
        return _passes(_forward_turns(count, size, chunks), ahead, chunks, _WHOLE)

    return ranked_order("interleaved_1f1b", shape, chunks_of, passes)


def gis(shape: PlanShape) -> Order:
    """Lay out GIS; raises like :func:`order`, and CountError unless the count is a multiple of the number of IPUs."""
    return _group_interleaved("gis", shape, ipu_count(shape))


def gis_h(shape: PlanShape) -> Order:
    """Lay out GIS-H.

    Raises CountError unless the count is a multiple of half the number of IPUs, UnsupportedProgramError for an odd
    number of IPUs, and further errors like :func:`order`.
    """
    if ipu_count(shape) % 2:
        raise UnsupportedProgramError(
            "The schedule 'gis_h' needs an even number of IPUs, because a group has half as many micro-batches as "
            f"there are IPUs; got {ipu_count(shape)}."
        )
    return _group_interleaved("gis_h", shape, half_of_ipus(shape))


def group_size(shape: PlanShape) -> int:
    """Return the number of micro-batches in each group but the last."""
    return shape.group_size or shape.micro_batches // max(1, shape.micro_batches // ipu_count(shape))


def half_of_ipus(shape: PlanShape) -> int:
    """Return half the number of IPUs, rounded up."""
    return (ipu_count(shape) + 1) // 2


def _group_interleaved(name: str, shape: PlanShape, size: int) -> Order:
    def passes(rank: int, ipus: int, chunks: int) -> Table:
        turns = _forward_turns(shape.micro_batches, size, chunks)
        return _passes(turns, ipus - rank + (chunks - 1) * size, chunks, _HALVES)

    return ranked_order(name, shape, chunks_of, passes, size)


def _forward_turns(count: int, size: int, chunks: int) -> Column:
    """Return chunks and micro-batches of the forward passes in order, shape (2, passes)."""
    chunk, micro_batch = np.indices((chunks, count)).reshape(2, -1)
    order = np.lexsort((micro_batch, chunk, micro_batch // size))
    return np.stack([chunk, micro_batch])[:, order]


def _passes(forward: Column, ahead: int, chunks: int, backward: tuple[Pass, ...]) -> Table:
    """Return an IPU's passes: ``ahead`` forward passes, then a backward and a forward pass in turn.

    Args:
        forward: chunk and micro-batch of the forward passes, in order; backward passes visit the chunks in reverse.
        ahead: number of forward passes before the first backward pass.
        chunks: number of the IPU's chunks.
        backward: kinds of passes that make up a backward pass.
    """
    chunk, micro_batch = forward
    turns = np.arange(len(chunk))
    parts = [(kind, chunks - 1 - chunk, micro_batch, turns + min(len(turns), ahead)) for kind in backward]
    return in_turns(*parts, (Pass.FORWARD, chunk, micro_batch, turns))
