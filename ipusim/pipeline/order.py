"""Define the Order: the sequence of passes on each IPU, without copies and durations.

An Order is data with integer columns, so an Order of a hundred thousand passes is cheap. Synchronisation is not part of
an Order: a lowering turns an Order into a :class:`~ipusim.pipeline.plan.Plan`.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping
from copy import copy
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import PlanError
from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.shape import Mask, PlanShape

#: IPU number that ends a table.
NOWHERE: Final = -1
#: Upper bound of the numbers of IPUs, stages, micro-batches and time-steps.
_NUMBER_BOUND: Final = 1 << 62
#: Columns of an Order's table without time-steps.
COLUMNS: Final = ("ipu", "kind", "stage", "micro_batch")
#: Columns of an Order's table with time-steps.
TIMED_COLUMNS: Final = ("time_step", *COLUMNS)


class CopyRule(Enum):
    """Rule for inter-IPU copies after a time-step in lock-step."""

    #: One merged copy of all stages' outputs after every time-step, full or empty (Grouped, Interleaved):
    #: Graphcore's compiler never masks these copies.
    MERGED = "merged"
    #: A single copy of the stage that ran, and a synchronisation after every stage (Sequential).
    EACH_STAGE = "each stage"
    #: A copy and a synchronisation only if a tensor crosses to another IPU (sharding; one IPU).
    CROSSING = "crossing"


class Edge(NamedTuple):
    """Transfer of a tensor from one step of a micro-batch to the next.

    Steps count from 0: forward passes through all positions of the pipeline, then backward passes in reverse.
    """

    source_step: int
    target_step: int


class Order:
    """Passes of a pipeline execution, per IPU in order of execution; read-only.

    Attributes:
        schedule: name of the schedule.
        shape: mapping, count, training or inference, recomputation.
        offsets: start time-step of each of the V overlapping micro-batches; empty for schedules without offsets.
        emitted: number of time-steps emitted by the compiler, trailing empty ones included; None without time-steps.
        fifo_depths: depth of each stage's activation FIFO, in micro-batches; () in inference.
        copy_rule: rule for copies after a time-step, in lock-step.
        repeats: for each IPU, begin and end of its passes in whole periods of the Order; None if periods were not
            searched.
        joined: bool, shape (passes,): whether a pass shares a slot with the next pass of its IPU. Joined passes form a
            composite pass, which begins when inputs of both have arrived, and sends results when both have ended.
        places: text for the position in a file of each pass; empty unless the Order was read from a file.
        table: int64, shape (passes, 5), the columns of TIMED_COLUMNS, sorted by time-step and IPU; without
            time-steps shape (passes, 4), the columns of COLUMNS, sorted by IPU. Rows of equal time-step and IPU are in
            order of execution.

    Raises:
        PlanError: for an invalid header or table, naming the argument.

    Example:
        >>> from ipusim import Order, Shape
        >>> passes = {0: ["F0.0", "F0.1", "B0.0", "B0.1"], 1: ["F1.0", "B1.0", "F1.1", "B1.1"]}
        >>> order = Order.from_passes("mine", Shape(mapping=(0, 1), micro_batches=2), passes)
        >>> order.table.shape, order.fifo_depths
        ((8, 4), (1, 0))
    """

    def __init__(
        self,
        schedule: str,
        shape: PlanShape,
        *,
        table: Table,
        offsets: tuple[int, ...] = (),
        emitted: int | None = None,
        fifo_depths: tuple[int, ...] | None = None,
        copy_rule: CopyRule = CopyRule.MERGED,
        repeats: Mapping[int, tuple[int, int]] | None = None,
        joined: Mask | None = None,
        places: Mapping[Op, str] | None = None,
    ) -> None:
        """Sort ``table``, given in order of execution; the table has time-steps if ``emitted`` is given.

        ``joined`` has a bool per row of ``table``; the default is False.
        ``fifo_depths`` default to minimum depths: maximum number of micro-batches kept by a stage, minus one in the
        stage's own buffer.
        Raises PlanError for an invalid header or table, naming the argument.
        """
        columns = COLUMNS if emitted is None else TIMED_COLUMNS
        table = np.asarray(table)
        _check_table(table, columns, shape.stages)
        _check_header(shape, len(table), offsets, emitted, fifo_depths, copy_rule)
        joined = np.zeros(len(table), bool) if joined is None else np.array(joined)
        table = table.astype(np.int64, copy=False).reshape(-1, len(columns))
        rank = table[:, 0]
        if emitted is not None:
            rank = rank * (int(table[:, 1].max(initial=0)) + 1) + table[:, 1]
        _check_joined(joined, len(table), emitted)
        if (np.diff(rank) < 0).any():
            order = np.argsort(rank, kind="stable")
            table, joined = table[order], joined[order]
        if (joined & (np.r_[table[1:, 0], NOWHERE] != table[:, 0])).any():
            raise PlanError("joined: expected a pass of the same IPU after each pass that is joined to the next")
        self.schedule = schedule
        self.shape = shape
        self.offsets = offsets
        self.emitted = emitted
        self.copy_rule = copy_rule
        self.repeats = repeats
        self.places: Mapping[Op, str] = places or {}
        self.table: Table = np.array(table, order="F")
        self.table.flags.writeable = False
        self.joined = joined
        self.joined.flags.writeable = False
        self.fifo_depths = _least_depths(shape, self.passes) if fifo_depths is None else fifo_depths

    @classmethod
    def from_passes(
        cls,
        schedule: str,
        shape: PlanShape,
        passes: Mapping[int, Iterable[Op | tuple[int, int, int] | str]],
        joined: Container[Op] = (),
        places: Mapping[Op, str] | None = None,
    ) -> Order:
        """Create an Order from the passes of each IPU.

        Args:
            schedule: name of the schedule.
            shape: stages, their IPUs and micro-batches.
            passes: passes by IPU number, in order of execution: texts such as ``F1.3``, the forward pass of
                stage 1 on micro-batch 3, ``B1.3`` backward, ``I1.3`` and ``W1.3`` its halves; or Ops.
            joined: passes that share a slot with the next pass of the same IPU.
            places: positions in a file, for passes read from a file.

        Returns:
            The Order, which :func:`ipusim.show` prints.

        Raises:
            PlanError: for a text or a number that is not a pass.
        """
        rows: list[tuple[int, ...]] = []
        for ipu, ops in passes.items():
            if not isinstance(ops, Iterable):
                raise PlanError(f"passes: expected the passes of IPU {ipu!r} one after the other, got {ops!r}")
            rows.extend(_row(ipu, op) for op in ops)
        table = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        in_one_slot = np.array([row[1:] in joined for row in rows], bool)
        return cls(schedule, shape, table=table, joined=in_one_slot, places=places)

    #: Former name, kept for one release.
    of = from_passes

    def with_fifo_depths(self, fifo_depths: tuple[int, ...]) -> Order:
        """Return a copy of the Order with other FIFO depths.

        Args:
            fifo_depths: depth for each stage, in micro-batches.

        Returns:
            A copy with these depths.
        """
        order = copy(self)
        order.fifo_depths = fifo_depths
        return order

    def __eq__(self, other: object) -> bool:
        """Compare two Orders by contents."""
        if not isinstance(other, Order):
            return NotImplemented
        is_equal = np.array_equal(self.table, other.table) and np.array_equal(self.joined, other.joined)
        return is_equal and self._header() == other._header()

    __hash__ = None  # type: ignore[assignment]

    def _header(self) -> tuple[object, ...]:
        return (self.schedule, self.shape, self.offsets, self.emitted, self.fifo_depths, self.copy_rule)

    def __repr__(self) -> str:
        """Return schedule and size."""
        steps = "" if self.emitted is None else f" in {self.emitted} time-steps"
        return f"<Order {self.schedule}: {len(self.table)} passes{steps}>"

    @property
    def slots(self) -> Iterator[range]:
        """Rows slot by slot: a single pass, or several joined passes."""
        begins = np.flatnonzero(np.r_[True, ~self.joined[:-1]]).tolist() if len(self.joined) else []
        return itertools.starmap(range, itertools.pairwise([*begins, len(self.joined)]))

    @property
    def passes(self) -> Table:
        """Table with columns COLUMNS only, shape (passes, 4)."""
        return self.table[:, -len(COLUMNS) :]


def _row(ipu: Any, op: Any) -> tuple[int, ...]:
    """Return the row of a pass, given as an Op or text; raises PlanError for other values."""
    try:
        kind, stage, micro_batch = Op.parse(op) if isinstance(op, str) else op
    except (TypeError, ValueError) as error:
        problem = f"{error}" if isinstance(op, str) else f"expected a kind, a stage and a micro-batch, got {op!r}"
        raise PlanError(f"passes: {problem}") from None
    row = ipu, kind, stage, micro_batch
    for number in row:
        if not _is_whole(number) or abs(number) >= _NUMBER_BOUND:
            text = f"expected IPUs, kinds, stages and micro-batches as whole numbers below {_NUMBER_BOUND}"
            raise PlanError(f"passes: {text}, got {number!r} in the pass {op!r} of IPU {ipu!r}")
    return row


def _check_joined(in_one_slot: npt.NDArray[Any], rows: int, emitted: int | None) -> None:
    if in_one_slot.dtype != bool or in_one_slot.shape != (rows,):
        raise PlanError(
            f"joined: expected a bool for each of {rows} passes, got {in_one_slot.dtype} of shape {in_one_slot.shape}"
        )
    if in_one_slot.any() and emitted is not None:
        raise PlanError("joined: expected none in an Order with time-steps, whose passes say which they share")


def _least_depths(shape: PlanShape, passes: Table) -> tuple[int, ...]:
    """Return minimum FIFO depths of stages: the maximum number of stored micro-batches, minus 1."""
    if not shape.training:
        return ()
    _, kind, stage, micro_batch = passes.T
    pipeline_copy = micro_batch % len(shape.copies)
    depths = []
    for number in range(shape.stages):
        most = 1
        for copy_number in range(len(shape.copies)):
            kinds = kind[(stage == number) & (pipeline_copy == copy_number)]
            if shape.recomputes_apart(number):
                is_last_use = kinds == Pass.RECOMPUTE
            else:
                is_last_use = (kinds == Pass.BACKWARD) | (kinds == Pass.INPUT_GRADIENT)
            most = int(np.cumsum((kinds == Pass.FORWARD).astype(np.int64) - is_last_use).max(initial=most))
        depths.append(most - 1)
    return tuple(depths)


def _check_table(table: npt.NDArray[Any], columns: tuple[str, ...], stages: int) -> None:
    """Refuse a malformed table of a user's schedule before further use; raises PlanError."""
    if not table.size:
        return
    if table.ndim != 2 or table.shape[1] != len(columns) or table.dtype.kind not in "iu":
        raise PlanError(
            f"table: expected whole numbers in rows of {', '.join(columns)}, got {table.dtype} of shape {table.shape}"
        )
    if table[:, -len(COLUMNS)].min() < 0:
        raise PlanError(f"table: expected IPUs from 0 up, got {table[:, -len(COLUMNS)].min()}")
    for noun, column, count in (("passes", table[:, -3], len(Pass)), ("stages", table[:, -2], stages)):
        if not 0 <= column.min() <= column.max() < count:
            raise PlanError(f"table: expected {noun} from 0 to {count - 1}, got {column.min()} to {column.max()}")


def _check_header(
    shape: PlanShape,
    rows: int,
    offsets: tuple[int, ...],
    emitted: int | None,
    fifo_depths: tuple[int, ...] | None,
    copy_rule: object,
) -> None:
    if not isinstance(copy_rule, CopyRule):
        rules = ", ".join(map(str, CopyRule))
        raise PlanError(f"copy_rule: expected one of {rules}, got {copy_rule!r}")
    for name, numbers in (("offsets", offsets), ("fifo_depths", fifo_depths or ())):
        is_whole_tuple = isinstance(numbers, tuple) and all(_is_whole(number) for number in numbers)
        if not is_whole_tuple or min(numbers, default=0) < 0:
            raise PlanError(f"{name}: expected a tuple of whole numbers from 0 up, got {numbers!r}")
    # The slowest order has a time-step for each pass; the compiler appends at most S + 2 empty ones.
    passes = max(shape.passes, rows)
    most = passes + shape.steps + 2
    if emitted is not None and (not _is_whole(emitted) or not 0 <= emitted <= most):
        raise PlanError(
            f"emitted: expected at most {most} time-steps, one for each of {passes} passes and "
            f"{shape.steps + 2} empty ones, got {emitted!r}"
        )


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)
