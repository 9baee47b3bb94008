"""A pipeline program: what runs, where, how often and under which schedule; nothing about time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ProgramError
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.host_call import HostCall
from ipusim.model.learning.variable_work import Reduction
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed, OutfeedElements
from ipusim.pipeline.offload import MovedActivations, Offload
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.rules import check_mapping

#: The device of concurrent stages in Graphcore's compiler: all IPUs.
ALL_DEVICES: Final = -1
#: A column of passes or of instructions, and which of their rows are picked.
Column = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: What a composite pass takes: all of its passes one after the other, the longer of forward and backward, or cycles.
Overlapped = Literal["sum", "max"] | int
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PlanShape:
    """Shape of a program, which decides the order of passes: stages, IPUs and micro-batches.

    Attributes:
        mapping: the IPU (logical number) of each computational stage, in stage order; the parts of
            concurrent stages count as stages of their own here.
        micro_batches: those of one execution: in training the gradient accumulation count times
            Graphcore's batch_serialization_iterations. Where micro-batches are in segments, these are what is counted
            and numbered: segment s of micro-batch m is m x segments + s.
        training: whether backward passes and a weight update follow.
        recompute: whether each stage but the last runs again in a pass of its own (RecomputeThenBackpropagate).
        recompute_inline: whether it runs again inside its backward pass (RecomputeAndBackpropagateInterleaved).
        overlapped_io: whether host copies run on tiles of their own beside the passes: an infeed one
            time-step ahead of the pass that needs it, an outfeed one behind.
        sizes: how many parts run in each step of a micro-batch's way forward: 1 for a stage, more for
            concurrent stages; empty where there are none of these.
        serialization: micro-batches that a stage runs in a row before the next stage begins (Graphcore's
            batch_serialization_iterations); ``micro_batches`` is a multiple of it.
        mirrored: whether each stage is there twice: micro-batches of odd numbers run on its second copy, which is on
            the IPU of the stage that is as far from the other end of the pipeline.
        segments: parts of a micro-batch along its sequence, each of which goes through the stages by itself.
        group_size: micro-batches that a stage runs before the next stage of its IPU does; 0: as the schedule has it.
        authors: whether the order is that of the authors' own code, where a schedule has another one as well.

    Raises:
        ProgramError: for sizes or copies that do not fit the mapping, and for both ways of recomputation at once.

    Example:
        >>> from ipusim import Shape
        >>> shape = Shape(mapping=(0, 1, 0), micro_batches=4)
        >>> shape.stages, shape.passes
        (3, 24)
    """

    mapping: tuple[int, ...]
    micro_batches: int
    training: bool = True
    recompute: bool = False
    recompute_inline: bool = False
    overlapped_io: bool = False
    sizes: tuple[int, ...] = ()
    serialization: int = 1
    mirrored: bool = False
    segments: int = 1
    group_size: int = 0
    authors: bool = False

    def __post_init__(self) -> None:
        """Refuse both ways of recomputation at once, and stages that do not fit; raises ProgramError."""
        if self.sizes:
            check_mapping(len(self.mapping), sum(self.sizes))
        if min(self.sizes, default=1) < 1:
            raise ProgramError(f"expected a stage in every place of the pipeline, got {self.sizes}")
        if self.sizes and (self.sizes[0] > 1 or self.sizes[-1] > 1):
            raise ProgramError("expected a single stage at either end of the pipeline, got concurrent stages")
        for parts in self.parts if self.sizes else ():
            ipus = [self.mapping[stage] for stage in parts]
            if len(set(ipus)) != len(ipus):
                raise ProgramError(f"expected concurrent stages on an IPU each, got IPUs {', '.join(map(str, ipus))}")
        pairs = self.alike
        if self.mirrored and (min(map(len, pairs)) < 2 or sum(map(len, pairs)) > len(set(self.mapping))):
            raise ProgramError(
                "expected two copies of each stage on two IPUs that are as far from either end, as of stages on an "
                f"even number of IPUs such as 0, 1, 2, 3, got stages on {', '.join(map(str, self.mapping))}"
            )
        if self.recompute and self.recompute_inline:
            raise ProgramError("expected one recomputation mode, got both: a pass of its own, and inside the backward")

    @cached_property
    def fewest_micro_batches(self) -> PlanShape:
        """The shape with the fewest micro-batches: all that stages and prices depend on."""
        return replace(self, micro_batches=self.serialization)

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """The IPU of each stage in each copy of the pipeline; micro-batches go round the copies."""
        return (self.mapping, self.mapping[::-1]) if self.mirrored else (self.mapping,)

    @property
    def homes(self) -> tuple[tuple[int, int], ...]:
        """Each stage with its IPU, copy by copy."""
        return tuple(home for mapping in self.copies for home in enumerate(mapping))

    def ipu_of(self, stage: Column, micro_batch: Column) -> Column:
        """Return the IPU that runs each stage on each micro-batch.

        Args:
            stage: numbers of stages.
            micro_batch: number of the micro-batch of each.

        Returns:
            IPUs, in the shape of the arguments.
        """
        ipus: Column = np.asarray(self.copies)[micro_batch % len(self.copies), stage]
        return ipus

    @property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """The IPUs that hold the same stages: each by itself, or two where there are two copies of each stage."""
        return tuple(sorted({tuple(sorted(set(ipus))) for ipus in zip(*self.copies, strict=True)}))

    def ipus_of(self, stage: int) -> tuple[int, ...]:
        """Return the IPUs that hold a stage.

        Args:
            stage: its number.

        Returns:
            An IPU for each copy of the stage.
        """
        return tuple(mapping[stage] for mapping in self.copies)

    @property
    def stages(self) -> int:
        """The number of computational stages, each part of concurrent ones counted."""
        return len(self.mapping)

    @property
    def positions(self) -> int:
        """The number of computational stages, N, where concurrent ones count as one."""
        return len(self.sizes) or len(self.mapping)

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The stages that run in each step forward: one, or all parts of concurrent stages."""
        ends = tuple(accumulate(self.sizes or (1,) * self.stages))
        return tuple(tuple(range(start, end)) for start, end in pairwise((0, *ends)))

    @cached_property
    def position_of(self) -> tuple[int, ...]:
        """The step forward in which each stage runs."""
        return tuple(position for position, parts in enumerate(self.parts) for _ in parts)

    @property
    def steps(self) -> int:
        """The steps of one micro-batch's life: 2N in training, N in inference."""
        return 2 * self.positions if self.training else self.positions

    @property
    def passes(self) -> int:
        """The passes of one execution: of every stage over every micro-batch, recomputations included."""
        recomputations = self.stages - 1 if self.training and self.recompute else 0
        return self.micro_batches * (self.stages * (2 if self.training else 1) + recomputations)

    def step_of(self, kind: int, stage: int) -> int:
        """Return the step of a pass: of the stage at position i, i is forward and 2N - 1 - i backward.

        Args:
            kind: a :class:`~ipusim.pipeline.ops.Pass`.
            stage: number of the stage.

        Returns:
            The step, from 0.
        """
        position = self.position_of[stage]
        return position if kind == Pass.FORWARD else 2 * self.positions - 1 - position

    def stages_of_step(self, step: int) -> tuple[int, ...]:
        """Return the stages that run in a step of a micro-batch's life.

        Args:
            step: its number, as :meth:`step_of` returns it.

        Returns:
            Numbers of stages, several for concurrent ones.
        """
        return self.parts[step if step < self.positions else 2 * self.positions - 1 - step]

    @property
    def count(self) -> int:
        """The number of whole micro-batches."""
        return self.micro_batches // self.segments

    def neighbours(self, stage: int, stride: int) -> tuple[int, ...]:
        """Return the stages at a distance from a stage.

        Args:
            stage: number of the stage.
            stride: positions forward; backward if negative.

        Returns:
            Numbers of stages; none beyond the ends of the pipeline.
        """
        position = self.position_of[stage] + stride
        return self.parts[position] if 0 <= position < self.positions else ()

    def recomputes(self, stage: int) -> bool:
        """Tell whether a stage keeps its input and computes its activations again; never the last.

        Args:
            stage: number of the stage.

        Returns:
            True for a stage that recomputes.
        """
        return self.training and (self.recompute or self.recompute_inline) and stage < self.stages - 1

    @property
    def device_of_step(self) -> tuple[int, ...]:
        """The IPU of each step: forward stages in order, then backward stages in reverse.

        Concurrent stages are on ALL_DEVICES, which counts as just another IPU (Graphcore's compiler has -1 there).
        """
        devices = tuple(self.mapping[parts[0]] if len(parts) == 1 else ALL_DEVICES for parts in self.parts)
        return devices + devices[::-1] if self.training else devices


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

    @property
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
        return shape.recompute_inline and (shape.recomputes(stage) or by_itself)

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
        if not self.shape.training:
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
