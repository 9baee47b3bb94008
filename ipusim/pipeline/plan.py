"""Define the Plan: a list of instructions per IPU, with synchronisation and without durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import groupby

import numpy as np

from ipusim.pipeline.instructions import COLUMNS, Table, text_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import CopyRule, Edge, Order
from ipusim.pipeline.shape import Column, PlanShape


class Sync(StrEnum):
    """Synchronisation mode of IPUs.

    Attributes:
        has_time_steps: True if all IPUs meet after each time-step and copy tensors together; False if tensors go
            separately.

    Example:
        >>> from ipusim.api import Sync
        >>> Sync("lock_step").has_time_steps, Sync.POINT_TO_POINT.words
        (True, 'point-to-point')
    """

    has_time_steps: bool

    def __new__(cls, name: str, has_time_steps: bool = False) -> Sync:
        """Create a member with value ``name``."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.has_time_steps = has_time_steps
        return member

    #: All IPUs meet after each time-step, in one merged copy, like Poplar programs.
    LOCK_STEP = "lock_step", True
    #: An IPU continues as soon as needed tensors have arrived.
    POINT_TO_POINT = "point_to_point", False

    @property
    def words(self) -> str:
        """Mode as written in titles."""
        return self.value.replace("_", "-")


def order_and_sync(schedule: str, sync: Sync) -> str:
    """Return a schedule with its sync mode for titles and tables: ``1f1b in point-to-point``."""
    return f"{schedule} in {sync.words}"


def idealised(syncs: Iterable[Sync]) -> str:
    """Return a sentence about idealised point-to-point, for runs of both sync modes.

    Args:
        syncs: modes of the runs.

    Returns:
        The sentence; empty for runs of one mode.
    """
    if len(set(syncs)) < len(Sync):
        return ""
    return (
        "Point-to-point is an idealised machine: IPUs meet only after weight updates, and each tensor is copied "
        "separately."
    )


