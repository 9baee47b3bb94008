"""Build Orders from passes of chunks: adjacent stages on an IPU that GPU schedules treat as one stage.

A schedule yields each IPU's passes of chunks; this module expands them to passes of stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby

import numpy as np

from ipusim.base.errors import UnsupportedProgramError
from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.pipeline.shape import Column, PlanShape

#: A pass of a chunk: kind, number of the chunk on its IPU, and micro-batch.
ChunkPass = tuple[Pass, int, int]


def ipu_count(shape: PlanShape) -> int:
    """Return the number of IPUs, also the group size of schedules that process micro-batches in groups."""
    return len(set(shape.mapping))


def chunks_of(shape: PlanShape, schedule: str) -> dict[int, list[tuple[int, ...]]]:
    """Return the chunks of each IPU, in order of a micro-batch's first visit.

    Raises UnsupportedProgramError unless a micro-batch visits all IPUs in one cyclic order, equally often.
    """
    runs = [(ipu, tuple(stages)) for ipu, stages in groupby(range(shape.stages), key=shape.mapping.__getitem__)]
    chunks: dict[int, list[tuple[int, ...]]] = {}
    for ipu, stages in runs:
        chunks.setdefault(ipu, []).append(stages)
    if [ipu for ipu, _ in runs] != list(chunks) * len(next(iter(chunks.values()))):
        raise UnsupportedProgramError(
            f"The schedule '{schedule}' needs stages that go round all IPUs in one order, in whole rounds, such as 0, "
            f"1, 0, 1; the mapping is {', '.join(map(str, shape.mapping))}."
        )
    return chunks


def zigzag_chunks_of(shape: PlanShape, schedule: str, most_waves: int = 1) -> dict[int, list[tuple[int, ...]]]:
    """Return each IPU's chunks, two per wave, in order of a micro-batch's first visit.

    A wave goes over the IPUs and back; a single wave is a V. Raises UnsupportedProgramError for stages that do not form
    up to ``most_waves`` waves, with the last stage on the first stage's IPU.
    """
    for waves in range(1, most_waves + 1):
        half = shape.stages // (2 * waves)
        way_out = shape.mapping[:half]
        runs = [(ipu, tuple(stages)) for ipu, stages in groupby(range(half), key=way_out.__getitem__)]
        if (way_out + way_out[::-1]) * waves == shape.mapping and len(dict(runs)) == len(runs):
            return {ipu: list(_waves(stages, half, waves)) for ipu, stages in runs}
    raise UnsupportedProgramError(
        f"The schedule '{schedule}' needs stages that go over all IPUs and back, such as 0, 1, 1, 0 "
        f"(device_mapping: v); the mapping is {', '.join(map(str, shape.mapping))}."
    )


def _waves(stages: tuple[int, ...], half: int, waves: int) -> Iterator[tuple[int, ...]]:
    """Yield an IPU's chunks forth and back, wave by wave."""
    for begin in range(0, 2 * half * waves, 2 * half):
        yield tuple(begin + stage for stage in stages)
        yield tuple(begin + 2 * half - 1 - stage for stage in reversed(stages))


def one_chunk_of(shape: PlanShape, schedule: str) -> dict[int, list[tuple[int, ...]]]:
    """Return the single chunk of each IPU; raises UnsupportedProgramError if a micro-batch returns to an IPU."""
    chunks = chunks_of(shape, schedule)
    if any(len(ipu_chunks) > 1 for ipu_chunks in chunks.values()):
        raise UnsupportedProgramError(
            f"The schedule '{schedule}' needs the stages of an IPU one after the other; the mapping is "
            f"{', '.join(map(str, shape.mapping))}. For stages that return to an IPU use interleaved_1f1b."
        )
    return chunks


def mirrored_chunks_of(shape: PlanShape, schedule: str) -> dict[int, list[tuple[int, ...]]]:
    """Return two chunks per IPU: its stages in the first copy of the pipeline, then in the second copy.

    IPUs are in the first copy's order. Raises UnsupportedProgramError for a single copy, or if a micro-batch returns to
    an IPU.
    """
    if not shape.mirrored:
        raise UnsupportedProgramError(f"The schedule '{schedule}' needs two copies of each stage: a mirrored shape.")
    first = one_chunk_of(shape, schedule)
    return {
        ipu: [*chunk, *mirror] for (ipu, chunk), mirror in zip(first.items(), reversed(first.values()), strict=True)
    }


def order_of(
    schedule: str, shape: PlanShape, passes: Mapping[int, tuple[Sequence[tuple[int, ...]], Iterable[ChunkPass] | Table]]
) -> Order:
    """Build the Order from passes of chunks; a chunk's stages run in ascending order forward, descending backward.

    Args:
        schedule: name of the schedule.
        shape: shape to lay out.
        passes: by IPU, its chunks, and its passes in order.
    """
    return Order(schedule, shape, table=np.concatenate([_rows(ipu, *parts) for ipu, parts in passes.items()]))


