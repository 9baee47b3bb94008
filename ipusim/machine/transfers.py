"""How tensors move between IPUs: what is in their outboxes goes to where the next step of a micro-batch's life runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipusim.machine.pieces import Payload, Pieces, split
from ipusim.machine.stage_memory import IpuMemory
from ipusim.pipeline.order import Edge
from ipusim.pipeline.program import PlanShape


class Transfers:
    """The tensors that are between two passes of a replica."""

    def __init__(self, shape: PlanShape, memories: Mapping[int, IpuMemory]) -> None:
        """Move tensors between the memories of IPUs, by their numbers within the replica."""
        self._memories, self._positions, self._concurrent = memories, shape.positions, bool(shape.sizes)
        #: The IPUs of each step of a micro-batch's life: several for concurrent stages.
        self._ipus_of_step = [
            [shape.mapping[stage] for stage in shape.stages_of_step(step)] for step in range(shape.steps)
        ]
        self._widths: dict[int, tuple[int, ...]] = {}
        self._edges: Sequence[Edge] = ()
        self._next_step: dict[int, int] = {}

    def copy(self, edges: Sequence[Edge]) -> None:
        """Move every output along its edge to the IPU of the next step."""
        if edges is not self._edges:  # the same few tuples come again after every time-step
            self._edges, self._next_step = edges, dict(edges)
        for ipu, memory in self._memories.items():
            for (step, micro_batch), payload in memory.outbox.items():
                target = self._next_step.get(step)
                if target is None:
                    continue
                if self._concurrent:
                    self._spread(ipu, step, target, micro_batch, payload)
                else:
                    self._memories[self._ipus_of_step[target][0]].arrived[target, micro_batch] = payload
            memory.outbox.clear()

    def deliver(self, ipu: int, step: int, micro_batch: int) -> None:
        """Move one output to the IPU of the next step; steps of several IPUs move by :meth:`copy` alone."""
        payload = self._memories[ipu].outbox.pop((step, micro_batch))
        self._memories[self._ipus_of_step[step + 1][0]].arrived[step + 1, micro_batch] = payload

    def _spread(self, ipu: int, step: int, target: int, micro_batch: int, payload: Payload) -> None:
        """Give what ``ipu`` made in ``step`` to the IPUs of the step ``target``, each of concurrent ones its part."""
        sources, targets = self._ipus_of_step[step], self._ipus_of_step[target]
        parts = [payload] * len(targets)
        if len(targets) > 1 and step >= self._positions:
            parts = split(payload, self._widths[target])
        for to, part in zip(targets, parts, strict=True):
            arrived = self._memories[to].arrived
            if len(sources) == 1:
                arrived[target, micro_batch] = part
                continue
            pieces = arrived.setdefault((target, micro_batch), Pieces(len(sources)))
            assert isinstance(pieces, Pieces)
            pieces.put(sources.index(ipu), part)

    def take(self, memory: IpuMemory, step: int, micro_batch: int) -> Payload | None:
        """Take what has arrived for a step; None where it has not, or not all of its pieces."""
        arrived = memory.arrived.pop((step, micro_batch), None)
        if not isinstance(arrived, Pieces):
            return arrived
        if step >= self._positions:
            return arrived.summed()
        whole = arrived.concatenated()
        if whole is None:
            return None
        # The gradient goes back to the concurrent stages, whose backward is as far from the end as they from the start.
        self._widths[2 * self._positions - step] = whole[1]
        return whole[0]
