"""The Order: which passes each IPU runs, one after the other, with no copies and no durations.

An Order is data. Its passes are integer columns, so that an Order of a hundred
thousand passes costs what its numbers cost. How IPUs wait for each other is not
its business: a lowering makes a :class:`~ipusim.pipeline.plan.Plan` of it.
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

#: The IPU behind the last row of a table.
NOWHERE: Final = -1
#: What no number of a pass reaches.
_MOST: Final = 1 << 62
#: Columns of an Order's table, and of one whose passes have time-steps.
COLUMNS: Final = ("ipu", "kind", "stage", "micro_batch")
TIMED_COLUMNS: Final = ("time_step", *COLUMNS)


class CopyRule(Enum):
    """Which inter-IPU copies follow a time-step in lock-step."""

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


class Order:
    """The passes of one execution of a pipeline, of each IPU in the order in which it runs them; read-only.

    Attributes:
        schedule: name of the schedule that laid it out.
        shape: mapping, count, training or inference, recomputation.
        offsets: the time-step at which each of the V overlapping micro-batches starts; empty for an Order that was not
            laid out by them.
        emitted: time-steps that the compiler emits, the empty ones at the end included; None without time-steps.
        fifo_depths: depth of each stage's activation FIFO, in micro-batches; () in inference.
        copy_rule: which copies follow a time-step, where IPUs run in lock-step.
        repeats: of each IPU the first of its passes that repeats itself as whole periods of the Order do, and the one
            behind the last, where that was found in the Order; else None.
        joined: bool, shape (passes,): whether a pass runs in one slot with the next one of its IPU, a composite pass.
            Both begin when what either needs is there, and hand on what they have made when both have ended.
        places: of passes that were read in a file where they stand there, in words; else none.
        table: int64, shape (passes, 5), the columns of TIMED_COLUMNS, sorted by time-step and IPU; without
            time-steps shape (passes, 4), the columns of COLUMNS, sorted by IPU. Otherwise rows are in the order
            in which they run.

    Raises:
        PlanError: for a header or a table that no Order has, naming the argument.

    Example:
        >>> from ipusim import Order, Shape
        >>> passes = {0: ["F0.0", "F0.1", "B0.0", "B0.1"], 1: ["F1.0", "B1.0", "F1.1", "B1.1"]}
        >>> order = Order.of("mine", Shape(mapping=(0, 1), micro_batches=2), passes)
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
        """Take ``table`` in the order of execution; it has time-steps where ``emitted`` is given.

        ``joined`` is by the rows of ``table``, and by default False for each.

        ``fifo_depths`` are by default as deep as the order needs: what a stage keeps at most, but for the one
        micro-batch that lies in its own buffer.
        Raises PlanError for a header or a table that no Order has, naming the argument.
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
            raise PlanError("joined: expected a pass of the same IPU behind each that is joined to the next")
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
    def of(
        cls,
        schedule: str,
        shape: PlanShape,
        passes: Mapping[int, Iterable[Op | tuple[int, int, int] | str]],
        joined: Container[Op] = (),
        places: Mapping[Op, str] | None = None,
    ) -> Order:
        """Return the Order of the passes of each IPU.

        Args:
            schedule: name of the schedule.
            shape: stages, their IPUs and micro-batches.
            passes: by the number of an IPU, its passes one after the other: texts such as ``F1.3``, the forward pass of
                stage 1 on micro-batch 3, ``B1.3`` backward, ``I1.3`` and ``W1.3`` its halves; or Ops.
            joined: passes that share a slot with the next pass of the same IPU.
            places: of passes of a file, where they stand in it.

        Returns:
            The Order, which :func:`ipusim.show` prints.

        Raises:
            PlanError: for a text or a number that is no pass.
        """
        rows: list[tuple[int, ...]] = []
        for ipu, ops in passes.items():
            if not isinstance(ops, Iterable):
                raise PlanError(f"passes: expected the passes of IPU {ipu!r} one after the other, got {ops!r}")
            rows.extend(_row(ipu, op) for op in ops)
        table = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        in_one_slot = np.array([row[1:] in joined for row in rows], bool)
        return cls(schedule, shape, table=table, joined=in_one_slot, places=places)

    def with_fifo_depths(self, fifo_depths: tuple[int, ...]) -> Order:
        """Return the same Order with FIFOs of other depths.

        Args:
            fifo_depths: depth for each stage, in micro-batches.

        Returns:
            A copy with these depths.
        """
        order = copy(self)
        order.fifo_depths = fifo_depths
        return order

    def __eq__(self, other: object) -> bool:
        """Compare everything that an Order says."""
        if not isinstance(other, Order):
            return NotImplemented
        same = np.array_equal(self.table, other.table) and np.array_equal(self.joined, other.joined)
        return same and self._header() == other._header()

    __hash__ = None  # type: ignore[assignment]

    def _header(self) -> tuple[object, ...]:
        return (self.schedule, self.shape, self.offsets, self.emitted, self.fifo_depths, self.copy_rule)

    def __repr__(self) -> str:
        """Name the schedule and the size."""
        steps = "" if self.emitted is None else f" in {self.emitted} time-steps"
        return f"<Order {self.schedule}: {len(self.table)} passes{steps}>"

    @property
    def slots(self) -> Iterator[range]:
        """The rows of each slot in turn: of one pass, or of those that are joined."""
        begins = np.flatnonzero(np.r_[True, ~self.joined[:-1]]).tolist() if len(self.joined) else []
        return itertools.starmap(range, itertools.pairwise([*begins, len(self.joined)]))

    @property
    def passes(self) -> Table:
        """The columns of COLUMNS alone, shape (passes, 4)."""
        return self.table[:, -len(COLUMNS) :]


def _row(ipu: Any, op: Any) -> tuple[int, ...]:
    """Return the row of a pass, which is an Op or its text; raises PlanError for anything else."""
    try:
        kind, stage, micro_batch = Op.parse(op) if isinstance(op, str) else op
    except (TypeError, ValueError) as error:
        expected = f"{error}" if isinstance(op, str) else f"expected a kind, a stage and a micro-batch, got {op!r}"
        raise PlanError(f"passes: {expected}") from None
    row = ipu, kind, stage, micro_batch
    for number in row:
        if not _is_whole(number) or abs(number) >= _MOST:
            text = f"expected IPUs, kinds, stages and micro-batches as whole numbers below {_MOST}"
            raise PlanError(f"passes: {text}, got {number!r} in the pass {op!r} of IPU {ipu!r}")
    return row


def _check_joined(joined: npt.NDArray[Any], rows: int, emitted: int | None) -> None:
    if joined.dtype != bool or joined.shape != (rows,):
        raise PlanError(
            f"joined: expected a bool for each of {rows} passes, got {joined.dtype} of shape {joined.shape}"
        )
    if joined.any() and emitted is not None:
        raise PlanError("joined: expected none in an Order with time-steps, whose passes say which they share")


def _least_depths(shape: PlanShape, passes: Table) -> tuple[int, ...]:
    """Return the least depths of stages' FIFOs: the most micro-batches that each stores, but for one."""
    if not shape.training:
        return ()
    _, kind, stage, micro_batch = passes.T
    copy = micro_batch % len(shape.copies)
    depths = []
    for number in range(shape.stages):
        most = 1
        for of_copy in range(len(shape.copies)):
            own = kind[(stage == number) & (copy == of_copy)]
            if shape.recompute and shape.recomputes(number):
                last = own == Pass.RECOMPUTE
            else:
                last = (own == Pass.BACKWARD) | (own == Pass.INPUT_GRADIENT)
            most = int(np.cumsum((own == Pass.FORWARD).astype(np.int64) - last).max(initial=most))
        depths.append(most - 1)
    return tuple(depths)


