"""The schedules by name. A new schedule is one function and one registration here, or from outside."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipusim.errors import ProgramError
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE
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


def register(schedule: Schedule) -> None:
    """Add a schedule of one's own under its name; raises ProgramError if the name is taken."""
    if schedule.name in _SCHEDULES:
        raise ProgramError(f"a schedule named {schedule.name!r} exists already")
    _SCHEDULES[schedule.name] = schedule


def unregister(name: str) -> None:
    """Take a registered schedule out again (for tests and notebooks that register twice)."""
    _SCHEDULES.pop(name, None)


def names() -> tuple[str, ...]:
    """Return the names of all schedules, in order of registration."""
    return tuple(_SCHEDULES)


def find(name: str) -> Schedule:
    """Return the schedule of that name, in any case; raises ProgramError naming those that exist."""
    found = _SCHEDULES.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), _SCHEDULES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ProgramError(f"expected a schedule out of {', '.join(_SCHEDULES)}, got {name!r}{hint}")
    return found
