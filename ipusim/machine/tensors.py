"""Tensors between passes: on their IPUs, on their way to the next step of a micro-batch's life, and to the host.

They come in pieces from concurrent stages to the next one, and as gradients back to the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ipusim.machine.stage_memory import StageMemory
from ipusim.model.functions.untrained import Untrained
from ipusim.model.layers.layer import Array, Rest
from ipusim.pipeline.feeds import Outfeed
from ipusim.pipeline.order import Edge
from ipusim.pipeline.shape import PlanShape


class Payload(NamedTuple):
    """The tensors that travel from one step to the next: activations and labels forward, a gradient backward."""

    tensor: Any  # an array, or None from the last forward to its backward
    labels: Array | None = None


#: Parts of a stage's input from concurrent stages, in the order of these; None until they have arrived.
Pieces = list[Payload | None]


def concatenated(pieces: Sequence[Payload]) -> tuple[Payload, tuple[int, ...]]:
    """Return outputs side by side along their last axis, and their widths.

    Of stages with several outputs each, all outputs in order, and the number of each stage's.
    """
    tensors, labels = [payload.tensor for payload in pieces], pieces[0].labels
    if isinstance(tensors[0], tuple):
        return Payload(sum(tensors, ()), labels), tuple(map(len, tensors))
    return Payload(np.concatenate(tensors, axis=-1), labels), tuple(tensor.shape[-1] for tensor in tensors)


def summed(pieces: Sequence[Payload]) -> Payload:
    """Return the sum of gradients, in the order of the stages; an empty payload if no gradient is needed."""
    total = pieces[0].tensor
    if total is None:
        return pieces[0]
    for payload in pieces[1:]:
        if isinstance(total, tuple):  # None for inputs that have no gradient
            total = tuple(
                a if b is None else b if a is None else a + b for a, b in zip(total, payload.tensor, strict=True)
            )
        else:
            total = total + payload.tensor
    return Payload(total)


def split(payload: Payload, widths: Sequence[int]) -> list[Payload]:
    """Cut a gradient into what belongs to each of the concurrent stages, by the widths of their outputs."""
    if payload.tensor is None:
        return [payload] * len(widths)
    if isinstance(payload.tensor, tuple):
        ends = np.cumsum(widths)
        return [Payload(payload.tensor[end - width : end]) for end, width in zip(ends, widths, strict=True)]
    cuts = np.cumsum(widths)[:-1]
    return [Payload(np.ascontiguousarray(part)) for part in np.split(payload.tensor, cuts, axis=-1)]


@dataclass
class IpuMemory:
    """The tensors on one IPU, by their uses.

    Attributes:
        stages: the stages that live here.
        arrived: inputs by (step, micro-batch), delivered by a copy or the infeed.
        inputs: stage inputs kept for recomputation, by (stage, micro-batch), with untrained variables as they were.
        saved: what a forward keeps for its backward, by (stage, micro-batch).
        rests: what the first half of a backward keeps for the second, by (stage, micro-batch).
        outbox: outputs by (step, micro-batch) that wait for the next copy.
        away: what stages of an IPU keep here, by (IPU, stage, micro-batch): moved out to this IPU, or to the memory
            beside it.
        waiting: values and, with True, gradients by (name, micro-batch) that a later pass on this IPU takes.
    """

    stages: dict[int, StageMemory] = field(default_factory=dict)
    arrived: dict[tuple[int, int], Payload | Pieces] = field(default_factory=dict)
    inputs: dict[tuple[int, int], tuple[Payload, Untrained | None]] = field(default_factory=dict)
    saved: dict[tuple[int, int], Any] = field(default_factory=dict)
    rests: dict[tuple[int, int], Rest] = field(default_factory=dict)
    outbox: dict[tuple[int, int], Payload] = field(default_factory=dict)
    away: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    waiting: dict[tuple[bool, str, int], Array] = field(default_factory=dict)

    def put(self, names: Sequence[str], micro_batch: int, made: Any, backward: bool = False) -> Any:
        """Store the last outputs of a pass under ``names``, and return the other outputs."""
        if not names:
            return made
        if made is None:  # a gradient that nothing needs
            made = (None,) * (len(names) + 1)
        for name, array in zip(names, made[-len(names) :], strict=True):
            self.waiting[backward, name, micro_batch] = array
        rest = made[: -len(names)]
        return rest[0] if len(rest) == 1 else rest

    def take(self, names: Sequence[str], micro_batch: int, tensor: Any, backward: bool = False) -> Any:
        """Return ``tensor`` with what waits under ``names`` behind it; raises KeyError where it does not."""
        if not names:
            return tensor
        fetched = [self.waiting.pop((backward, name, micro_batch)) for name in names]
        return (*(tensor if isinstance(tensor, tuple) else (tensor,)), *fetched)


class Transfers:
    """The tensors that are between two passes of a replica."""

    def __init__(self, shape: PlanShape, memories: Mapping[int, IpuMemory]) -> None:
        """Move tensors between the memories of IPUs, by their numbers within the replica."""
        self._memories, self._positions, self._concurrent = memories, shape.positions, bool(shape.sizes)
        #: Of each copy of the pipeline the IPUs of each step of a micro-batch's life: several for concurrent stages.
        self._ipus_of_step = [
            [[mapping[stage] for stage in shape.stages_of_step(step)] for step in range(shape.steps)]
            for mapping in shape.copies
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
                    self._memory_of(target, micro_batch).arrived[target, micro_batch] = payload
            memory.outbox.clear()

    def deliver(self, ipu: int, step: int, micro_batch: int) -> None:
        """Move one output to the IPU of the next step; steps of several IPUs move by :meth:`copy` alone."""
        payload = self._memories[ipu].outbox.pop((step, micro_batch))
        self._memory_of(step + 1, micro_batch).arrived[step + 1, micro_batch] = payload

    def _memory_of(self, step: int, micro_batch: int) -> IpuMemory:
        """Return the memory of the one IPU of a step."""
        return self._memories[self._ipus_of_step[micro_batch % len(self._ipus_of_step)][step][0]]

    def _spread(self, ipu: int, step: int, target: int, micro_batch: int, payload: Payload) -> None:
        """Copy what ``ipu`` made in ``step`` to the IPUs of the step ``target``, to concurrent stages each its part."""
        sources, targets = self._ipus_of_step[0][step], self._ipus_of_step[0][target]
        parts = [payload] * len(targets)
        if len(targets) > 1 and step >= self._positions:
            parts = split(payload, self._widths[target])
        for to, part in zip(targets, parts, strict=True):
            arrived = self._memories[to].arrived
            if len(sources) == 1:
                arrived[target, micro_batch] = part
                continue
            pieces = arrived.setdefault((target, micro_batch), [None] * len(sources))
            assert isinstance(pieces, list)
            pieces[sources.index(ipu)] = part

    def take(self, memory: IpuMemory, step: int, micro_batch: int) -> Payload | None:
        """Return and remove what has arrived for a step; None unless all of its pieces have.

        What the last stage hands its own backward pass needs no copy where that follows in the same time-step.
        """
        arrived = memory.arrived.pop((step, micro_batch), None)
        if arrived is None and step == self._positions and not self._concurrent:
            return memory.outbox.pop((step - 1, micro_batch), None)
        if not isinstance(arrived, list):
            return arrived
        pieces = [payload for payload in arrived if payload is not None]
        if len(pieces) < len(arrived):
            return None
        if step >= self._positions:
            return summed(pieces)
        # The gradient goes back to the concurrent stages, whose backward is as far from the end as they from the start.
        whole, self._widths[2 * self._positions - step] = concatenated(pieces)
        return whole


class Results:
    """The elements of an outfeed; those of several copies of the last stage come by turns.

    Attributes:
        elements: those that the host has received, in order.
    """

    def __init__(self, outfeed: Outfeed, received: Callable[[], object], copies: int = 1) -> None:
        """Call ``received`` when there is one more; the last stage has so many copies."""
        self._queues: list[deque[tuple[Array, ...]]] = [deque() for _ in range(copies)]
        self._outfeed, self._received = outfeed, received
        self._total: tuple[Array, ...] | None = None
        self.elements: list[tuple[Array, ...]] = []

    def add(self, results: tuple[Any, ...], micro_batch: int) -> None:
        """Hand the last stage's results of a micro-batch to the host, or add them up."""
        element = tuple(results[index] for index in self._outfeed.sent)
        if not self._outfeed.accumulate:
            self._queues[micro_batch % len(self._queues)].append(element)
            while queue := self._queues[len(self.elements) % len(self._queues)]:
                self._hand_over(queue.popleft())
        elif self._total is None:
            dtype = self._outfeed.accumulate_dtype or None
            self._total = tuple(np.array(array, dtype=dtype or np.asarray(array).dtype) for array in element)
        else:
            for total, array in zip(self._total, element, strict=True):
                np.add(total, array, out=total, casting="same_kind")

    def hand_over_total(self) -> None:
        """Hand the sum of the execution's results to the host."""
        total, self._total = self._total, None
        if total is not None:
            self._hand_over(total)

    def _hand_over(self, element: tuple[Array, ...]) -> None:
        self.elements.append(element)
        self._received()
