"""The schedules by name. A new schedule is one function and one registration here, or from outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

from ipusim.errors import PlanError, ProgramError, ProgramTypeError
from ipusim.near_names import did_you_mean
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import (
    INTERLEAVED,
    THEN_BACKPROPAGATE,
    check_no_overlapped_io,
    check_not_serialized,
    recomputation,
)
from ipusim.schedules import grouped, interleaved, serial


@dataclass(frozen=True)
class Schedule:
    """A named way to lay a pipeline out.

    Attributes:
        name: as scenarios and the command line say it, lower case.
        plan: from a program's shape to its Plan; raises ProgramError or CountError for a shape that it refuses.
        offsets: from a shape to the starts of the overlapping micro-batches; their
            number is the overlap length V, of which the count must be a multiple.
        pipelined: whether Graphcore's AUTO selection order sees a pipeline in it.
        recomputation_modes: those that it has, Auto's choice first; none for one that knows of no recomputation.
        summary: one line for people.
    """

    name: str
    plan: Callable[[PlanShape], Plan]
    offsets: Callable[[PlanShape], tuple[int, ...]]
    pipelined: bool
    summary: str
    recomputation_modes: tuple[str, ...] = ()


_BOTH_MODES: Final = (THEN_BACKPROPAGATE, INTERLEAVED)

_SCHEDULES: Final[dict[str, Schedule]] = {
    schedule.name: schedule
    for schedule in (
        Schedule("grouped", grouped.plan, grouped.offsets, True, "all backward, then all forward", _BOTH_MODES),
        Schedule(
            "interleaved",
            interleaved.plan,
            interleaved.offsets,
            True,
            "forward beside backward, half the activations",
            (THEN_BACKPROPAGATE,),
        ),
        Schedule("sequential", serial.sequential, serial.offsets, True, "one stage at a time", (INTERLEAVED,)),
        Schedule("sharded", serial.sharded, serial.offsets, False, "no pipeline: through the shards", (INTERLEAVED,)),
        Schedule("single", serial.single, serial.offsets, False, "no pipeline: one IPU", (INTERLEAVED,)),
    )
}


#: A name that scenarios, the command line and a printed grid can say.
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def register(schedule: Schedule) -> None:
    """Add a schedule of one's own under its name.

    I/O tiles and batch serialization, which move passes in time, are refused under it, and recomputation
    in a mode that it does not name. Its Plans must be of the shape that was asked for.

    Raises ProgramError for a name that is taken or that nobody could say, or for modes of recomputation that
    there are not; ProgramTypeError where ``plan`` or ``offsets`` cannot be called.
    """
    if not isinstance(schedule.name, str) or not _NAME.fullmatch(schedule.name):
        raise ProgramError(
            "name: expected a name of at most 64 lower-case letters, digits, _ and -, the first one a letter, "
            f"got {schedule.name!r}"
        )
    if schedule.name in _SCHEDULES:
        raise ProgramError(f"a schedule named {schedule.name!r} exists already")
    for argument in ("plan", "offsets"):
        if not callable(getattr(schedule, argument)):
            raise ProgramTypeError(f"{argument}: expected a function, got {getattr(schedule, argument)!r}")
    if not isinstance(schedule.recomputation_modes, tuple) or set(schedule.recomputation_modes) - set(_BOTH_MODES):
        raise ProgramError(
            f"recomputation_modes: expected a tuple of {' and '.join(_BOTH_MODES)}, got {schedule.recomputation_modes}"
        )
    _SCHEDULES[schedule.name] = replace(schedule, plan=_guarded(schedule))


def _guarded(schedule: Schedule) -> Callable[[PlanShape], Plan]:
    """Return the schedule's function of a shape, with what it cannot lay out refused before and after it."""

    def plan(shape: PlanShape) -> Plan:
        check_no_overlapped_io(shape.overlapped_io, schedule.name)
        check_not_serialized(shape.serialization)
        for wanted, mode in ((shape.recompute, THEN_BACKPROPAGATE), (shape.recompute_inline, INTERLEAVED)):
            if wanted:
                recomputation(mode, schedule.recomputation_modes, schedule.name)
        made = schedule.plan(shape)
        if not isinstance(made, Plan):
            raise PlanError(f"schedule {schedule.name!r}: expected a Plan, got {made!r}")
        for asked in fields(shape):
            right, got = getattr(shape, asked.name), getattr(made.shape, asked.name)
            if got != right:
                raise PlanError(
                    f"schedule {schedule.name!r}: expected a Plan of {asked.name} {right}, got one of {got}"
                )
        return made

    return plan


def names() -> tuple[str, ...]:
    """Return the names of all schedules, in order of registration."""
    return tuple(_SCHEDULES)


def find(name: str) -> Schedule:
    """Return the schedule of that name, in any case; raises ProgramError naming those that exist."""
    found = _SCHEDULES.get(name.lower())
    if found is None:
        hint = did_you_mean(name, _SCHEDULES, quoted=True)
        raise ProgramError(f"expected a schedule out of {', '.join(_SCHEDULES)}, got {name!r}{hint}")
    return found
