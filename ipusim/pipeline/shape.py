"""The shape of a plan: stages, the IPUs that run them, and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ProgramError
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.rules import check_mapping

#: The device of concurrent stages in Graphcore's compiler: all IPUs.
ALL_DEVICES: Final = -1
#: A column of passes or of instructions, and which of their rows are picked.
Column = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
