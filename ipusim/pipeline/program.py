"""Define a pipeline program: stages, their IPUs, repetitions, feeds and schedule, without time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.host_call import HostCall
from ipusim.model.learning.variable_work import Reduction
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed, OutfeedElements
from ipusim.pipeline.offload import MovedActivations, Offload
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import PlanShape

#: Duration of a composite pass: sum of its passes, maximum of forward and backward, or a number of cycles.
Overlapped = Literal["sum", "max"] | int
T = TypeVar("T")


@dataclass(frozen=True)
class PipelineProgram:
    """A pipeline: its stages, their IPUs, schedule and feeds.

    Attributes:
        stages: profile of each computational stage, in order.
        shape: mapping, gradient accumulation count, training or inference.
        schedule: name of a registered schedule, such as ``grouped``.
        repeat_count: pipeline executions in one step, each followed by one weight update.
        reduction: accumulation of gradients over micro-batches.
        infeed: queue from the host.
        outfeed: queue to the host.
        micro_batch_size: samples per micro-batch.
        sync_replicas_independently: whether replicas wait for each other only before a weight update (Graphcore's
            option of this name).
        overlap_copies: whether an IPU computes during its own sends in point-to-point.
        overlapped: duration of a composite pass (forward passes of some stages and backward passes of others in a
            slot).
        sums_gradients: whether replicas sum up gradients before each weight update.
        sum_buffer_bytes: minimum bytes of an IPU's gradients in a sum of replicas; None for a single joint sum.
        sums_over_hosts: whether hosts sum up gradients first; if False, hosts process gradients themselves.
        has_synthetic_data: whether feeds, tables and host calls are omitted, by ``use_synthetic_data``.
        learns_for_free: whether host tables learn at no cost, as with synthetic data.
        name: name of the program in files and charts.
        offload: location of variables outside of IPUs.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> program = assemble(Request.from_dict(options)).program
        >>> program.shape.mapping, program.shape.micro_batches, program.repeat_count
        ((0, 1), 4, 1)
    """

    stages: tuple[StageProfile, ...]
    shape: PlanShape
    schedule: str = "grouped"
    repeat_count: int = 1
    reduction: Reduction = "SUM"
    infeed: Infeed = field(default_factory=Infeed)
    outfeed: Outfeed = field(default_factory=Outfeed)
    micro_batch_size: int = 1
    sync_replicas_independently: bool = False
    overlap_copies: bool = True
    overlapped: Overlapped = "sum"
    sums_gradients: bool = True
    sum_buffer_bytes: int | None = None
    sums_over_hosts: bool = True
    has_synthetic_data: bool = False
    learns_for_free: bool = False
    name: str = "pipeline"
    offload: Offload = field(default_factory=Offload)

    @property
    def describes_memory(self) -> bool:
        """Whether any stage states its memory; a stage known only by its cycles may leave its memory out."""
        return any(
            stage.parameter_bytes or stage.stash_bytes or stage.state_bytes or stage.untrained_bytes
            for stage in self.stages
        )

    @cached_property
    def moved_activations(self) -> MovedActivations | None:
        """Moved activations of stages that keep at least one byte; None if no stage does."""
        moves = self.offload.moved
        candidates = () if moves is None else range(self.shape.stages) if moves.stages is None else moves.stages
        stages = tuple(stage for stage in candidates if self.saved_bytes(stage))
        return replace(moves, stages=stages) if moves is not None and stages else None

    @property
    def updated_variables(self) -> int:
        """Number of variables changed by weight updates that are counted from layers."""
        return sum(0 if isinstance(stage.update, int) else len(stage.update) for stage in self.stages)

    def recomputes_inside(self, stage: int) -> bool:
        """Tell whether the backward pass of ``stage`` recomputes activations.

        Args:
            stage: number of the stage.

        Returns:
            True for inline recomputation, which in the last stage ends at a checkpoint.
        """
        shape = self.shape
        by_itself = shape.training and self.stages[stage].recompute is not None
        is_inline = shape.recompute_inline and (shape.recomputes(stage) or by_itself)
        return is_inline and self.stages[stage].has_backward

    def collectives(self, kind: int, stage: int) -> tuple[CollectiveCall, ...]:
        """Return the collectives of a pass of ``stage``, in order.

        Args:
            kind: kind of pass, see :class:`Pass`.
            stage: number of the stage.

        Returns:
            Collective calls of one micro-batch; empty for a pass without collectives.
        """
        profile = self.stages[stage]
        return self._of_pass(kind, stage, profile.forward_collectives, profile.backward_collectives)

    def host_calls(self, kind: int, stage: int) -> tuple[HostCall, ...]:
        """Return the host calls of a pass of ``stage``, in order.

        Args:
            kind: kind of pass, see :class:`Pass`.
            stage: number of the stage.

        Returns:
            Host calls of one micro-batch; empty for a pass without host calls.
        """
        profile = self.stages[stage]
        return self._of_pass(kind, stage, profile.forward_host_calls, profile.backward_host_calls)

    def _of_pass(self, kind: int, stage: int, forward: tuple[T, ...], backward: tuple[T, ...]) -> tuple[T, ...]:
        """Select the calls of a pass from the stage's calls."""
        match kind:
            case Pass.BACKWARD | Pass.INPUT_GRADIENT:
                return (*(forward if self.recomputes_inside(stage) else ()), *backward)
            case Pass.WEIGHT_GRADIENT:
                return ()
            case _:
                return forward

    def saved_bytes(self, stage: int) -> int:
        """Return the bytes that ``stage`` keeps of a micro-batch for its backward pass.

        Args:
            stage: number of the stage.

        Returns:
            Bytes; 0 in inference.
        """
        profile = self.stages[stage]
        if not self.shape.training or not profile.has_backward:
            return 0
        if self.recomputes_inside(stage) and profile.checkpoint_bytes is not None:
            return profile.checkpoint_bytes
        return profile.input_bytes + profile.changing_bytes if self.shape.recomputes(stage) else profile.stash_bytes

    def sent_bytes(self, source: int, target: int) -> int:
        """Return the bytes that stage ``source`` sends to its neighbour ``target`` for each micro-batch.

        Forward sends carry the output, with labels while still needed. Backward sends carry the gradient of
        the input; concurrent stages each receive a part in proportion to their outputs.

        Args:
            source: number of the sending stage.
            target: number of a neighbouring stage; the send is backward if it is smaller than ``source``.

        Returns:
            Bytes of one micro-batch.
        """
        if source < target:
            return self.stages[source].output_bytes
        parts = self.shape.parts[self.shape.position_of[target]]
        size = self.stages[source].gradient_bytes
        if len(parts) == 1:
            return size
        total_bytes = sum(self.stages[part].activation_bytes for part in parts)
        return -(-size * self.stages[target].activation_bytes // max(total_bytes, 1))

    @property
    def outfeed_elements(self) -> OutfeedElements:
        """Elements of the outfeed, for every micro-batch or only the last of a step; each segment has an element."""
        count = self.shape.micro_batches
        if self.outfeed.mode == "ALL":
            return OutfeedElements(range(count), 1, self.outfeed.accumulate)
        return OutfeedElements(range(count - self.shape.segments, count), self.repeat_count)
