"""Lower an Order of passes to a Plan, a list of instructions, by the sync mode's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipusim.base.errors import UnsupportedProgramError
from ipusim.lowering.lock_step import lock_step
from ipusim.lowering.point_to_point import point_to_point
from ipusim.lowering.side_instructions import SideInstructions, side_instructions
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape

_LOWERINGS: Final[dict[Sync, Callable[[Order, SideInstructions], Plan]]] = {
    Sync.LOCK_STEP: lock_step,
    Sync.POINT_TO_POINT: point_to_point,
}
_NO_SIDE: Final = SideInstructions()


def lower(order: Order, sync: Sync, side: SideInstructions = _NO_SIDE) -> Plan:
    """Return the Plan of ``order`` in a sync mode, with side instructions."""
    return _LOWERINGS[sync](order, side)


def complete(plan: Plan, program: PipelineProgram, replicas: int, hosts: int = 1) -> Plan:
    """Return ``plan`` with the side instructions of ``program``.

    There are ``replicas`` replicas per host, on ``hosts`` hosts.
    """
    side = side_instructions(program, replicas, hosts)
    return lock_step(plan.order, side, plan) if plan.sync is Sync.LOCK_STEP else lower(plan.order, plan.sync, side)


def check_sync(sync: Sync, shape: PlanShape) -> None:
    """Refuse features unsupported in a sync mode; raises UnsupportedProgramError."""
    if sync.has_time_steps:
        return
    unsupported = {
        "I/O tiles that overlap host copies with time-steps": shape.overlapped_io,
        "concurrent stages": bool(shape.sizes),
    }
    for feature, is_used in unsupported.items():
        if is_used:
            raise UnsupportedProgramError(
                f"{feature[0].upper()}{feature[1:]} run only in lock-step, not in {sync.words}."
            )
