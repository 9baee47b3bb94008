"""How time passes where the System is disturbed: a rule for each kind of disturbance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import singledispatch
from typing import Final, NamedTuple

from ipusim.hardware.disturbances import Disturbance, Slower
from ipusim.hardware.resources import Resource
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.kinds import SpanKind

_FULL: Final = Fraction(1)


class Work(NamedTuple):
    """What a resource works at.

    Attributes:
        kind: of the span that it leaves.
        stage, micro_batch, execution: of a pass, else NONE.
    """

    kind: SpanKind
    stage: int = NONE
    micro_batch: int = NONE
    execution: int = NONE


#: Work by its kind alone, or a pass.
What = SpanKind | Work
#: The speed of a resource in a cycle (1 is full speed, 0 stands still), and the cycle until which it stays so; None
#: where it stays for ever, which must be above 0.
Pace = tuple[Fraction, int | None]
#: Returns the pace of a resource at some work, from a cycle on.
Speed = Callable[[Resource, What, int], Pace]


class Rule(NamedTuple):
    """What a disturbance does.

    Attributes:
        pace: of a resource at some work, from a cycle on.
        steady_from: the cycle from which on its pace stays as it is for ever; None where it never does.
    """

    pace: Callable[[Resource, Work, int], Pace]
    steady_from: int | None


@singledispatch
def rule(disturbance: Disturbance) -> Rule | None:
    """Return what a disturbance does, by its class; None where it changes nothing."""
    raise TypeError(f"expected a disturbance that has a rule, got {disturbance!r}")


@rule.register
def _slower(disturbance: Slower) -> Rule | None:
    slow, speed, first, until = disturbance.resource, disturbance.speed, disturbance.first, disturbance.until
    if speed == 1 or first == until:
        return None

    def pace(worker: Resource, _: Work, cycle: int) -> Pace:
        if worker != slow or (until is not None and cycle >= until):
            return _FULL, None
        return (_FULL, first) if cycle < first else (speed, until)

    return Rule(pace, first if until is None else until)


def speed_of(disturbances: Iterable[Disturbance]) -> Speed | None:
    """Return how fast work goes on under all of some disturbances; None where everything is at full speed."""
    paces = [found.pace for found in map(rule, disturbances) if found is not None]

    def speed(worker: Resource, what: What, cycle: int) -> Pace:
        work = what if isinstance(what, Work) else Work(what)
        found = [pace(worker, work, cycle) for pace in paces]
        product = _FULL
        for part, _ in found:
            product *= part
        return product, min((until for _, until in found if until is not None), default=None)

    return speed if paces else None


def steady_from(disturbances: Iterable[Disturbance]) -> int | None:
    """Return the cycle from which on the speed of everything stays as it is; None where it never does."""
    found = [each.steady_from for each in map(rule, disturbances) if each is not None]
    return None if None in found else max((each for each in found if each is not None), default=0)
