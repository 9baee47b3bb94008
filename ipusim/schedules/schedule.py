"""A schedule: its rule, what it supports, and where its stages are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from ipusim.base.errors import CountError, PlanError, ProgramError, UnsupportedProgramError
from ipusim.pipeline.grid import mapping_text
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.features import PLAIN, Feature, check_supported, recomputation_modes
from ipusim.schedules.placement import around


@dataclass(frozen=True)
class Schedule:
    """A named way to lay a pipeline out.

    Attributes:
        name: as scenarios and the command line say it, lower case.
        order: from a program's shape to its Order; raises ProgramError or CountError for a shape that it refuses.
        multiple: from a shape to the number of which each multiple is a count, if it is not below a least one.
        pipelined: whether Graphcore's AUTO selection order sees a pipeline in it.
        summary: one line for people.
        supports: what of a program it can lay out; the rest is refused.
        syncs: how IPUs may wait for each other under it, its default first.
        states_sync: whether ``syncs`` is a statement of the schedule's author; a plain function in a file makes none.
        shallower: the name of one whose FIFOs are half as deep; empty where there is none.
        period: from a shape to the number of micro-batches in which its Order repeats itself between its ramps; None
            where it does not, or where that is to be found in the Order.
        in_phases: whether a stage runs all micro-batches through one kind of pass before any through the next, so that
            an Order repeats itself in each of these phases, and not as whole micro-batches.
        written: the one shape that it can lay out, where its Order is written down in a file; else None.
        placement: from a number of stages and how many of them an IPU has to the IPU of each.
        per_ipu: how many stages an IPU has by default.
        mirrored: whether there are two copies of each stage.
        segments: how many segments a micro-batch is in by default; 1 without ``Feature.SEGMENTS``.
        notes: remarks to a user of the schedule.
        least: the micro-batches beside whole periods that an Order of its own has, where that is known.
        between: whether counts between the multiples may be counts as well, which ``order`` refuses or does not.

    Example:
        >>> from ipusim.api import schedules
        >>> zbv = schedules.find("zbv")
        >>> zbv.mapping(8), [sync.value for sync in zbv.syncs]
        ((0, 1, 2, 3, 3, 2, 1, 0), ['point_to_point', 'lock_step'])
    """

    name: str
    order: Callable[[PlanShape], Order]
    multiple: Callable[[PlanShape], int]
    pipelined: bool
    summary: str
    supports: frozenset[Feature] = PLAIN
    syncs: tuple[Sync, ...] = (Sync.LOCK_STEP, Sync.POINT_TO_POINT)
    states_sync: bool = True
    shallower: str = ""
    written: PlanShape | None = None
    period: Callable[[PlanShape], int] | None = None
    in_phases: bool = False
    placement: Callable[[int, int], tuple[int, ...]] = around
    per_ipu: int = 1
    mirrored: bool = False
    segments: int = 1
    notes: tuple[str, ...] = ()
    least: int = 0
    between: bool = False

    def __call__(self, shape: PlanShape) -> Order:
        """Return the Order of a shape, as :meth:`laid_out` does."""
        return self.laid_out(shape)

    @property
    def recomputation_modes(self) -> tuple[str, ...]:
        """The modes of recomputation that it has, Auto's choice first."""
        return recomputation_modes(self.supports)

    def mapping(self, stages: int, per_ipu: int | None = None) -> tuple[int, ...]:
        """Return the IPU of each stage.

        All are on one IPU under a schedule of one, and where its Order is written down they are where that has them.

        Args:
            stages: how many there are.
            per_ipu: stages on each IPU; None for the schedule's own number.

        Returns:
            An IPU for each stage, from 0.

        Raises:
            ProgramError: where a number of stages on each IPU does not divide ``stages``.
        """
        if per_ipu is None and self.written is not None:
            return self.written.mapping
        if per_ipu is None and Feature.SEVERAL_IPUS not in self.supports:
            return (0,) * stages
        per_ipu = per_ipu or self.per_ipu
        if stages % per_ipu:
            raise ProgramError(f"The schedule '{self.name}' has {per_ipu} stages on each IPU, got {stages} stages.")
        return self.placement(stages, per_ipu)

    def segments_of(self, said: int | None) -> int:
        """Return how many segments a micro-batch is in.

        Args:
            said: how many a request wants of schedules that have any; None for the schedule's own number.

        Returns:
            Segments; 1 under a schedule of whole micro-batches, whatever a request says.
        """
        return (said or self.segments) if Feature.SEGMENTS in self.supports else 1

    def check(self, shape: PlanShape) -> None:
        """Refuse what the schedule does not support.

        An Order that is written down is refused for another mapping in the same way as a rule is.

        Args:
            shape: stages, their IPUs and micro-batches.

        Raises:
            UnsupportedProgramError: for a shape that the schedule cannot run.
            CountError: for another count than an Order that is written down has.
        """
        check_supported(self.name, self.supports, shape)
        if self.written is not None:
            _check_written(self.name, self.written, shape)

    def count_step(self, shape: PlanShape) -> int:
        """Return what a gradient accumulation count is a multiple of: whole micro-batches, whatever their segments.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Micro-batches.
        """
        return self.multiple(shape) // shape.segments

    def step(self, shape: PlanShape) -> int:
        """Return the fewest micro-batches that a Plan may have more than one of ``shape`` and repeat the same.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Micro-batches.
        """
        period = 1 if self.period is None else self.period(shape)
        return math.lcm(self.multiple(shape), period, shape.serialization)

    def ramps(self, shape: PlanShape) -> int:
        """Return how many micro-batches its Order has at least beside whole periods.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Micro-batches of warm-up and cool-down together.
        """
        return max(self.least, shape.steps)

    def laid_out(self, shape: PlanShape) -> Order:
        """Return the Order of a shape.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            The passes of each IPU in their order.

        Raises:
            PlanError: for an Order of another shape or without passes; what ``order`` raises comes through.
        """
        made = self.order(shape)
        if not isinstance(made, Order):
            raise PlanError(f"schedule {self.name!r}: expected an Order, got {made!r}")
        if not len(made.table):
            raise PlanError(f"schedule {self.name!r}: expected an Order with passes, got one that has no pass")
        for part in fields(shape):
            right, got = getattr(shape, part.name), getattr(made.shape, part.name)
            if got != right:
                raise PlanError(f"schedule {self.name!r}: expected an Order of {part.name} {right}, got one of {got}")
        return made


def _check_written(name: str, written: PlanShape, shape: PlanShape) -> None:
    if shape.mapping != written.mapping:
        right, got = mapping_text(written), mapping_text(shape)
        raise UnsupportedProgramError(f"expected stages on IPUs {right}, as {name} has them, got {got}")
    if shape.micro_batches != written.micro_batches:
        raise CountError(
            f"expected as many micro-batches as {name} has, {written.micro_batches}, got {shape.micro_batches}"
        )
