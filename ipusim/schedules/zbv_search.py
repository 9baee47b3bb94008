"""Search the ZB-V schedule for few micro-batches, pass by pass, like its authors' code.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6. Each pass takes one slot. Forward passes fill the
time until an IPU's first gradient, as far as memory allows. Then each IPU alternates gradients and forward passes, with
weight-gradient halves in idle slots, or if memory is full. The authors' code tries four placements of such halves
and takes the best; passes of one slot and free copies give four equal results.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

from ipusim.pipeline.ops import Pass
from ipusim.schedules.chunks import ChunkPass

_F, _I, _W = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT
#: Slot of unscheduled passes.
_UNSCHEDULED: Final = -1


def search(ipus: int, count: int) -> list[list[ChunkPass]]:
    """Return each IPU's passes for ``count`` micro-batches on a V of ``ipus``."""
    ranks = [_IpuSchedule(count) for _ in range(ipus)]
    for ipu, previous, successor in zip(ranks, [None, *ranks], [*ranks[1:], None], strict=False):
        ipu.neighbours = previous, successor
    _fill(ranks, count)
    for _ in range(2 * count):
        way_out: list[_IpuSchedule] = []
        way_back: list[_IpuSchedule] = []
        for ipu in ranks:
            (way_back if ipu.next_gradient() else way_out).append(ipu)
        for ipu in reversed(way_out):
            ipu.run(_I, 0)
        for ipu in way_back:
            ipu.run(_I, 1)
        for ipu in ranks:
            chunk = ipu.next_forward()
            if chunk is not None:
                while ipu.level >= 2 * ipus:
                    ipu.run_pending_half()
                ipu.run(_F, chunk)
    for ipu in ranks:
        while ipu.halves:
            ipu.run_pending_half()
    return [ipu.passes for ipu in ranks]


class _IpuSchedule:
    """Schedule of an IPU during the search.

    Attributes:
        passes: scheduled passes in order.
        halves: chunks of gradients with pending weight-gradient halves.
        slot: slot after the last pass.
        level: number of stored micro-batches, from forward pass to weight-gradient half.
        neighbours: previous and next IPU; None at the ends.
        counts: number of passes by kind and chunk.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._ends: dict[ChunkPass, int] = {}
        self.passes: list[ChunkPass] = []
        self.halves = deque[int]()
        self.slot = self.level = 0
        self.neighbours: tuple[_IpuSchedule | None, _IpuSchedule | None] = (None, None)
        self.counts = {(kind, chunk): 0 for kind in (_F, _I, _W) for chunk in (0, 1)}

    def arrival_slot(self, kind: Pass, chunk: int) -> int:
        """Return the slot in which the next pass's tensor from a neighbour arrives; _UNSCHEDULED if not yet known.

        Activations on the way there and gradients of the way back come from the previous IPU, other tensors from the
        next IPU.
        """
        source = self.neighbours[(kind is _F) == bool(chunk)]
        return 0 if source is None else source._ends.get((kind, chunk, self.counts[kind, chunk]), _UNSCHEDULED)

    def run(self, kind: Pass, chunk: int) -> None:
        """Run the next pass of a kind and chunk, after weight-gradient halves in idle slots."""
        arrival_slot = self.arrival_slot(kind, chunk)
        while self.halves and arrival_slot > self.slot:
            self.run_pending_half()
        self.slot = max(self.slot, arrival_slot)
        self._take(kind, chunk)
        if kind is _F:
            self.level += 1
        else:
            self.halves.append(chunk)

    def run_pending_half(self) -> None:
        """Run the oldest pending weight-gradient half."""
        self._take(_W, self.halves.popleft())
        self.level -= 1

    def _take(self, kind: Pass, chunk: int) -> None:
        micro_batch = self.counts[kind, chunk]
        self.counts[kind, chunk] += 1
        self.slot += 1
        self._ends[kind, chunk, micro_batch] = self.slot
        self.passes.append((kind, chunk, micro_batch))

    def next_gradient(self) -> int:
        """Return the chunk of the next gradient."""
        way_out, way_back = self.counts[_I, 0], self.counts[_I, 1]
        ready = way_out < way_back and (way_back == self._count or self.arrival_slot(_I, 0) != _UNSCHEDULED)
        return 0 if ready else 1

    def next_forward(self) -> int | None:
        """Return the chunk of the next forward pass; None if no forward pass remains or can run yet."""
        way_out, way_back = self.counts[_F, 0], self.counts[_F, 1]
        if way_back == self._count:
            return None
        if way_back < way_out and self.arrival_slot(_F, 1) != _UNSCHEDULED:
            return 1
        return 0 if way_out < self._count and self.arrival_slot(_F, 0) != _UNSCHEDULED else None


def _fill(ranks: list[_IpuSchedule], count: int) -> None:
    """Run the forward passes before the first gradient of each IPU.

    While the first micro-batch is on its way back, further micro-batches begin, as far as memory also allows for the
    forward passes of each IPU before its first gradient. Then each IPU runs as many forward passes as the previous IPU.
    """
    for ipu in ranks:
        ipu.run(_F, 0)
    for rank, ipu in reversed([*enumerate(ranks)]):
        while (
            ipu.slot < ipu.arrival_slot(_F, 1)
            and ipu.counts[_F, 0] < count
            and ipu.level + 2 * (rank + 1) <= 2 * len(ranks)
        ):
            for peer in ranks[: rank + 1]:
                peer.run(_F, 0)
        ipu.run(_F, 1)
    chunk = 0
    for number, (previous, ipu) in enumerate(pairwise(ranks), start=1):
        while ipu.level < previous.level or ipu.counts[_F, 1] <= previous.counts[_F, 1] < count:
            for peer in reversed(ranks[number:]):
                if peer.counts[_F, chunk] < count:
                    peer.run(_F, chunk)
            chunk = 1 - chunk
