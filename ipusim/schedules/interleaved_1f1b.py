"""Interleaved 1F1B: several stages an IPU, far apart in the model, so that the ramps are as short as a stage is.

Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
section 2.2.2: micro-batches go in groups of as many as there are IPUs, each group through all stages of an IPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape
from ipusim.schedules.chunks import ChunkPass, chunks_of, ipus_of, ranked_order


def order(shape: PlanShape) -> Order:
    """Return the Order.

    Raises ProgramError for fewer than two stages, CountError for a count that is no multiple of the number of IPUs,
    and UnsupportedProgramError unless a micro-batch goes round all IPUs in one order, equally often.
    """
    passes = partial(_passes, shape.micro_batches)
    return ranked_order("interleaved_1f1b", shape, chunks_of, passes, ipus_of(shape))


def _passes(count: int, rank: int, ipus: int, chunks: int) -> Iterator[ChunkPass]:
    """Yield the passes of the IPU that is ``rank``-th on a micro-batch's way round ``ipus``, with so many chunks."""
    total = count * chunks
    ahead = min(total, (ipus - rank - 1) * (2 if chunks > 1 else 1) + (chunks - 1) * ipus + 1)
    for turn in range(total + ahead):
        if turn >= ahead:
            yield _turn(Pass.BACKWARD, turn - ahead, ipus, chunks)
        if turn < total:
            yield _turn(Pass.FORWARD, turn, ipus, chunks)


def _turn(kind: Pass, turn: int, ipus: int, chunks: int) -> ChunkPass:
    group, inside = divmod(turn, ipus * chunks)
    chunk, micro_batch = divmod(inside, ipus)
    return kind, chunk if kind is Pass.FORWARD else chunks - 1 - chunk, group * ipus + micro_batch