class Plan:
    """A pipeline execution as instructions per IPU; read-only.

    Args:
        make: function that creates the instructions on first access.
        count_waiting: function that creates :attr:`waiting`; None in lock-step.

    Attributes:
        order: Order of the passes.
        sync: synchronisation mode.
        emitted: number of time-steps, each followed by a meeting; point-to-point is one step without a meeting.
        table: the five columns below, shape (passes, 5).
        time_step, ipu, kind, stage, micro_batch: int64 columns of the passes, one row per pass, sorted by time-step and
            IPU; rows of one time-step and IPU run in row order. In point-to-point, time-steps are -1,
            and rows are sorted by IPU.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> plan = assemble(Request.from_dict(options)).plan
        >>> plan.emitted, plan.table.shape, plan.listing().splitlines()[1][:34]
        (8, (16, 5), 'IPU 1: meet; F1.0; meet; outfeed 0')
    """

    time_step: Column
    ipu: Column
    kind: Column
    stage: Column
    micro_batch: Column

    def __init__(
        self,
        order: Order,
        sync: Sync,
        *,
        table: Table,
        emitted: int,
        make: Callable[[], Table],
        count_waiting: Callable[[], Mapping[tuple[int, int], int]] | None = None,
    ) -> None:
        """Take ``table``, the passes with time-steps."""
        self.order = order
        self.sync = sync
        self.emitted = emitted
        self.table = table
        self._make = make
        self._count_waiting = count_waiting
        table.flags.writeable = False
        for index, name in enumerate(("time_step", "ipu", "kind", "stage", "micro_batch")):
            setattr(self, name, table[:, index])

    @cached_property
    def instructions(self) -> Table:
        """int64, shape (instructions, 5), columns of instructions.COLUMNS, by IPU and in order of execution."""
        table = self._make()
        table.flags.writeable = False
        return table

    def instructions_of(self, code: int) -> Counter[int]:
        """Count instructions of a code for each stage.

        Args:
            code: code of the instructions, see :class:`Code`.

        Returns:
            Count by stage; stage -1 counts instructions without a stage.
        """
        table = self.instructions
        return Counter(table[table[:, COLUMNS.index("code")] == code, COLUMNS.index("stage")].tolist())

    @cached_property
    def waiting(self) -> Mapping[tuple[int, int], int]:
        """Maximum number of waiting tensors by (source stage, target stage).

        The mapping is empty in lock-step, where single tensors wait.
        """
        return {} if self._count_waiting is None else self._count_waiting()

    def with_buffers(self, longer: Plan, number: Callable[[int, int], int]) -> Plan:
        """Return this Plan with other buffers, computed from its own and from those of a longer Plan.

        Args:
            longer: Plan of a few more micro-batches.
            number: function that takes the numbers of tensors of a buffer here and in ``longer``, and returns the
                number in the returned Plan.

        Returns:
            A Plan with equal instructions.
        """
        return Plan(
            self.order.with_fifo_depths(tuple(map(number, self.fifo_depths, longer.fifo_depths))),
            self.sync,
            table=self.table,
            emitted=self.emitted,
            make=lambda: self.instructions,
            count_waiting=lambda: {way: number(count, longer.waiting[way]) for way, count in self.waiting.items()},
        )

    def __eq__(self, other: object) -> bool:
        """Compare two Plans by contents."""
        if not isinstance(other, Plan):
            return NotImplemented
        return (self.order, self.sync, self.emitted) == (other.order, other.sync, other.emitted) and np.array_equal(
            self.instructions, other.instructions
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return schedule, mode and size."""
        return f"<Plan {order_and_sync(self.schedule, self.sync)}: {len(self.table)} passes, {self.emitted} time-steps>"

    @property
    def schedule(self) -> str:
        """Name of the schedule."""
        return self.order.schedule

    @property
    def shape(self) -> PlanShape:
        """Shape of the Order."""
        return self.order.shape

    @property
    def offsets(self) -> tuple[int, ...]:
        """Start time-step of each of the V overlapping micro-batches; empty without offsets."""
        return self.order.offsets

    @property
    def fifo_depths(self) -> tuple[int, ...]:
        """Depth of each stage's activation FIFO, in micro-batches."""
        return self.order.fifo_depths

    @property
    def copy_rule(self) -> CopyRule:
        """Rule for copies after a time-step in lock-step."""
        return self.order.copy_rule

    @cached_property
    def overlap(self) -> int:
        """Overlap length V.

        Without offsets, the maximum number of passes in a time-step, or of micro-batches in flight.
        """
        if self.offsets:
            return len(self.offsets)
        if not self.sync.has_time_steps:
            return max(self.fifo_depths, default=0) + 1
        slots = self.kind != Pass.RECOMPUTE
        return int(np.bincount(self.time_step[slots]).max(initial=1))

    @property
    def ipus(self) -> tuple[int, ...]:
        """IPUs that hold a stage, ascending."""
        return tuple(sorted(set(self.shape.mapping)))

    def ops(self) -> Iterator[tuple[int, int, Op]]:
        """Yield (time-step, IPU, operation) for every row, in order."""
        for time_step, ipu, kind, stage, micro_batch in self.table.tolist():
            yield time_step, ipu, Op(Pass(kind), stage, micro_batch)

    def cells(self) -> dict[tuple[int, int], list[Op]]:
        """Return operations by (time-step, IPU), in order, without empty cells."""
        cells: dict[tuple[int, int], list[Op]] = {}
        for time_step, ipu, op in self.ops():
            cells.setdefault((time_step, ipu), []).append(op)
        return cells

    def edges(self) -> tuple[Edge, ...]:
        """Return all transfers between steps, on one IPU or between IPUs."""
        return tuple(Edge(step, step + 1) for step in range(self.shape.steps - 1))

    def listing(self) -> str:
        """Format the instructions, a line per IPU: ``IPU 0: infeed 0; F0.0; meet; ...``."""
        lines = []
        for ipu, rows in groupby(self.instructions.tolist(), key=lambda row: row[0]):
            lines.append(f"IPU {ipu}: " + "; ".join(text_of(*row[1:]) for row in rows))
        return "\n".join(lines) + "\n"
