"""A pipeline program: what runs, where, how often and under which schedule; nothing about time."""

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

#: What a composite pass takes: all of its passes one after the other, the longer of forward and backward, or cycles.
Overlapped = Literal["sum", "max"] | int
T = TypeVar("T")


@dataclass(frozen=True)
class PipelineProgram:
    """A pipeline: its stages, their places, the schedule and the feeds.

    Attributes:
        stages: profile of each computational stage, in order.
        shape: mapping, gradient accumulation count, training or inference.
        schedule: name of a registered schedule, such as ``grouped``.
        repeat_count: executions of the pipeline in one step, each followed by one weight update.
        reduction: how the gradients of the micro-batches are accumulated.
        infeed, outfeed: the host queues.
        micro_batch_size: samples in one micro-batch.
        sync_replicas_independently: whether all replicas meet before a weight update alone, as Graphcore has it.
        overlap_copies: whether an IPU computes on while what it has sent in point-to-point is on its way.
        overlapped: what a composite pass takes, forward of some stages in one slot with backward of others.
        sums_gradients: whether replicas sum up their gradients before each weight update.
        sum_buffer_bytes: least bytes of an IPU's gradients in a sum of replicas; None for one sum of all IPUs.
        sums_over_hosts: whether hosts do, before it; else what they do themselves with gradients does.
        has_synthetic_data: whether feeds, tables and host calls are left out, by ``use_synthetic_data``.
        learns_for_free: whether tables on the host learn that cost no time, as with synthetic data.
        name: the program's name in files and charts.
        offload: what lies in Streaming Memory.

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
        """Whether any stage says what it holds; stages known by their cycles alone may not."""
        return any(
            stage.parameter_bytes or stage.stash_bytes or stage.state_bytes or stage.untrained_bytes
            for stage in self.stages
        )

    @cached_property
    def moved_activations(self) -> MovedActivations | None:
        """The activations that are moved, with the stages that keep any bytes; None without such stages."""
        moved = self.offload.moved
        chosen = () if moved is None else range(self.shape.stages) if moved.stages is None else moved.stages
        stages = tuple(stage for stage in chosen if self.saved_bytes(stage))
        return replace(moved, stages=stages) if moved is not None and stages else None

    @property
    def updated_variables(self) -> int:
        """The variables that a weight update changes, of all stages whose update is counted from layers."""
        return sum(0 if isinstance(stage.update, int) else len(stage.update) for stage in self.stages)

    def recomputes_inside(self, stage: int) -> bool:
        """Return whether the backward pass of ``stage`` computes activations again.

        Args:
            stage: the stage's number.

        Returns:
            Whether it does; in the last stage up to a checkpoint.
        """
        shape = self.shape
        by_itself = shape.training and self.stages[stage].recompute is not None
        inside = shape.recompute_inline and (shape.recomputes(stage) or by_itself)
        return inside and self.stages[stage].has_backward

    def collectives(self, kind: int, stage: int) -> tuple[CollectiveCall, ...]:
        """Return the collectives of a pass of ``stage``, in their order.

        Args:
            kind: of the pass, as :class:`Pass` numbers it.
            stage: the stage's number.

        Returns:
            Collective calls of one micro-batch; none where the pass has none.
        """
        profile = self.stages[stage]
        return self._of_pass(kind, stage, profile.forward_collectives, profile.backward_collectives)

    def host_calls(self, kind: int, stage: int) -> tuple[HostCall, ...]:
        """Return the host calls of a pass of ``stage``, in their order.

        Args:
            kind: of the pass, as :class:`Pass` numbers it.
            stage: the stage's number.

        Returns:
            Host calls of one micro-batch; none where the pass has none.
        """
        profile = self.stages[stage]
        return self._of_pass(kind, stage, profile.forward_host_calls, profile.backward_host_calls)

    def _of_pass(self, kind: int, stage: int, forward: tuple[T, ...], backward: tuple[T, ...]) -> tuple[T, ...]:
        """Return a pass's calls, of those of the forward and the backward pass of its stage."""
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
            stage: the stage's number.

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

        Forward its output, labels included while they travel on. Backward the gradient of its input,
        of which concurrent stages get a part each, in proportion to what they had put out.

        Args:
            source, target: numbers of neighbouring stages; backward where ``target`` is the smaller one.

        Returns:
            Bytes of one micro-batch.
        """
        if source < target:
            return self.stages[source].output_bytes
        others = self.shape.parts[self.shape.position_of[target]]
        size = self.stages[source].gradient_bytes
        if len(others) == 1:
            return size
        whole = sum(self.stages[other].activation_bytes for other in others)
        return -(-size * self.stages[target].activation_bytes // max(whole, 1))

    @property
    def outfeed_elements(self) -> OutfeedElements:
        """Elements that the outfeed sends, of every micro-batch or the last of a step, each segment by itself."""
        count = self.shape.micro_batches
        if self.outfeed.mode == "ALL":
            return OutfeedElements(range(count), 1, self.outfeed.accumulate)
        return OutfeedElements(range(count - self.shape.segments, count), self.repeat_count)
