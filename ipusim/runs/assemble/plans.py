"""Make a Plan in a sync mode from the Order of passes that a schedule lays out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from ipusim.base.cache import shared
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.lowering.lower import check_sync, lower
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.schedules.schedule import Schedule

#: Maximum number of passes of a cached Order: under a megabyte.
_CACHED_PASSES: Final = 25_000


def checked_sync(schedule: Schedule, shape: PlanShape, sync: Sync | None = None) -> Sync:
    """Return the sync mode in effect, by default the schedule's own.

    Raises UnsupportedProgramError for a ``shape`` that the schedule or the mode does not support, and the errors of
    ``schedule.check``.
    """
    schedule.check(shape)
    sync = schedule.syncs[0] if sync is None else sync
    if sync not in schedule.syncs:
        modes = " or ".join(mode.value for mode in schedule.syncs)
        raise UnsupportedProgramError(f"The schedule '{schedule.name}' runs only in {modes}, not in {sync.value}.")
    check_sync(sync, shape)
    return sync


def plan_of(schedule: Schedule, shape: PlanShape, sync: Sync | None = None) -> Plan:
    """Return the Plan of ``shape``, with passes and copies only; by default in the schedule's own sync mode.

    Raises the errors of :func:`checked_sync` and ``schedule.lay_out``.
    """
    mode = checked_sync(schedule, shape, sync)
    order = shared()(Schedule.lay_out, schedule, shape) if shape.passes <= _CACHED_PASSES else schedule.lay_out(shape)
    return lower(order, mode)


def nearest_counts(schedule: Schedule, shape: PlanShape, sync: Sync | None = None) -> tuple[int, ...]:
    """Return the legal gradient accumulation counts next to a refused count.

    Candidates are multiples of the schedule's step, or all counts if the schedule may accept counts between multiples.
    A candidate is legal if the schedule makes a Plan of it: a schedule may refuse multiples, for example below a
    minimum.

    Args:
        schedule: schedule that refuses the count.
        shape: stages, their IPUs and micro-batches.
        sync: sync mode; None for the schedule's own.

    Returns:
        Nearest legal count below, and nearest legal count above, in whole micro-batches; shorter if a side has no legal
        count.

    Example:
        >>> from ipusim.api import pipelines, schedules
        >>> nearest_counts(schedules.find("grouped"), pipelines.PlanShape(mapping=(0, 1), micro_batches=6))
        (4, 8)
    """
    step = 1 if schedule.between else schedule.count_step(shape)
    nearest_lower = max(shape.micro_batches, 0) // shape.segments // step * step
    # The minimum count of a built-in schedule is at most ``shape.steps``, or a group of micro-batches if larger.
    most_tries = max(shape.steps + 2, schedule.count_step(shape) // step)

    def first_legal(counts: Iterable[int]) -> list[int]:
        legal = (count for count in islice(counts, most_tries) if _is_legal(schedule, shape, count, sync))
        return list(islice(legal, 1))

    higher = range(nearest_lower + step, nearest_lower + step * (most_tries + 1), step)
    return (*first_legal(range(nearest_lower, 0, -step)), *first_legal(higher))


def _is_legal(schedule: Schedule, shape: PlanShape, count: int, sync: Sync | None) -> bool:
    shape = replace(shape, micro_batches=count * shape.segments)
    # A short run is as legal as the whole run that it stands for, and is laid out faster.
    short_count = next(short_counts(schedule, shape), shape.micro_batches)
    try:
        plan_of(schedule, replace(shape, micro_batches=short_count), sync)
    except ProgramError:
        return False
    return True
