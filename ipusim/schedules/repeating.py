"""Find the period of user schedules without a stated period, by repetition in their Order.

An IPU is periodic with ``c`` micro-batches if each of its passes equals the pass one period of rows earlier, with the
micro-batch increased by ``c``. Whole periods may be cut out of such a stretch, equally many on each IPU. The result is
the same Order with fewer micro-batches, as each IPU continues after the cut like after any of its periods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Final

import numpy as np

from ipusim.base.errors import CountError
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import Column, PlanShape
from ipusim.schedules.schedule import Schedule

#: Minimum number of remaining periods after a cut.
_LEAST_PERIODS: Final = 3
#: Maximum number of candidate periods, after which the pass in the middle of an IPU's passes repeats.
_MOST_CANDIDATES: Final = 64


@dataclass(frozen=True)
class Stretch:
    """Periodic part of an Order.

    Attributes:
        period: micro-batches of a period.
        time_steps: time-steps per period, for an Order with time-steps.
        rows: rows of each IPU's passes in the Order's table, in order of execution.
        bounds: range of each IPU's periodic passes, as indices into ``rows``: first, and last + 1.
    """

    period: int
    time_steps: int
    rows: Mapping[int, Column]
    bounds: Mapping[int, tuple[int, int]]

    def most_cut(self, count: int) -> int:
        """Return the maximum number of micro-batches to cut from an Order of ``count``."""
        passes = {ipu: len(rows) // count * self.period for ipu, rows in self.rows.items()}
        periods = min((last - first) // passes[ipu] for ipu, (first, last) in self.bounds.items())
        return max(periods - _LEAST_PERIODS, 0) * self.period


@dataclass(frozen=True, kw_only=True)
class Repeating(Schedule):
    """A schedule for one count, and for smaller counts: whole periods fewer.

    Attributes:
        count: micro-batches of the original Order.
        stretch: periodic part of the Order.
    """

    count: int
    stretch: Stretch

    def step(self, shape: PlanShape) -> int:
        """Return the smallest count increase that adds whole periods to a Plan."""
        return math.lcm(self.stretch.period, shape.serialization)

    def legal_count(self, count: int, shape: PlanShape) -> int:  # noqa: ARG002, of other schedules
        """Return the legal number of micro-batches nearest to ``count`` from above, at most the original number."""
        cut = min(self.count - count, self.stretch.most_cut(self.count))
        return self.count - max(cut, 0) // self.stretch.period * self.stretch.period


def with_period(schedule: Schedule, shape: PlanShape) -> Schedule:
    """Return a copy of a schedule with the period of its Order.

    A schedule with a stated period stays unchanged. If the Order has no period, so does the copy. The Order is laid out
    once. Raises errors of ``schedule.check`` and ``schedule.lay_out``.
    """
    if schedule.period is not None or shape.overlapped_io:  # overlapped I/O may still turn out to be impossible
        return schedule
    schedule.check(shape)
    full_order = schedule.lay_out(shape)
    stretch = _stretch(full_order)
    if stretch is None:
        return replace(
            schedule, order=lambda for_shape: full_order if for_shape == shape else schedule.order(for_shape)
        )
    count = shape.micro_batches
    ramps = count - stretch.most_cut(count) - _LEAST_PERIODS * stretch.period
    values = {field.name: getattr(schedule, field.name) for field in fields(schedule)}
    values |= {
        "order": partial(_cut_periods, full_order, stretch),
        "period": lambda _: stretch.period,
        "file_shape": None,
    }
    return Repeating(**values | {"least": max(schedule.least, ramps)}, count=count, stretch=stretch)


def _cut_periods(full_order: Order, stretch: Stretch, shape: PlanShape) -> Order:
    """Return an Order of fewer micro-batches, with whole periods cut out; raises CountError for other counts."""
    count = full_order.shape.micro_batches
    removed = count - shape.micro_batches
    periods, remainder = divmod(removed, stretch.period)
    if remainder or not 0 <= removed <= stretch.most_cut(count):
        raise CountError(
            f"expected {count} micro-batches, or up to {stretch.most_cut(count)} fewer in steps of {stretch.period}, "
            f"got {shape.micro_batches}"
        )
    if not removed:
        return full_order
    is_kept, is_later = np.ones(len(full_order.table), bool), np.zeros(len(full_order.table), bool)
    bounds = {}
    for ipu, rows in stretch.rows.items():
        first, last = stretch.bounds[ipu]
        passes = len(rows) // count * removed
        is_kept[rows[first : first + passes]] = False
        is_later[rows[first + passes :]] = True
        bounds[ipu] = first, last - passes
    table = full_order.table.copy()
    table[is_later, -1] -= removed
    emitted = full_order.emitted
    if emitted is not None:
        table[is_later, 0] -= periods * stretch.time_steps
        emitted -= periods * stretch.time_steps
    return Order(
        full_order.schedule,
        shape,
        table=table[is_kept],
        offsets=full_order.offsets,
        emitted=emitted,
        fifo_depths=full_order.fifo_depths,
        copy_rule=full_order.copy_rule,
        repeats=bounds,
        joined=full_order.joined[is_kept],
    )


def _stretch(order: Order) -> Stretch | None:
    """Return the periodic part with the shortest period; None if less than half of the Order may be cut out."""
    count = order.shape.micro_batches
    ipus, starts = np.unique(np.sort(order.passes[:, 0]), return_index=True)
    parts = np.split(np.argsort(order.passes[:, 0], kind="stable"), starts[1:])
    rows = dict(zip(ipus.tolist(), parts, strict=True))
    if not _is_complete(order, count) or any(len(part) % count for part in parts):
        return None
    for period in _periods(order.passes[parts[0], 1:], count):
        stretch = _stretch_of(order, rows, period)
        removed = stretch.most_cut(count)
        if 2 * removed >= count:
            short = _cut_periods(order, stretch, replace(order.shape, micro_batches=count - removed))
            if _is_complete(short, count - removed):
                return stretch
    return None


def _is_complete(order: Order, count: int) -> bool:
    """Tell whether each pass occurs exactly once for each of ``count`` micro-batches."""
    _, kind, stage, micro_batch = order.passes.T
    passes = kind * order.shape.stages + stage
    in_range = len(passes) > 0 and micro_batch.min() >= 0 and micro_batch.max() < count
    return in_range and len(np.unique(passes * count + micro_batch)) == len(passes) == count * len(np.unique(passes))


def _periods(passes: Column, count: int) -> list[int]:
    """Return periods, in micro-batches, after which the pass in the middle of an IPU's passes repeats."""
    candidates = np.arange(1, count // _LEAST_PERIODS + 1)
    length = candidates * (len(passes) // count)
    middle = (len(passes) - length) // 2
    distance = passes[middle + length] - passes[middle]
    is_repeated = (distance[:, :2] == 0).all(axis=1) & (distance[:, 2] == candidates)
    periods: list[int] = candidates[is_repeated][:_MOST_CANDIDATES].tolist()
    return periods


def _stretch_of(order: Order, rows: Mapping[int, Column], period: int) -> Stretch:
    """Return the longest stretch with ``period`` that contains the middle of each IPU's passes."""
    time_step = np.column_stack([np.zeros(len(order.table), np.int64) if order.emitted is None else order.table[:, 0]])
    columns = np.hstack([time_step, order.passes[:, 1:3], order.joined[:, np.newaxis], order.passes[:, 3:]])
    bounds, time_steps = {}, None
    for ipu, ipu_rows in rows.items():
        length = len(ipu_rows) // order.shape.micro_batches * period
        distance = columns[ipu_rows[length:]] - columns[ipu_rows[:-length]]
        middle = len(distance) // 2
        time_steps = int(distance[middle, 0]) if time_steps is None else time_steps
        breaks = np.flatnonzero((distance != [time_steps, 0, 0, 0, period]).any(axis=1))
        index = int(np.searchsorted(breaks, middle))
        first = int(breaks[index - 1]) + 1 if index else 0
        last = int(breaks[index]) if index < len(breaks) else len(distance)
        bounds[ipu] = first, last + length
    return Stretch(period, time_steps or 0, rows, bounds)
