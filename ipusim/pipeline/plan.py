"""The Plan: the order of a pipeline's operations and copies, with no durations.

A Plan is data. Its operations are integer columns, so that a Plan of a hundred
thousand operations costs what its numbers cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.errors import PlanError
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.program import PlanShape

Column = npt.NDArray[np.int64]

#: Columns of a Plan's table of operations.
COLUMNS: Final = ("time_step", "ipu", "kind", "stage", "micro_batch")


class CopyRule(Enum):
    """Which inter-IPU copies follow a time-step."""

    #: One merged copy of all stages' outputs after every time-step, full or empty (Grouped, Interleaved):
    #: Graphcore's compiler never masks these copies.
    MERGED = "merged"
    #: The copy of the stage that ran, alone, and a synchronisation after every stage (Sequential).
    EACH_STAGE = "each stage"
    #: A copy and a synchronisation only where a tensor crosses to another IPU (sharding; one IPU).
    CROSSING = "crossing"


class Edge(NamedTuple):
    """A tensor's way from one step of a micro-batch's life to the next: steps count 0..S-1."""

    source_step: int
    target_step: int


class Plan:
    """The operations of one execution of a pipeline, per time-step and IPU, in order; read-only.

    Attributes:
        schedule: name of the schedule that laid it out.
        shape: mapping, count, training or inference, recomputation.
        offsets: the time-step at which each of the V overlapping micro-batches starts.
        emitted: time-steps that the compiler emits, the empty ones at the end included.
        fifo_depths: depth of each stage's activation FIFO, in micro-batches.
        copy_rule: which copies follow a time-step.
        time_step, ipu, kind, stage, micro_batch: int64 columns, one row an operation,
            sorted by time-step and IPU; rows of one time-step and IPU run in row order.
    """

    time_step: Column
    ipu: Column
    kind: Column
    stage: Column
    micro_batch: Column

    def __init__(
        self,
        schedule: str,
        shape: PlanShape,
        *,
        offsets: tuple[int, ...],
        emitted: int,
        fifo_depths: tuple[int, ...],
        copy_rule: CopyRule,
        table: npt.NDArray[np.int64],
    ) -> None:
        """Take ``table`` of shape (operations, 5), the columns of COLUMNS, in the order of execution.

        Rows are sorted here by time-step and IPU, keeping their order within a cell.
        Raises PlanError for a header or a table that no Plan has, naming the argument.
        """
        table = np.asarray(table)
        _check_arguments(shape, offsets, emitted, fifo_depths, copy_rule, table)
        self.schedule = schedule
        self.shape = shape
        self.offsets = offsets
        self.emitted = emitted
        self.fifo_depths = fifo_depths
        self.copy_rule = copy_rule
        table = table.astype(np.int64, copy=False).reshape(-1, len(COLUMNS))
        place = table[:, 0] * (int(table[:, 1].max(initial=0)) + 1) + table[:, 1]
        if (np.diff(place) < 0).any():
            table = table[np.argsort(place, kind="stable")]
        self.table: npt.NDArray[np.int64] = np.array(table, order="F")
        self.table.flags.writeable = False
        for index, name in enumerate(COLUMNS):
            setattr(self, name, self.table[:, index])

    def __eq__(self, other: object) -> bool:
        """Compare everything that a Plan says."""
        if not isinstance(other, Plan):
            return NotImplemented
        return self._header() == other._header() and np.array_equal(self.table, other.table)

    __hash__ = None  # type: ignore[assignment]

    def _header(self) -> tuple[object, ...]:
        return (self.schedule, self.shape, self.offsets, self.emitted, self.fifo_depths, self.copy_rule)

    def __repr__(self) -> str:
        """Name the schedule and the size."""
        return f"<Plan {self.schedule}: {len(self.table)} operations in {self.emitted} time-steps>"

    @property
    def overlap(self) -> int:
        """The overlap length V: micro-batches in flight, and slots of a full time-step."""
        return len(self.offsets)

    @property
    def ipus(self) -> tuple[int, ...]:
        """The IPUs that hold a stage, in rising order."""
        return tuple(sorted(set(self.shape.mapping)))

    def ops(self) -> Iterator[tuple[int, int, Op]]:
        """Yield (time-step, IPU, operation) for every row, in order."""
        for time_step, ipu, kind, stage, micro_batch in self.table.tolist():
            yield time_step, ipu, Op(Pass(kind), stage, micro_batch)

    def cells(self) -> dict[tuple[int, int], list[Op]]:
        """Return the operations of each (time-step, IPU) that has any, in order."""
        cells: dict[tuple[int, int], list[Op]] = {}
        for time_step, ipu, op in self.ops():
            cells.setdefault((time_step, ipu), []).append(op)
        return cells

    def edges(self) -> tuple[Edge, ...]:
        """Return the way of every tensor from step to step, crossing IPUs or not."""
        return tuple(Edge(step, step + 1) for step in range(self.shape.steps - 1))


def _check_arguments(
    shape: PlanShape,
    offsets: tuple[int, ...],
    emitted: int,
    fifo_depths: tuple[int, ...],
    copy_rule: object,
    table: npt.NDArray[np.int64],
) -> None:
    """Refuse what a schedule of one's own may get wrong, before anything else reads it; raises PlanError."""
    if not isinstance(copy_rule, CopyRule):
        rules = ", ".join(map(str, CopyRule))
        raise PlanError(f"copy_rule: expected one of {rules}, got {copy_rule!r}")
    for name, numbers, least in (("offsets", offsets, 1), ("fifo_depths", fifo_depths, 0)):
        whole = isinstance(numbers, tuple) and all(_is_whole(number) for number in numbers)
        if not whole or len(numbers) < least or min(numbers, default=0) < 0:
            raise PlanError(f"{name}: expected a tuple of whole numbers from 0 up, got {numbers!r}")
    # A time-step for each pass is the slowest order; the compiler's empty ones behind it are at most S + 2.
    most = shape.passes + shape.steps + 2
    if not _is_whole(emitted) or not 0 <= emitted <= most:
        raise PlanError(
            f"emitted: expected at most {most} time-steps, one for each of {shape.passes} passes and "
            f"{shape.steps + 2} empty ones, got {emitted!r}"
        )
    if table.size and (table.ndim != 2 or table.shape[1] != len(COLUMNS) or table.dtype.kind not in "iu"):
        raise PlanError(
            f"table: expected whole numbers in rows of {', '.join(COLUMNS)}, got {table.dtype} of shape {table.shape}"
        )


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)
