"""The profile of a computational stage: the work of its passes for one micro-batch, and its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.host_call import HostCall
from ipusim.model.work import NO_TABLES, TableBytes, Work

#: What a pass costs: the work of each of its layers in turn, or cycles as measured.
PassCost = tuple[Work, ...] | int


#: What a stage known by its cost takes for a micro-batch, and keeps and sends of it.
_OF_MICRO_BATCH: Final = (
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
    """One computational stage as the machine sees it, for one micro-batch.

    Attributes:
        name: the stage's name in charts and messages.
        forward, backward: cost of one pass over one micro-batch.
        backward_input, backward_weights: cost of the backward pass in halves: what other stages wait for, and the
            rest; None: what the other leaves of given cycles, or half of them (assumed), or of work all in the first.
        rest_bytes: bytes that stay from the first half to the second, of a micro-batch: inputs of layers with
            weights, and gradients of their outputs; None: as many as the stash (assumed).
        update: cost of the weight update of the stage's parameters, once per execution of the pipeline.
        output_bytes: bytes that leave the stage for the next one (activations, and labels on their way).
        label_bytes: bytes of labels among them.
        gradient_bytes: bytes of the gradient of the stage's input, which go back to the stage before.
        parameter_bytes: bytes of the stage's weights.
        untrained_bytes: bytes of the stage's variables that no optimizer trains.
        changing_bytes: bytes of those among them that its forward pass changes; a pass that computes again takes
            them as they were.
        state_bytes: bytes of the optimizer's state for them (its slots).
        state_tensors: bytes of each tensor of that state; none where it counts as one tensor.
        accumulator_bytes: bytes of the gradient accumulators.
        accumulator_itemsize: bytes of one of their elements.
        accumulator_tensors: the elements of each, and the bytes of one; none where they count as one tensor.
        input_bytes: bytes of the stage's input for one micro-batch, labels included while they travel.
        stash_bytes: bytes that the forward pass over one micro-batch keeps for the backward pass, its
            input included where backward needs it; 0 in inference.
        working_bytes: bytes of the input and output of the layer where they are largest: what a pass
            that keeps nothing has alive, and, as gradients, the backward pass beside its stash.
        weight_gradient_bytes: bytes of the largest layer's gradients of its weights, alive until they
            are added to their accumulators.
        waiting_bytes: bytes of the FIFOs of values that wait on the IPU for a later stage there.
        code_bytes: bytes of the stage's code and vertices, where they are known.
        recompute: what is computed again inside the backward pass where that is done; None: the forward pass.
        checkpoint_bytes: what the forward pass keeps then; None: the input.
        cluster_bytes: what is alive of that at a time; None: the stash.
        forward_collectives, backward_collectives: what a pass has replicas do together, in its order; where a
            backward pass runs in halves, in the first.
        forward_host_calls, backward_host_calls: what a pass has the host do; where a backward pass runs in halves, in
            the first.
        temporary_bytes: the most that an operation of any pass takes for itself while it runs, where that is known.
        tables: what it looks up on the host.
        layers: names of its layers in order, where it has any.
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
        """Whether it has work in a backward pass: none if no parameter of the stage or of an earlier one learns."""
        return self.backward != ()

    @property
    def halves(self) -> tuple[PassCost, PassCost]:
        """The cost of the backward pass in halves: for the gradient of the input, and for those of the weights."""
        first, second = self.backward_input, self.backward_weights
        if not isinstance(self.backward, int):
            return self.backward if first is None else first, 0 if second is None else second
        if first is None:
            first = max(self.backward - (second if isinstance(second, int) else self.backward // 2), 0)
        if second is None:
            second = max(self.backward - first, 0) if isinstance(first, int) else self.backward // 2
        return first, second

    def of_segment(self, segments: int) -> StageProfile:
        """Return the profile of a stage known by its cost for one of ``segments`` equal segments of a micro-batch.

        What is of a micro-batch is divided, and rounded up.
        """
        own = {name: getattr(self, name) for name in _OF_MICRO_BATCH}
        return replace(self, **{name: -(-size // segments) for name, size in own.items() if size})

    @property
    def between_halves_bytes(self) -> int:
        """Bytes that stay from the first half of a backward pass to the second, of a micro-batch."""
        return self.stash_bytes if self.rest_bytes is None else self.rest_bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes that leave the stage for the next one, without labels."""
        return self.output_bytes - self.label_bytes
