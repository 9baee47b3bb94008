"""ZB-V of few micro-batches, as its authors' own code searches it: pass by pass, on all IPUs at once.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6. Each pass takes a slot. Forward passes fill the way
to an IPU's first gradient as far as memory allows. Then each IPU runs a gradient and a forward pass in turn, and halves
for the weights in slots in which it would wait, or where memory is full. The code has four ways to put such halves
elsewhere as well, and takes the best; where all passes take a slot, and copies none, the four are one.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

from ipusim.pipeline.ops import Pass
from ipusim.schedules.chunks import ChunkPass

_F, _I, _W = Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT
#: The slot of what has not run.
_NEVER: Final = -1


def searched(ipus: int, count: int) -> list[list[ChunkPass]]:
    """Return the passes of each IPU in order, of ``count`` micro-batches on a V of ``ipus``."""
    ranks = [_Rank(count) for _ in range(ipus)]
    for ipu, before, behind in zip(ranks, [None, *ranks], [*ranks[1:], None], strict=False):
        ipu.neighbours = before, behind
    _fill(ranks, count)
    for _ in range(2 * count):
        there: list[_Rank] = []
        back: list[_Rank] = []
        for ipu in ranks:
            (back if ipu.next_gradient() else there).append(ipu)
        for ipu in reversed(there):
            ipu.run(_I, 0)
        for ipu in back:
            ipu.run(_I, 1)
        for ipu in ranks:
            chunk = ipu.next_forward()
            if chunk is not None:
                while ipu.kept >= 2 * ipus:
                    ipu.run_waiting()
                ipu.run(_F, chunk)
    for ipu in ranks:
        while ipu.waiting:
            ipu.run_waiting()
    return [ipu.passes for ipu in ranks]


class _Rank:
    """The passes of an IPU so far.

    Attributes:
        passes: in order.
        waiting: chunks of the gradients whose halves for the weights have not run yet.
        slot: the slot behind its last pass.
        kept: micro-batches that it keeps, from a forward pass to the half for the weights.
        neighbours: the IPU before it and the one behind, where there are any.
        done: passes so far of a kind and a chunk.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._ends: dict[ChunkPass, int] = {}
        self.passes: list[ChunkPass] = []
        self.waiting = deque[int]()
        self.slot = self.kept = 0
        self.neighbours: tuple[_Rank | None, _Rank | None] = (None, None)
        self.done = {(kind, chunk): 0 for kind in (_F, _I, _W) for chunk in (0, 1)}

    def arrives(self, kind: Pass, chunk: int) -> int:
        """Return the slot in which what the next such pass needs of a neighbour is there; _NEVER where it is not yet.

        Forward passes there and gradients of the way back come from the IPU before, the others from the one behind.
        """
        source = self.neighbours[(kind is _F) == bool(chunk)]
        return 0 if source is None else source._ends.get((kind, chunk, self.done[kind, chunk]), _NEVER)

    def run(self, kind: Pass, chunk: int) -> None:
        """Run the next such pass, behind halves for the weights in the slots that it waits for a neighbour."""
        arrives = self.arrives(kind, chunk)
        while self.waiting and arrives > self.slot:
            self.run_waiting()
        self.slot = max(self.slot, arrives)
        self._take(kind, chunk)
        if kind is _F:
            self.kept += 1
        else:
            self.waiting.append(chunk)

    def run_waiting(self) -> None:
        """Run the half for the weights that waits longest."""
        self._take(_W, self.waiting.popleft())
        self.kept -= 1

    def _take(self, kind: Pass, chunk: int) -> None:
        micro_batch = self.done[kind, chunk]
        self.done[kind, chunk] += 1
        self.slot += 1
        self._ends[kind, chunk, micro_batch] = self.slot
        self.passes.append((kind, chunk, micro_batch))

    def next_gradient(self) -> int:
        """Return the chunk of its next gradient."""
        there, back = self.done[_I, 0], self.done[_I, 1]
        ready = there < back and (back == self._count or self.arrives(_I, 0) != _NEVER)
        return 0 if ready else 1

    def next_forward(self) -> int | None:
        """Return the chunk of its next forward pass; None where no forward pass is left, or can run yet."""
        there, back = self.done[_F, 0], self.done[_F, 1]
        if back == self._count:
            return None
        if back < there and self.arrives(_F, 1) != _NEVER:
            return 1
        return 0 if there < self._count and self.arrives(_F, 0) != _NEVER else None


def _fill(ranks: list[_Rank], count: int) -> None:
    """Run the forward passes before the first gradient of each IPU.

    While the first micro-batch is on its way back, further ones begin, as far as memory allows for those that each IPU
    begins before its first gradient. Then each IPU runs as many forward passes as the one before it.
    """
    for ipu in ranks:
        ipu.run(_F, 0)
    for rank, ipu in reversed([*enumerate(ranks)]):
        while ipu.slot < ipu.arrives(_F, 1) and ipu.done[_F, 0] < count and ipu.kept + 2 * (rank + 1) <= 2 * len(ranks):
            for other in ranks[: rank + 1]:
                other.run(_F, 0)
        ipu.run(_F, 1)
    chunk = 0
    for number, (before, ipu) in enumerate(pairwise(ranks), start=1):
        while ipu.kept < before.kept or ipu.done[_F, 1] <= before.done[_F, 1] < count:
            for other in reversed(ranks[number:]):
                if other.done[_F, chunk] < count:
                    other.run(_F, chunk)
            chunk = 1 - chunk
