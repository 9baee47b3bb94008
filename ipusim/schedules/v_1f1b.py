"""Lay out 1F1B-V: two stages per IPU as a V, whole backward passes, and two thirds of 1F1B's activations.

Qi et al., Pipeline Parallelism with Controllable Memory (arXiv 2405.15362). Like in V-Half, a micro-batch's passes form
a pattern of slots that repeats every six slots; a backward pass takes two slots. Then each pass moves to the
first free slots after its inputs, forward passes only as far as the pattern's peak of activations allows.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

import numpy as np

from ipusim.base.cache import shared
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, order_of, repeat_period, zigzag_chunks_of

#: Passes of a micro-batch on an IPU in order: kind, chunk, and direction along the IPUs.
_PASSES: Final = (
    (Pass.FORWARD, 0, 1),
    (Pass.FORWARD, 1, -1),
    (Pass.BACKWARD, 1, 1),
    (Pass.BACKWARD, 0, -1),
)
#: Slots of each pass in ``_PASSES``.
_LENGTHS: Final = (1, 1, 2, 2)
#: Slots between consecutive micro-batches.
_PERIOD: Final = sum(_LENGTHS)


def order(shape: PlanShape) -> Order:
    """Lay out 1F1B-V; adjacent stages of an IPU form a chunk per direction.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    stages that are not placed as a V.
    """
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    chunks = zigzag_chunks_of(shape, "1f1b_v")
    ipus, count = len(chunks), shape.micro_batches
    laid_out_count = min(count, 2 * ipus + 6)  # enough for a period between the ramps of each IPU
    passes = {
        ipu: (ipu_chunks, repeat_period(lane, (Pass.FORWARD, 0, 2 * ipus + 2), len(_PASSES), count - laid_out_count))
        for (ipu, ipu_chunks), lane in zip(chunks.items(), shared()(_lay_out, ipus, laid_out_count), strict=True)
    }
    return order_of("1f1b_v", shape, passes)


def _pattern(ipus: int, rank: int) -> tuple[int, ...]:
    """Return the first slots of the first micro-batch's passes.

    Backward passes follow each other along the IPUs, with three free slots after every third backward pass, so that no
    backward pass collides with a forward pass.
    """
    begin, ahead = 2 * ipus + (0 if ipus % 3 else 3), -(ipus + 2) % 3
    backward = (begin + 2 * turn + 3 * ((ahead + turn) // 3) for turn in (rank, 2 * ipus - 1 - rank))
    return rank, 2 * ipus - 1 - rank, *backward


def _lay_out(ipus: int, count: int) -> list[list[ChunkPass]]:
    """Return the passes of each IPU in order."""
    passes = [
        [
            (slot + _PERIOD * micro_batch, rank, number, micro_batch)
            for number, slot in enumerate(_pattern(ipus, rank))
            for micro_batch in range(count)
        ]
        for rank in range(ipus)
    ]
    turns = sorted(chain.from_iterable(passes))
    lanes = [_Lane(ipu_passes, turns[-1][0] + _PERIOD) for ipu_passes in passes]
    most = max(int(lane.levels.max()) for lane in lanes)
    for slot, rank, number, micro_batch in turns:
        source = rank - _PASSES[number][2]
        has_source = 0 <= source < ipus
        ready = lanes[source].end_of(number, micro_batch) if has_source else lanes[rank].end_of(number - 1, micro_batch)
        lanes[rank].move(slot, number, micro_batch, max(ready, lanes[rank].end_of(number, micro_batch - 1)), most)
    return [lane.passes() for lane in lanes]


class _Lane:
    """Slots of an IPU.

    Attributes:
        levels: number of stored micro-batches in each slot, over both chunks.
    """

    def __init__(self, passes: list[tuple[int, int, int, int]], slots: int) -> None:
        """Take passes as (slot, rank, number, micro-batch)."""
        change = np.zeros(slots, np.int64)
        self._is_taken = np.zeros(slots, bool)
        self._begin: dict[tuple[int, int], int] = {}
        for slot, _, number, _ in passes:
            length = _LENGTHS[number]
            self._is_taken[slot : slot + length] = True
            change[slot + length - 1] += 1 if _PASSES[number][0] is Pass.FORWARD else -1
        self.levels = np.cumsum(change)

    def end_of(self, number: int, micro_batch: int) -> int:
        """Return the slot after a moved pass; 0 for missing passes."""
        begin = self._begin.get((number, micro_batch))
        return 0 if begin is None else begin + _LENGTHS[number]

    def move(self, slot: int, number: int, micro_batch: int, ready: int, most: int) -> None:
        """Move a pass to the first free slot from ``ready`` on, within peak ``most``."""
        length, forward = _LENGTHS[number], _PASSES[number][0] is Pass.FORWARD
        if forward:
            full_slots = np.flatnonzero(self.levels[ready:slot] >= most)
            ready += int(full_slots[-1]) + 1 if len(full_slots) else 0
        free = ~self._is_taken[ready : slot + length - 1]
        if not forward:
            free = free[:-1] & free[1:]
        target = ready + int(free.argmax()) if free[: slot - ready].any() else slot
        self._begin[number, micro_batch] = target
        if target < slot:
            self._is_taken[slot : slot + length] = False
            self._is_taken[target : target + length] = True
            self.levels[target + length - 1 : slot + length - 1] += 1 if forward else -1

    def passes(self) -> list[ChunkPass]:
        """Return the passes in order of slots."""
        return [(*_PASSES[number][:2], batch) for number, batch in sorted(self._begin, key=self._begin.__getitem__)]
