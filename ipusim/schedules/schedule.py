"""Define a schedule: name, function from shape to Order, supported features, and placement of stages."""

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
    """A named rule for laying out a pipeline.

    Attributes:
        name: lower-case name in scenarios and on the command line.
        order: function from a shape to its Order; raises ProgramError or CountError for a refused shape.
        multiple: function from a shape to the number of which every legal count is a multiple. ``order`` may also
            require a minimum count.
        pipelined: whether Graphcore's AUTO selection order treats the schedule as a pipeline.
        summary: one line for people.
        supports: supported features; other features are refused.
        syncs: supported sync modes, the default first.
        states_sync: whether the schedule's author chose ``syncs``; False for a plain function in a file.
        shallower: name of a schedule with FIFOs half as deep; empty if no such schedule exists.
        period: function from a shape to the period of its Order between the ramps (fill and drain), in micro-batches;
            None for an Order without a period, or with an unknown period.
        in_phases: whether a stage runs all micro-batches through one kind of pass before the next kind, so that
            an Order is periodic within each of these phases, but not by whole micro-batches.
        file_shape: the only supported shape, for an Order from a file; None for other schedules.
        placement: function from number of stages and stages per IPU to the IPU of each stage.
        per_ipu: default number of stages per IPU.
        mirrored: whether stages have two copies.
        segments: default number of segments per micro-batch; 1 without ``Feature.SEGMENTS``.
        notes: remarks for users of the schedule.
        least: micro-batches of an Order beyond whole periods; 0 if unknown.
        between: whether ``order`` may also accept counts that are not a multiple of ``multiple``.

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
    file_shape: PlanShape | None = None
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
        """Return the Order of a shape, like :meth:`lay_out`."""
        return self.lay_out(shape)

    @property
    def written(self) -> PlanShape | None:
        """Former name of ``file_shape``, kept for one release."""
        return self.file_shape

    @property
    def recomputation_modes(self) -> tuple[str, ...]:
        """Supported recomputation modes, Auto's choice first."""
        return recomputation_modes(self.supports)

    def mapping(self, stages: int, per_ipu: int | None = None) -> tuple[int, ...]:
        """Return the IPU of each stage.

        A schedule for a single IPU puts every stage on IPU 0; an Order from a file has a fixed placement.

        Args:
            stages: number of stages.
            per_ipu: stages on each IPU; None for the schedule's default.

        Returns:
            An IPU for each stage, from 0.

        Raises:
            ProgramError: if the number of stages on each IPU does not divide ``stages``.
        """
        if per_ipu is None and self.file_shape is not None:
            return self.file_shape.mapping
        if per_ipu is None and Feature.SEVERAL_IPUS not in self.supports:
            return (0,) * stages
        per_ipu = per_ipu or self.per_ipu
        if stages % per_ipu:
            raise ProgramError(f"The schedule '{self.name}' has {per_ipu} stages on each IPU, got {stages} stages.")
        return self.placement(stages, per_ipu)

    def segments_of(self, request: int | None) -> int:
        """Return the number of segments per micro-batch.

        Args:
            request: requested number; None for the schedule's default.

        Returns:
            Number of segments; 1 for a schedule of whole micro-batches, regardless of the request.
        """
        return (request or self.segments) if Feature.SEGMENTS in self.supports else 1

    def check(self, shape: PlanShape) -> None:
        """Refuse unsupported shapes.

        For an Order from a file, other mappings and counts are refused as well.

        Args:
            shape: stages, their IPUs and micro-batches.

        Raises:
            UnsupportedProgramError: for a shape that the schedule cannot run.
            CountError: for a count that differs from the Order in a file.
        """
        check_supported(self.name, self.supports, shape)
        if self.file_shape is not None:
            _check_file_shape(self.name, self.file_shape, shape)

    def count_step(self, shape: PlanShape) -> int:
        """Return the number of which every gradient accumulation count is a multiple, in whole micro-batches.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Micro-batches.
        """
        return self.multiple(shape) // shape.segments

    def step(self, shape: PlanShape) -> int:
        """Return the smallest count increase that adds whole periods to a Plan.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Micro-batches.
        """
        period = 1 if self.period is None else self.period(shape)
        return math.lcm(self.multiple(shape), period, shape.serialization)

    def legal_count(self, count: int, shape: PlanShape) -> int:
        """Return the legal number of micro-batches nearest to a count from above.

        Args:
            count: minimum number of micro-batches.
            shape: stages and their IPUs.

        Returns:
            Micro-batches.
        """
        step = self.step(shape)
        return step * math.ceil(count / step)

    def ramps(self, shape: PlanShape) -> int:
        """Return the minimum number of micro-batches in an Order beyond whole periods: those of fill and drain.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Micro-batches of warm-up and cool-down together.
        """
        return max(self.least, shape.steps)

    def lay_out(self, shape: PlanShape) -> Order:
        """Return the Order of a shape.

        Args:
            shape: stages, their IPUs and micro-batches.

        Returns:
            Passes per IPU, in order.

        Raises:
            PlanError: if the Order has another shape or no passes; errors of ``order`` pass through.
        """
        result = self.order(shape)
        if not isinstance(result, Order):
            raise PlanError(f"schedule {self.name!r}: expected an Order, got {result!r}")
        if not len(result.table):
            raise PlanError(f"schedule {self.name!r}: expected an Order with passes, got an empty one")
        for shape_field in fields(shape):
            expected, actual = getattr(shape, shape_field.name), getattr(result.shape, shape_field.name)
            if actual != expected:
                raise PlanError(
                    f"schedule {self.name!r}: expected an Order of {shape_field.name} {expected}, got one of {actual}"
                )
        return result


def _check_file_shape(name: str, file_shape: PlanShape, shape: PlanShape) -> None:
    if shape.mapping != file_shape.mapping:
        expected, actual = mapping_text(file_shape), mapping_text(shape)
        raise UnsupportedProgramError(f"expected stages on IPUs {expected}, as in {name}, got {actual}")
    if shape.micro_batches != file_shape.micro_batches:
        raise CountError(
            f"expected the number of micro-batches of {name}, {file_shape.micro_batches}, got {shape.micro_batches}"
        )
