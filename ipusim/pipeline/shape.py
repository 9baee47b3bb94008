"""Define the shape of a pipeline, from which schedules make an Order: stages, IPUs, micro-batches."""

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

#: Device of concurrent stages in Graphcore's compiler: all IPUs.
ALL_DEVICES: Final = -1
#: Column of passes or instructions.
Column = npt.NDArray[np.int64]
#: Mask of rows of passes or instructions.
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class PlanShape:
    """Shape of a program, which determines the order of passes: stages, IPUs and micro-batches.

    Attributes:
        mapping: logical IPU of each computational stage, in stage order; parts of
            concurrent stages count as separate stages.
        micro_batches: number of micro-batches per execution: in training the gradient accumulation count times
            Graphcore's batch_serialization_iterations. With segments, every segment counts and has a number:
            segment s of micro-batch m is m x segments + s.
        training: whether backward passes and a weight update follow.
        recompute: whether each stage but the last runs again in a separate pass (RecomputeThenBackpropagate).
        recompute_inline: whether each stage but the last runs again inside its backward pass
            (RecomputeAndBackpropagateInterleaved).
        overlapped_io: whether host copies run on I/O tiles in parallel with passes: infeeds run a
            time-step ahead of their pass, outfeeds a time-step behind.
        sizes: number of parts in each forward step of a micro-batch: 1 for a stage, more for
            concurrent stages; empty without concurrent stages.
        serialization: micro-batches that a stage runs in a row before the next stage begins (Graphcore's
            batch_serialization_iterations); ``micro_batches`` is a multiple of ``serialization``.
        mirrored: whether stages have two copies: micro-batches of odd numbers run on the second copy, on
            the IPU at equal distance from the other end of the pipeline.
        segments: parts of a micro-batch along its sequence; each part goes through the stages separately.
        group_size: micro-batches that a stage runs before the next stage of its IPU; 0 for the schedule's default.
        authors: whether schedules with an alternative order use the order of their authors' code.

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
        groups = self.ipus_of_equal_stages
        if self.mirrored and (min(map(len, groups)) < 2 or sum(map(len, groups)) > len(set(self.mapping))):
            raise ProgramError(
                "expected two copies of each stage on two IPUs at equal distances from the ends, such as stages on "
                f"an even number of IPUs 0, 1, 2, 3, got stages on {', '.join(map(str, self.mapping))}"
            )
        if self.recompute and self.recompute_inline:
            raise ProgramError(
                "expected one recomputation mode, got both: a separate pass, and inside the backward pass"
            )

    @cached_property
    def fewest_micro_batches(self) -> PlanShape:
        """Shape with minimum micro-batches, sufficient for stages and prices."""
        return replace(self, micro_batches=self.serialization)

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """IPUs by copy of the pipeline and stage; micro-batches alternate between copies."""
        return (self.mapping, self.mapping[::-1]) if self.mirrored else (self.mapping,)

    @property
    def homes(self) -> tuple[tuple[int, int], ...]:
        """Pairs of stage and IPU, copy by copy."""
        return tuple(home for mapping in self.copies for home in enumerate(mapping))

    def ipu_of(self, stage: Column, micro_batch: Column) -> Column:
        """Return the IPU of stages for given micro-batches.

        Args:
            stage: numbers of stages.
            micro_batch: numbers of micro-batches.

        Returns:
            IPUs, in the shape of the arguments.
        """
        ipus: Column = np.asarray(self.copies)[micro_batch % len(self.copies), stage]
        return ipus

    @property
    def ipus_of_equal_stages(self) -> tuple[tuple[int, ...], ...]:
        """Groups of IPUs with equal stages: single IPUs, or pairs if each stage has two copies."""
        return tuple(sorted({tuple(sorted(set(ipus))) for ipus in zip(*self.copies, strict=True)}))

    def ipus_of(self, stage: int) -> tuple[int, ...]:
        """Return the IPUs that hold a stage.

        Args:
            stage: number of the stage.

        Returns:
            An IPU for each copy of the stage.
        """
        return tuple(mapping[stage] for mapping in self.copies)

    @property
    def stages(self) -> int:
        """Number of computational stages; parts of concurrent stages count separately."""
        return len(self.mapping)

    @property
    def positions(self) -> int:
        """Number of computational stages, N; concurrent stages count as one."""
        return len(self.sizes) or len(self.mapping)

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Stages by forward step: a single stage, or all concurrent parts."""
        ends = tuple(accumulate(self.sizes or (1,) * self.stages))
        return tuple(tuple(range(start, end)) for start, end in pairwise((0, *ends)))

    @cached_property
    def position_of(self) -> tuple[int, ...]:
        """Forward step of each stage."""
        return tuple(position for position, parts in enumerate(self.parts) for _ in parts)

    @property
    def steps(self) -> int:
        """Number of steps in a micro-batch's life: 2N in training, N in inference."""
        return 2 * self.positions if self.training else self.positions

    @property
    def passes(self) -> int:
        """Number of passes in one execution, recomputations included."""
        recomputations = self.stages - 1 if self.training and self.recompute else 0
        return self.micro_batches * (self.stages * (2 if self.training else 1) + recomputations)

    def step_of(self, kind: int, stage: int) -> int:
        """Return the step of a pass: for a stage at position i, i forward and 2N - 1 - i backward.

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
            step: step number, as returned by :meth:`step_of`.

        Returns:
            Numbers of stages, several for concurrent stages.
        """
        return self.parts[step if step < self.positions else 2 * self.positions - 1 - step]

    @property
    def count(self) -> int:
        """Number of whole micro-batches."""
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
        """Tell whether a stage keeps its input and recomputes its activations; False for the last stage.

        Args:
            stage: number of the stage.

        Returns:
            True for recomputing stages.
        """
        return self.training and (self.recompute or self.recompute_inline) and stage < self.stages - 1

    def recomputes_apart(self, stage: int) -> bool:
        """Tell whether a stage recomputes its activations in separate passes.

        Args:
            stage: number of the stage.

        Returns:
            True for stages with recomputation passes; False for recomputation inside of backward passes.
        """
        return self.recompute and self.recomputes(stage)

    @property
    def device_of_step(self) -> tuple[int, ...]:
        """IPU of each step: forward stages in order, then backward stages in reverse.

        Concurrent stages are on ALL_DEVICES, which counts as a separate IPU (-1 in Graphcore's compiler).
        """
        devices = tuple(self.mapping[parts[0]] if len(parts) == 1 else ALL_DEVICES for parts in self.parts)
        return devices + devices[::-1] if self.training else devices
