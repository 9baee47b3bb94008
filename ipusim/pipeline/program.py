"""A pipeline program: what runs, where, how often and under which schedule; nothing about time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ipusim.errors import ProgramError
from ipusim.model.profile import StageProfile
from ipusim.model.workload import Reduction
from ipusim.pipeline.offload import Offload

OutfeedMode = Literal["ALL", "LAST"]


@dataclass(frozen=True)
class PlanShape:
    """All of a program that decides the order of its operations.

    Attributes:
        mapping: the IPU (logical number) of each computational stage, in stage order.
        count: gradient accumulation count, the micro-batches of one execution.
        training: whether backward passes and a weight update follow.
        recompute: whether every forward stage but the last runs again, as a pass of its
            own, before its backward pass (RecomputeThenBackpropagate).
        recompute_inline: whether it runs again inside its backward pass instead
            (RecomputeAndBackpropagateInterleaved).
        overlapped_io: whether host copies run on tiles of their own beside the passes: an infeed one
            time-step ahead of the pass that needs it, an outfeed one behind.
    """

    mapping: tuple[int, ...]
    count: int
    training: bool = True
    recompute: bool = False
    recompute_inline: bool = False
    overlapped_io: bool = False

    def __post_init__(self) -> None:
        """Refuse both ways of recomputation at once; raises ProgramError."""
        if self.recompute and self.recompute_inline:
            raise ProgramError("expected one recomputation mode, got both: a pass of its own, and inside the backward")

    @property
    def stages(self) -> int:
        """The number of computational stages, N."""
        return len(self.mapping)

    @property
    def steps(self) -> int:
        """The steps of one micro-batch's life: 2N in training, N in inference."""
        return 2 * self.stages if self.training else self.stages

    def recomputes(self, stage: int) -> bool:
        """Whether ``stage`` keeps its input instead of its activations, and computes these again; never the last."""
        return self.training and (self.recompute or self.recompute_inline) and stage < self.stages - 1

    @property
    def ipu_of_step(self) -> tuple[int, ...]:
        """The IPU of each step: forward stages in order, then backward stages in reverse."""
        return self.mapping + self.mapping[::-1] if self.training else self.mapping


@dataclass(frozen=True)
class Infeed:
    """The queue that feeds the first stage.

    Attributes:
        element_bytes: bytes of one micro-batch, labels included.
        prefetch_depth: elements that the host keeps ready near the IPU (Graphcore's default is 3).
    """

    element_bytes: int = 0
    prefetch_depth: int = 3


@dataclass(frozen=True)
class Outfeed:
    """The queue that takes the last stage's results to the host.

    Attributes:
        element_bytes: bytes of one micro-batch's results.
        mode: ALL sends every micro-batch's results, LAST only those of the last micro-batch of a step.
        buffer_depth: elements that the host's buffer holds (Graphcore's default is 3).
        accumulate: whether the results of all micro-batches of an execution are summed up on the IPU, and
            the sum is sent with the weight update (Graphcore's accumulate_outfeed).
        names: of what the last stage gives for each micro-batch.
        mask: which of them are not sent (Graphcore's outfeed_mask); empty where all are.
        accumulate_dtype: NumPy name of the type in which they are summed up; empty for their own.
    """

    element_bytes: int = 0
    mode: OutfeedMode = "ALL"
    buffer_depth: int = 3
    accumulate: bool = False
    names: tuple[str, ...] = ("loss",)
    mask: tuple[bool, ...] = ()
    accumulate_dtype: str = ""

    @property
    def kept(self) -> tuple[int, ...]:
        """Which of the last stage's results are sent, by their places."""
        mask = self.mask or (False,) * len(self.names)
        return tuple(place for place, masked in enumerate(mask) if not masked)

    @property
    def kept_names(self) -> tuple[str, ...]:
        """The names of what is sent."""
        return tuple(self.names[place] for place in self.kept)


@dataclass(frozen=True)
class OutfeedElements:
    """Which results the outfeed takes: those of ``micro_batches``, in every ``period``-th execution.

    Where they are ``accumulated`` one element is sent for all of them.
    """

    micro_batches: range
    period: int
    accumulated: bool = False

    def sent(self, executions: int) -> int:
        """Return the elements that reach the host in that many executions."""
        return executions // self.period * (1 if self.accumulated else len(self.micro_batches))


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
        sync_replicas_independently: whether replicas meet by themselves after each time-step, and all
            together only before a weight update (Graphcore's option of that name), or always all together.
        name: the program's name in files and charts.
        offload: what lies in Streaming Memory.
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
    name: str = "pipeline"
    offload: Offload = field(default_factory=Offload)

    @property
    def outfeed_elements(self) -> OutfeedElements:
        """What the outfeed's mode sends: every micro-batch's results, or only those of a step's last."""
        count = self.shape.count
        if self.outfeed.mode == "ALL":
            return OutfeedElements(range(count), 1, self.outfeed.accumulate)
        return OutfeedElements(range(count - 1, count), self.repeat_count)
