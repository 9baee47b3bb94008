"""From a schedule's Order to a Plan in a sync mode."""

from __future__ import annotations

from typing import Final

from ipusim.base.cache import shared
from ipusim.base.errors import UnsupportedProgramError
from ipusim.lowering.lower import check_sync, lower
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.program import PlanShape
from ipusim.schedules.schedule import Schedule

#: Passes of an Order at most that is kept for further requests: under a megabyte.
_CACHED_PASSES: Final = 25_000


def checked_sync(schedule: Schedule, shape: PlanShape, sync: Sync | None = None) -> Sync:
    """Return the sync mode in effect, by default the schedule's own.

    Raises UnsupportedProgramError for what of ``shape`` the schedule or the mode does not support, and what
    ``schedule.check`` raises.
    """
    schedule.check(shape)
    sync = schedule.syncs[0] if sync is None else sync
    if sync not in schedule.syncs:
        known = " or ".join(mode.value for mode in schedule.syncs)
        raise UnsupportedProgramError(f"The schedule '{schedule.name}' runs in {known} only, not in {sync.value}.")
    check_sync(sync, shape)
    return sync


def plan_of(schedule: Schedule, shape: PlanShape, sync: Sync | None = None) -> Plan:
    """Return the Plan of ``shape``, in the schedule's own sync mode by default; it has passes and copies alone.

    Raises what :func:`checked_sync` and ``schedule.laid_out`` raise.
    """
    mode = checked_sync(schedule, shape, sync)
    order = shared()(Schedule.laid_out, schedule, shape) if shape.passes <= _CACHED_PASSES else schedule.laid_out(shape)
    return lower(order, mode)
