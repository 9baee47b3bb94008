"""Hold a replica's tensors between passes: on IPUs, in transit between them, and on the way to the host.

Concurrent stages send their outputs in pieces to the next stage, and receive its gradient in pieces.
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
    """Tensors between consecutive steps: activations and labels forward, a gradient backward."""

    tensor: Any  # an array, or None from the last forward to its backward
    labels: Array | None = None


#: Parts of a stage's input from concurrent stages, in stage order; None before arrival.
Pieces = list[Payload | None]


def concatenate_boxes(pieces: Sequence[Payload]) -> tuple[Payload, tuple[int, ...]]:
    """Concatenate outputs of concurrent stages along the last axis; return result and widths.

    Stages with several outputs contribute tuples; a width is then the number of a stage's outputs.
    """
    tensors, labels = [payload.tensor for payload in pieces], pieces[0].labels
    if isinstance(tensors[0], tuple):
        return Payload(sum(tensors, ()), labels), tuple(map(len, tensors))
    return Payload(np.concatenate(tensors, axis=-1), labels), tuple(tensor.shape[-1] for tensor in tensors)


def sum_gradients(pieces: Sequence[Payload]) -> Payload:
    """Return the sum of gradients, in stage order; an empty payload if no gradient is needed."""
    total = pieces[0].tensor
    if total is None:
        return pieces[0]
    for payload in pieces[1:]:
        if isinstance(total, tuple):  # entries are None for inputs without a gradient
            total = tuple(
                a if b is None else b if a is None else a + b for a, b in zip(total, payload.tensor, strict=True)
            )
        else:
            total = total + payload.tensor
    return Payload(total)


def split_gradient(payload: Payload, widths: Sequence[int]) -> list[Payload]:
    """Cut a gradient into parts for concurrent stages, by output widths."""
    if payload.tensor is None:
        return [payload] * len(widths)
    if isinstance(payload.tensor, tuple):
        ends = np.cumsum(widths)
        return [Payload(payload.tensor[end - width : end]) for end, width in zip(ends, widths, strict=True)]
    cuts = np.cumsum(widths)[:-1]
    return [Payload(np.ascontiguousarray(part)) for part in np.split(payload.tensor, cuts, axis=-1)]


@dataclass
class IpuMemory:
    """The tensors on an IPU, by use.

    Attributes:
        stages: stages on the IPU.
        arrived: inputs by (step, micro-batch), delivered by a copy or the infeed.
        inputs: stage inputs saved for recomputation, with the untrained variables of that time, by (stage,
            micro-batch).
        saved_values: tensors saved from a forward pass for its backward pass, by (stage, micro-batch).
        rest_values: tensors that an input-gradient pass leaves for the weight-gradient pass, by (stage, micro-batch).
        outbox: outputs by (step, micro-batch), waiting for the next copy.
        partner_stashes: activations moved out to this IPU or the memory beside this IPU, by (IPU, stage, micro-batch).
        waiting_values: values for a later pass on this IPU by (False, name, micro-batch), or gradients by (True, name,
            micro-batch).
    """

    stages: dict[int, StageMemory] = field(default_factory=dict)
    arrived: dict[tuple[int, int], Payload | Pieces] = field(default_factory=dict)
    inputs: dict[tuple[int, int], tuple[Payload, Untrained | None]] = field(default_factory=dict)
    saved_values: dict[tuple[int, int], Any] = field(default_factory=dict)
    rest_values: dict[tuple[int, int], Rest] = field(default_factory=dict)
    outbox: dict[tuple[int, int], Payload] = field(default_factory=dict)
    partner_stashes: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    waiting_values: dict[tuple[bool, str, int], Array] = field(default_factory=dict)

    def store(self, names: Sequence[str], micro_batch: int, outputs: Any, backward: bool = False) -> Any:
        """Store the last outputs of a pass under ``names``, and return the preceding outputs."""
        if not names:
            return outputs
        if outputs is None:  # a gradient that nothing needs
            outputs = (None,) * (len(names) + 1)
        for name, array in zip(names, outputs[-len(names) :], strict=True):
            self.waiting_values[backward, name, micro_batch] = array
        preceding_outputs = outputs[: -len(names)]
        return preceding_outputs[0] if len(preceding_outputs) == 1 else preceding_outputs

    def take(self, names: Sequence[str], micro_batch: int, tensor: Any, backward: bool = False) -> Any:
        """Return ``tensor`` followed by the values under ``names``. Raises KeyError if any value is missing."""
        if not names:
            return tensor
        fetched = [self.waiting_values.pop((backward, name, micro_batch)) for name in names]
        return (*(tensor if isinstance(tensor, tuple) else (tensor,)), *fetched)


class Transfers:
    """Transfers of tensors between the passes of a replica."""

    def __init__(self, shape: PlanShape, memories: Mapping[int, IpuMemory]) -> None:
        """Move tensors between the memories of IPUs, keyed by number within the replica."""
        self._memories, self._positions, self._concurrent = memories, shape.positions, bool(shape.sizes)
        #: Per copy of the pipeline: the IPUs of every step (pass of a micro-batch), several for concurrent stages.
        self._ipus_of_step = [
            [[mapping[stage] for stage in shape.stages_of_step(step)] for step in range(shape.steps)]
            for mapping in shape.copies
        ]
        self._widths: dict[int, tuple[int, ...]] = {}
        self._edges: Sequence[Edge] = ()
        self._next_step: dict[int, int] = {}

    def copy(self, edges: Sequence[Edge]) -> None:
        """Move every output along its edge to the IPU of the next step."""
        if edges is not self._edges:  # the same few tuples recur, so their dictionaries are kept
            self._edges, self._next_step = edges, dict(edges)
        for ipu, memory in self._memories.items():
            for (step, micro_batch), payload in memory.outbox.items():
                target = self._next_step.get(step)
                if target is None:
                    continue
                if self._concurrent:
                    self._copy_to_step(ipu, step, target, micro_batch, payload)
                else:
                    self._memory_of(target, micro_batch).arrived[target, micro_batch] = payload
            memory.outbox.clear()

    def deliver(self, ipu: int, step: int, micro_batch: int) -> None:
        """Move an output to the IPU of the next step; a step on several IPUs needs :meth:`copy`."""
        payload = self._memories[ipu].outbox.pop((step, micro_batch))
        self._memory_of(step + 1, micro_batch).arrived[step + 1, micro_batch] = payload

    def _memory_of(self, step: int, micro_batch: int) -> IpuMemory:
        """Return the memory of a step's only IPU."""
        return self._memories[self._ipus_of_step[micro_batch % len(self._ipus_of_step)][step][0]]

    def _copy_to_step(self, ipu: int, step: int, target: int, micro_batch: int, payload: Payload) -> None:
        """Copy an output of ``step`` from ``ipu`` to the IPUs of step ``target``.

        Concurrent stages get their parts of a gradient.
        """
        sources, targets = self._ipus_of_step[0][step], self._ipus_of_step[0][target]
        parts = [payload] * len(targets)
        if len(targets) > 1 and step >= self._positions:
            parts = split_gradient(payload, self._widths[target])
        for target_ipu, part in zip(targets, parts, strict=True):
            arrived = self._memories[target_ipu].arrived
            if len(sources) == 1:
                arrived[target, micro_batch] = part
                continue
            pieces = arrived.setdefault((target, micro_batch), [None] * len(sources))
            assert isinstance(pieces, list)
            pieces[sources.index(ipu)] = part

    def take(self, memory: IpuMemory, step: int, micro_batch: int) -> Payload | None:
        """Remove and return a step's input; None unless every piece has arrived.

        The last stage's backward pass needs no copy if it follows the forward pass within the same time-step.
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
            return sum_gradients(pieces)
        # The gradient returns to the concurrent stages, whose backward step mirrors their forward step.
        joined, self._widths[2 * self._positions - step] = concatenate_boxes(pieces)
        return joined


class Results:
    """The elements of an outfeed; several copies of the last stage take turns.

    Attributes:
        elements: elements received on the host, in order.
    """

    def __init__(self, outfeed: Outfeed, note_element: Callable[[], object], copies: int = 1) -> None:
        """Call ``note_element`` after every new element; ``copies`` counts the copies of the last stage."""
        self._queues: list[deque[tuple[Array, ...]]] = [deque() for _ in range(copies)]
        self._outfeed, self._note_element = outfeed, note_element
        self._total: tuple[Array, ...] | None = None
        self.elements: list[tuple[Array, ...]] = []

    def add(self, results: tuple[Any, ...], micro_batch: int) -> None:
        """Hand a micro-batch's results to the host, or accumulate them."""
        element = tuple(results[index] for index in self._outfeed.sent_indices)
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
        self._note_element()
