"""DualPipe: micro-batches come from both ends, and forward and backward passes run together in one slot.

DeepSeek-AI, DualPipe (dualpipe.py, dualpipev.py), 2025; ScheduleDualPipeV of torch.distributed.pipelining. In its main
phase an IPU runs the forward pass of one of its two stages with the backward pass of the other, so that either's copies
are hidden. On an IPU both compute one after the other, and what they need and make is exchanged around them.

DualPipe has two copies of each stage, one for either direction. DualPipeV is either half of it: a V.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ipusim.base.errors import CountError
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.schedules.chunks import ChunkPass, joined_order_of, mirrored_chunks_of, zigzag_chunks_of

#: The two stages of an IPU: on a micro-batch's way there, and on its way back; of DualPipe, of the direction in which
#: micro-batches come to it first, and of the other.
_THERE, _BACK = 0, 1
#: A pass of a chunk, and whether it runs in one slot with the next one.
Turn = tuple[ChunkPass, bool]


def order(shape: PlanShape) -> Order:
    """Return the Order of DualPipe; stages that follow each other on an IPU run as one.

    An IPU keeps a micro-batch more than there are IPUs.

    Raises ProgramError for fewer than two stages, CountError for an odd number of micro-batches or fewer than twice the
    IPUs and UnsupportedProgramError for stages that have no mirror image.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, multiple(shape))
    chunks = mirrored_chunks_of(shape, "dualpipe")
    _check_least("dualpipe", shape, len(chunks))
    half, passes = len(chunks) // 2, {}
    for rank, (ipu, own) in enumerate(chunks.items()):
        nearer = min(rank, len(chunks) - 1 - rank)
        copies = (0, 1) if rank < half else (1, 0)
        turns = _Turns(shape.micro_batches // 2, nearer, half).passes()
        passes[ipu] = (
            own,
            [((kind, copies[chunk], 2 * number + copies[chunk]), joined) for (kind, chunk, number), joined in turns],
        )
    return joined_order_of("dualpipe", shape, passes)


def multiple(shape: PlanShape) -> int:  # noqa: ARG001 - the signature that every schedule has
    """Return 2: a micro-batch from either end."""
    return 2


def v_order(shape: PlanShape) -> Order:
    """Return the Order of DualPipeV; stages that follow each other on an IPU on the way there, or back, run as one.

    Raises ProgramError for fewer than two stages, CountError for fewer micro-batches than twice the IPUs and
    UnsupportedProgramError for stages that are not placed as a V.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    chunks = zigzag_chunks_of(shape, "dualpipe_v")
    _check_least("dualpipe_v", shape, len(chunks))
    passes = {
        ipu: (own, list(_Turns(shape.micro_batches, rank, len(chunks)).passes()))
        for rank, (ipu, own) in enumerate(chunks.items())
    }
    return joined_order_of("dualpipe_v", shape, passes)


def _check_least(schedule: str, shape: PlanShape, ipus: int) -> None:
    if shape.micro_batches < 2 * ipus:
        raise CountError(
            f"The schedule '{schedule}' needs twice as many micro-batches as IPUs, {2 * ipus} or more, got "
            f"{shape.micro_batches}."
        )


class _Turns:
    """The passes of one IPU of a V; each takes the next micro-batch of its kind and chunk."""

    def __init__(self, count: int, rank: int, ipus: int) -> None:
        """Take the IPU that is ``rank``-th of ``ipus``."""
        self._count, self._rank, self._ipus = count, rank, ipus
        self._forward, self._backward = [0, 0], [0, 0]
        self._weights: deque[tuple[int, int]] = deque()

    def passes(self) -> Iterator[Turn]:
        """Yield the passes in order."""
        ahead, behind = self._ipus - self._rank - 1, self._rank + 1
        for _ in range(2 * ahead):
            yield self._f(_THERE)
        for _ in range(behind):
            yield from (self._f(_THERE), self._f(_BACK))
        for _ in range(ahead):
            yield from (self._i(_BACK), self._w(), self._f(_BACK))
        for turn in range(self._count - 2 * self._ipus + behind):
            # The last IPU's first backward pass is of what its forward pass has just made.
            yield from self._together(_THERE, _BACK, joined=turn > 0 or ahead > 0)
            yield from self._together(_BACK, _THERE)
        for _ in range(ahead):
            yield self._b(_BACK)
            yield from self._together(_BACK, _THERE)
        yield from self._last(behind)
        for _ in range(ahead):
            yield from (self._w(), self._i(_THERE))
        for _ in range(behind):
            yield self._w()

    def _last(self, turns: int) -> Iterator[Turn]:
        """Yield the last backward passes of both chunks, in halves from the middle on, of which one half is left."""
        switch = turns // 2 * 2 + (0 if self._rank % 2 else 1)
        for turn in range(2 * turns):
            chunk = _THERE if turn % 2 else _BACK
            yield self._i(chunk) if turn >= switch else self._b(chunk)

    def _together(self, forward: int, backward: int, *, joined: bool = True) -> Iterator[Turn]:
        yield self._f(forward)[0], joined
        yield self._b(backward)

    def _f(self, chunk: int) -> Turn:
        self._forward[chunk] += 1
        return (Pass.FORWARD, chunk, self._forward[chunk] - 1), False

    def _b(self, chunk: int) -> Turn:
        self._backward[chunk] += 1
        return (Pass.BACKWARD, chunk, self._backward[chunk] - 1), False

    def _i(self, chunk: int) -> Turn:
        self._backward[chunk] += 1
        self._weights.append((chunk, self._backward[chunk] - 1))
        return (Pass.INPUT_GRADIENT, chunk, self._backward[chunk] - 1), False

    def _w(self) -> Turn:
        return (Pass.WEIGHT_GRADIENT, *self._weights.popleft()), False
