"""Describe what a stage (layers that an IPU runs) costs per micro-batch: work of its passes, and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.host_call import HostCall
from ipusim.model.work import NO_TABLES, TableBytes, Work

#: Cost of a pass: the work of the layers in order, or measured cycles.
PassCost = tuple[Work, ...] | int


#: Fields of a stage profile that scale with the size of a micro-batch.
_MICRO_BATCH_FIELDS: Final = (
    "forward",
    "backward",
    "backward_input",
    "backward_weights",
    "rest_bytes",
    "output_bytes",
    "label_bytes",
    "gradient_bytes",
    "input_bytes",
    "stash_bytes",
)


@dataclass(frozen=True)
class StageProfile:
    """A computational stage from the machine's perspective, for a single micro-batch.

    Attributes:
        name: name in charts and messages.
        forward, backward: cost of a pass over a micro-batch.
        backward_input, backward_weights: cost of the backward pass in halves: the part that other stages wait for, and
            the rest. None for an unknown half. If ``backward`` is a number of cycles, an unknown half takes what the
            known half leaves, or half the cycles if both are unknown (assumed). If ``backward`` is work, the first half
            has all of it.
        rest_bytes: bytes kept between the halves per micro-batch: inputs of layers that learn, and gradients of their
            outputs. If None, equal to ``stash_bytes`` (assumed).
        update: cost of the weight update of the stage's parameters, once per execution of the pipeline.
        output_bytes: bytes sent to the next stage (activations, and labels for a later stage).
        label_bytes: bytes of labels in output_bytes.
        gradient_bytes: bytes of the input's gradient, sent to the previous stage.
        parameter_bytes: bytes of the stage's weights.
        untrained_bytes: bytes of the stage's variables without an optimizer.
        changing_bytes: part of untrained_bytes changed by the forward pass; a recomputation uses the old values.
        state_bytes: bytes of the weights' optimizer state (slots).
        state_tensors: bytes of the state's tensors; empty if the state counts as a single tensor.
        accumulator_bytes: bytes of the gradient accumulators.
        accumulator_itemsize: bytes per accumulator element.
        accumulator_tensors: (elements, itemsize) of the accumulators; empty if they count as a single tensor.
        input_bytes: bytes of the stage's input per micro-batch, including travelling labels.
        stash_bytes: bytes kept from forward to backward pass per micro-batch, including the input if needed; 0 in
            inference.
        working_bytes: largest sum of a layer's input and output bytes. It is the live memory of a pass without a stash.
            In a backward pass, gradients need as much in addition to the stash.
        weight_gradient_bytes: bytes of the largest layer's weight gradients, alive until accumulated.
        waiting_bytes: bytes of FIFOs on the IPU, which hold values for a later stage on the same IPU.
        code_bytes: bytes of the stage's code and vertices; 0 if unknown.
        recompute: work that the backward pass itself repeats, from checkpoints. If None, a recomputation repeats the
            whole forward pass.
        checkpoint_bytes: bytes that the forward pass keeps for recomputation. If None, the input's bytes.
        cluster_bytes: maximum bytes of recomputed activations alive at a time. If None, equal to ``stash_bytes``.
        forward_collectives, backward_collectives: collectives of replicas in a pass, in order; with a divided backward
            pass, in the first half.
        forward_host_calls, backward_host_calls: host calls of a pass; with a divided backward pass, in the first half.
        temporary_bytes: largest temporary memory of an operation in any pass; 0 if unknown.
        tables: bytes moved for look-ups on the host.
        layers: names of the stage's layers in order; empty for a stage without layers.
    """

    name: str
    forward: PassCost
    backward: PassCost = 0
    update: PassCost = 0
    output_bytes: int = 0
    gradient_bytes: int = 0
    parameter_bytes: int = 0
    state_bytes: int = 0
    state_tensors: tuple[int, ...] = ()
    accumulator_bytes: int = 0
    accumulator_itemsize: int = 4
    accumulator_tensors: tuple[tuple[int, int], ...] = ()
    input_bytes: int = 0
    stash_bytes: int = 0
    working_bytes: int = 0
    weight_gradient_bytes: int = 0
    code_bytes: int = 0
    label_bytes: int = 0
    waiting_bytes: int = 0
    recompute: PassCost | None = None
    checkpoint_bytes: int | None = None
    cluster_bytes: int | None = None
    temporary_bytes: int = 0
    forward_collectives: tuple[CollectiveCall, ...] = ()
    backward_collectives: tuple[CollectiveCall, ...] = ()
    forward_host_calls: tuple[HostCall, ...] = ()
    backward_host_calls: tuple[HostCall, ...] = ()
    backward_input: PassCost | None = None
    backward_weights: PassCost | None = None
    rest_bytes: int | None = None
    tables: TableBytes = NO_TABLES
    layers: tuple[str, ...] = ()
    untrained_bytes: int = 0
    changing_bytes: int = 0

    @property
    def has_backward(self) -> bool:
        """Whether the stage has a backward pass: a parameter of this stage or of an earlier stage learns."""
        return self.backward != ()

    @property
    def halves(self) -> tuple[PassCost, PassCost]:
        """Cost of the backward pass in halves: for the input's gradient, and for the weights' gradients."""
        first, second = self.backward_input, self.backward_weights
        if not isinstance(self.backward, int):
            return self.backward if first is None else first, 0 if second is None else second
        if first is None:
            first = max(self.backward - (second if isinstance(second, int) else self.backward // 2), 0)
        if second is None:
            second = max(self.backward - first, 0) if isinstance(first, int) else self.backward // 2
        return first, second

    def of_segment(self, segments: int) -> StageProfile:
        """Return the profile for a segment of a micro-batch, for a stage given by cost.

        Costs and bytes per micro-batch are divided by ``segments``, and rounded up.
        """
        sizes = {name: getattr(self, name) for name in _MICRO_BATCH_FIELDS}
        return replace(self, **{name: -(-size // segments) for name, size in sizes.items() if size})

    @property
    def between_halves_bytes(self) -> int:
        """Bytes kept between the halves of a backward pass, per micro-batch."""
        return self.stash_bytes if self.rest_bytes is None else self.rest_bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes sent to the next stage, without labels."""
        return self.output_bytes - self.label_bytes