def joined_order_of(
    schedule: str,
    shape: PlanShape,
    passes_with_joins: Mapping[int, tuple[Sequence[tuple[int, ...]], Sequence[tuple[ChunkPass, bool]]]],
) -> Order:
    """Build the Order from passes of chunks, of which some share a slot.

    Args:
        schedule: name of the schedule.
        shape: shape to lay out.
        passes_with_joins: by IPU, its chunks, and its passes in order; a pass has True if it shares a slot with the
            next.
    """
    tables, joins = [], []
    for ipu, (chunks, ipu_passes) in passes_with_joins.items():
        tables.append(_rows(ipu, chunks, (chunk_pass for chunk_pass, _ in ipu_passes)))
        sizes = np.array([len(chunks[chunk_pass[1]]) for chunk_pass, _ in ipu_passes])
        with_next = np.array([is_joined for _, is_joined in ipu_passes])
        pass_of_row = np.repeat(np.arange(len(ipu_passes)), sizes)
        is_last = np.arange(1, len(pass_of_row) + 1) == np.cumsum(sizes)[pass_of_row]
        joins.append(with_next[pass_of_row] | (np.r_[False, with_next[:-1]][pass_of_row] & ~is_last))
    return Order(schedule, shape, table=np.concatenate(tables), joined=np.concatenate(joins))


def ranked_order(
    schedule: str,
    shape: PlanShape,
    chunks_of_ipus: Callable[[PlanShape, str], Mapping[int, Sequence[tuple[int, ...]]]],
    passes: Callable[[int, int, int], Iterable[ChunkPass] | Table],
    multiple: int = 1,
) -> Order:
    """Build the Order of a schedule whose rule depends on an IPU's rank: its position along the pipeline.

    Args:
        schedule: name of the schedule.
        shape: shape to lay out.
        chunks_of_ipus: returns the chunks of each IPU, and refuses unsupported shapes.
        passes: returns the passes of an IPU, given its rank, the number of IPUs and the number of its chunks.
        multiple: number of which the count must be a multiple.

    Raises ProgramError for fewer than two stages, CountError for an indivisible count, and errors of
    ``chunks_of_ipus``.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, multiple)
    chunks = chunks_of_ipus(shape, schedule)
    ranks = enumerate(chunks.items())
    return order_of(
        schedule,
        shape,
        {ipu: (ipu_chunks, passes(rank, len(chunks), len(ipu_chunks))) for rank, (ipu, ipu_chunks) in ranks},
    )


def one_chunk_order(
    schedule: str, shape: PlanShape, passes: Callable[[int, int], Iterable[ChunkPass] | Table]
) -> Order:
    """Build the Order of a schedule with one chunk per IPU.

    ``passes`` returns the passes of an IPU, given two numbers: the IPUs from this IPU to the last, this IPU included,
    and the IPUs before this IPU. Raises ProgramError for fewer than two stages, CountError for a count below 1 and
    UnsupportedProgramError for a micro-batch that returns to an IPU.
    """
    return ranked_order(schedule, shape, one_chunk_of, lambda rank, ipus, _: passes(ipus - rank, rank))


def repeat_period(passes: Sequence[ChunkPass], begin: ChunkPass, period: int, more: int) -> Iterator[ChunkPass]:
    """Yield an IPU's passes with ``more`` micro-batches inserted as copies of a period.

    The period consists of ``period`` passes, from pass ``begin`` on, and covers one micro-batch.
    """
    first = passes.index(begin) if more else 0
    parts = ((passes[:first], 0), *((passes[first : first + period], copy) for copy in range(more)))
    for part, copy in (*parts, (passes[first:], more)):
        for kind, chunk, micro_batch in part:
            yield kind, chunk, micro_batch + copy


def in_turns(*parts: tuple[Pass, Column | int, Column, Column]) -> Table:
    """Return the passes of an IPU sorted by turn, shape (passes, 3); passes of equal turns keep the order of parts.

    A part consists of a kind of pass, chunks, micro-batches and turns; a turn is a number that sorts the passes.
    """
    columns = [np.stack(np.broadcast_arrays(int(kind), chunk, numbers, turns)) for kind, chunk, numbers, turns in parts]
    *passes, turns = np.concatenate(columns, axis=1)
    return np.stack(passes, axis=1)[np.argsort(turns, kind="stable")]


def _rows(ipu: int, chunks: Sequence[tuple[int, ...]], passes: Iterable[ChunkPass] | Table) -> Table:
    """Return the rows of an Order for one IPU's passes, shape (passes, 4)."""
    if not isinstance(passes, np.ndarray):
        passes = np.fromiter(chain.from_iterable(passes), np.int64).reshape(-1, 3)
    kind, chunk, micro_batch = passes.T
    sizes = np.array([len(stages) for stages in chunks])[chunk]
    row = np.repeat(np.arange(len(chunk)), sizes)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.array([stages[0] for stages in chunks])[chunk][row]
    stage = first + np.where(kind[row] == Pass.FORWARD, nth, sizes[row] - 1 - nth)
    return np.stack([np.full(len(row), ipu), kind[row], stage, micro_batch[row]], axis=1)
