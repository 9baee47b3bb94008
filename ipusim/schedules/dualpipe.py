"""Lay out DualPipe: micro-batches enter from both ends, and forward and backward passes share a slot.

DeepSeek-AI, DualPipe (dualpipe.py, dualpipev.py), 2025; ScheduleDualPipeV of torch.distributed.pipelining. In the main
phase, an IPU runs the forward pass of one of its two stages with the backward pass of the other, so that copies of
either pass are hidden. On an IPU, the passes compute one after the other, between exchanges of inputs and outputs.

DualPipe has two copies of each stage, a copy per direction. DualPipeV is half of DualPipe: two different stages per
IPU, placed as a V (over the IPUs and back).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from ipusim.base.errors import CountError
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, joined_order_of, mirrored_chunks_of, zigzag_chunks_of

#: The two chunks of an IPU. In DualPipeV: for a micro-batch's way there, and for its way back. In DualPipe: for the
#: direction whose first micro-batch reaches the IPU first, and for the opposite direction.
_WAY_OUT, _WAY_BACK = 0, 1
#: Short names of the kinds of passes.
_F, _B, _I, _W = Pass.FORWARD, Pass.BACKWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT
#: A pass of a chunk, and whether the pass shares a slot with the next pass.
Turn = tuple[ChunkPass, bool]


def order(shape: PlanShape) -> Order:
    """Lay out DualPipe; adjacent stages of an IPU form a chunk.

    An IPU of N IPUs keeps N + 1 micro-batches.

    Raises ProgramError for fewer than two stages, CountError for an odd number of micro-batches or fewer than twice the
    IPUs and UnsupportedProgramError for stages without a mirror image.
    """
    check_stages(shape.positions)
    chunks = mirrored_chunks_of(shape, "dualpipe")
    _check_count_suffices("dualpipe", shape, len(chunks))
    check_count(shape.micro_batches, multiple(shape))
    half, passes = len(chunks) // 2, {}
    for rank, (ipu, ipu_chunks) in enumerate(chunks.items()):
        distance_to_end = min(rank, len(chunks) - 1 - rank)
        copies = (0, 1) if rank < half else (1, 0)
        turns = _passes(shape.micro_batches // 2, distance_to_end, half)
        passes[ipu] = (
            ipu_chunks,
            [((kind, copies[chunk], 2 * number + copies[chunk]), joins) for (kind, chunk, number), joins in turns],
        )
    return joined_order_of("dualpipe", shape, passes)


def multiple(shape: PlanShape) -> int:  # noqa: ARG001 - the signature that every schedule has
    """Return 2: one micro-batch per end."""
    return 2


def v_order(shape: PlanShape) -> Order:
    """Lay out DualPipeV; adjacent stages of an IPU form a chunk per direction.

    Raises ProgramError for fewer than two stages, CountError for fewer micro-batches than twice the IPUs and
    UnsupportedProgramError for stages that are not placed as a V.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    chunks = zigzag_chunks_of(shape, "dualpipe_v")
    _check_count_suffices("dualpipe_v", shape, len(chunks))
    passes = {
        ipu: (ipu_chunks, list(_passes(shape.micro_batches, rank, len(chunks))))
        for rank, (ipu, ipu_chunks) in enumerate(chunks.items())
    }
    return joined_order_of("dualpipe_v", shape, passes)


def _check_count_suffices(schedule: str, shape: PlanShape, ipus: int) -> None:
    if shape.micro_batches < 2 * ipus:
        raise CountError(
            f"The schedule '{schedule}' needs twice as many micro-batches as IPUs, {2 * ipus} or more, got "
            f"{shape.micro_batches}."
        )


def _passes(count: int, rank: int, ipus: int) -> Iterator[Turn]:
    """Yield the passes of the ``rank``-th IPU of a V of ``ipus``.

    Passes take the next micro-batch of their kind and chunk; a weight-gradient half takes the oldest pending gradient.
    """
    counts = Counter[tuple[bool, int]]()
    gradients = deque[tuple[int, int]]()
    for kind, chunk, joins in _kinds(count, rank, ipus):
        if kind is _W:
            yield (kind, *gradients.popleft()), joins
            continue
        way = kind is _F, chunk
        if kind is _I:
            gradients.append((chunk, counts[way]))
        yield (kind, chunk, counts[way]), joins
        counts[way] += 1


def _kinds(count: int, rank: int, ipus: int) -> Iterator[tuple[Pass, int, bool]]:
    """Yield each pass's kind, chunk, and whether it shares a slot with the next.

    The chunk of a weight-gradient half has no meaning: the caller assigns the oldest pending gradient."""
    ipus_after, position = ipus - rank - 1, rank + 1
    pair = (_F, _WAY_BACK, True), (_B, _WAY_OUT, False)
    yield from [(_F, _WAY_OUT, False)] * (2 * ipus_after)
    yield from [(_F, _WAY_OUT, False), (_F, _WAY_BACK, False)] * position
    yield from [(_I, _WAY_BACK, False), (_W, _WAY_BACK, False), (_F, _WAY_BACK, False)] * ipus_after
    for turn in range(count - 2 * ipus + position):
        # The last IPU's first backward pass needs the forward pass just before.
        yield from ((_F, _WAY_OUT, turn > 0 or ipus_after > 0), (_B, _WAY_BACK, False), *pair)
    yield from [(_B, _WAY_BACK, False), *pair] * ipus_after
    # The last backward passes of both chunks are split into halves from the middle on; one half stays pending.
    first_split_turn = position // 2 * 2 + (0 if rank % 2 else 1)
    for turn in range(2 * position):
        yield _I if turn >= first_split_turn else _B, _WAY_OUT if turn % 2 else _WAY_BACK, False
    yield from [(_W, _WAY_BACK, False), (_I, _WAY_OUT, False)] * ipus_after
    yield from [(_W, _WAY_BACK, False)] * position
