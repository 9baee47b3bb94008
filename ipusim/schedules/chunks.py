"""Chunks: runs of stages that follow each other on one IPU, which the GPU world's schedules take as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from ipusim.errors import UnsupportedProgramError
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape

#: A pass of a chunk: which, the chunk's number among those of its IPU, and the micro-batch.
ChunkPass = tuple[Pass, int, int]


def chunks_of(shape: PlanShape, schedule: str) -> dict[int, list[tuple[int, ...]]]:
    """Return the chunks of each IPU, IPUs in the order in which a micro-batch first comes to them.

    Raises UnsupportedProgramError unless the way of a micro-batch goes round all IPUs in one order, equally often.
    """
    runs = [(ipu, tuple(stages)) for ipu, stages in groupby(range(shape.stages), key=shape.mapping.__getitem__)]
    found: dict[int, list[tuple[int, ...]]] = {}
    for ipu, stages in runs:
        found.setdefault(ipu, []).append(stages)
    if [ipu for ipu, _ in runs] != list(found) * len(next(iter(found.values()))):
        raise UnsupportedProgramError(
            f"The schedule '{schedule}' needs stages that go round all IPUs in one order, equally often, such as "
            f"0, 1, 0, 1; the mapping is {', '.join(map(str, shape.mapping))}."
        )
    return found


def one_chunk_of(shape: PlanShape, schedule: str) -> dict[int, tuple[int, ...]]:
    """Return the one chunk of each IPU; raises UnsupportedProgramError where a micro-batch comes back to one."""
    found = chunks_of(shape, schedule)
    if any(len(chunks) > 1 for chunks in found.values()):
        raise UnsupportedProgramError(
            f"The schedule '{schedule}' has the stages of an IPU follow each other; the mapping is "
            f"{', '.join(map(str, shape.mapping))}. Stages that come back to an IPU are what interleaved_1f1b is for."
        )
    return {ipu: chunks[0] for ipu, chunks in found.items()}


def order_of(
    schedule: str, shape: PlanShape, passes: Mapping[int, tuple[Sequence[tuple[int, ...]], list[ChunkPass]]]
) -> Order:
    """Return the Order in which each IPU runs the passes of its chunks: their stages up, or backward down."""
    return Order.of(schedule, shape, {ipu: _spread(chunks, of) for ipu, (chunks, of) in passes.items()})


def _spread(chunks: Sequence[tuple[int, ...]], passes: Iterable[ChunkPass]) -> Iterable[Op]:
    for kind, chunk, micro_batch in passes:
        stages = chunks[chunk] if kind is Pass.FORWARD else reversed(chunks[chunk])
        for stage in stages:
            yield Op(kind, stage, micro_batch)