def _check_table(table: npt.NDArray[Any], columns: tuple[str, ...], stages: int) -> None:
    """Refuse a malformed table of a user's schedule before anything else reads it; raises PlanError."""
    if not table.size:
        return
    if table.ndim != 2 or table.shape[1] != len(columns) or table.dtype.kind not in "iu":
        raise PlanError(
            f"table: expected whole numbers in rows of {', '.join(columns)}, got {table.dtype} of shape {table.shape}"
        )
    if table[:, -len(COLUMNS)].min() < 0:
        raise PlanError(f"table: expected IPUs from 0 up, got {table[:, -len(COLUMNS)].min()}")
    for what, column, count in (("passes", table[:, -3], len(Pass)), ("stages", table[:, -2], stages)):
        if not 0 <= column.min() <= column.max() < count:
            raise PlanError(f"table: expected {what} from 0 to {count - 1}, got {column.min()} to {column.max()}")


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
        whole = isinstance(numbers, tuple) and all(_is_whole(number) for number in numbers)
        if not whole or min(numbers, default=0) < 0:
            raise PlanError(f"{name}: expected a tuple of whole numbers from 0 up, got {numbers!r}")
    # A time-step for each pass is the slowest order; the compiler's empty ones behind it are at most S + 2.
    passes = max(shape.passes, rows)
    most = passes + shape.steps + 2
    if emitted is not None and (not _is_whole(emitted) or not 0 <= emitted <= most):
        raise PlanError(
            f"emitted: expected at most {most} time-steps, one for each of {passes} passes and "
            f"{shape.steps + 2} empty ones, got {emitted!r}"
        )


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)
