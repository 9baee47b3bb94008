"""How time passes where the System is disturbed: a rule for each kind of disturbance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, singledispatch
from typing import ClassVar, Final, NamedTuple, get_args

from ipusim.hardware.disturbances import (
    Dead,
    Delayed,
    Device,
    Disturbance,
    HostPart,
    Jitter,
    Lost,
    Problems,
    Slower,
    Stall,
)
from ipusim.hardware.links import Channel, LinkDirection
from ipusim.hardware.resources import Resource
from ipusim.hardware.system import System
from ipusim.machine.jitter import speed_of_pass
from ipusim.machine.resources import HOST_PROGRAM, NETWORK
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind

_FULL: Final = Fraction(1)
_STILL: Final = Fraction(0)
#: The parts of the host's work that there is one of for all replicas.
_OF_ALL: Final = {"network": NETWORK, "program": HOST_PROGRAM}


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
#: Returns the cycles by which a resource begins some work later than it could, from a cycle on.
Delay = Callable[[Resource, What, int], int]


class Rule(NamedTuple):
    """What a disturbance does.

    Attributes:
        pace: of a resource at some work, from a cycle on.
        steady_from: the cycle from which on its pace stays as it is for ever; None where it never does.
        delay: of work of a resource that begins in a cycle; None where it delays nothing.
        changes: the cycles in which anything of it changes; empty where they are not known, or there are none.
    """

    pace: Callable[[Resource, Work, int], Pace]
    steady_from: int | None
    delay: Callable[[Resource, Work, int], int] | None = None
    changes: tuple[int, ...] = ()


@singledispatch
def rule(disturbance: Disturbance, system: System) -> Rule | None:  # noqa: ARG001 - most kinds ask it
    """Return what a disturbance does on a system, by its class; None where it changes nothing."""
    raise TypeError(f"expected a disturbance that has a rule, got {disturbance!r}")


@rule.register
def _slower(disturbance: Slower, system: System) -> Rule | None:
    first, until, delay = disturbance.from_, disturbance.until, disturbance.delay
    if first == until or (disturbance.slower == 1 and not delay):
        return None
    if disturbance.ipu is not None:
        slow = frozenset({Resource("IPU", disturbance.ipu)})
    elif disturbance.link is not None:
        slow = cable(system, disturbance.link)
    elif disturbance.host is not None:
        slow = _host(system, disturbance.host)
    else:
        slow = frozenset({Resource("Streaming Memory", disturbance.streaming_memory or 0)})
    return _between(slow, 1 / disturbance.slower, first, until, delay)


@rule.register
def _delayed(disturbance: Delayed, system: System) -> Rule | None:
    first, until, delay = disturbance.from_, disturbance.until, disturbance.delay
    return _between(cable(system, disturbance.link), _FULL, first, until, delay) if delay and first != until else None


@rule.register
def _stall(disturbance: Stall, system: System) -> Rule | None:
    first, until = disturbance.at, disturbance.at + disturbance.stall
    return _between(_host(system, disturbance.host), _STILL, first, until) if first < until else None


@rule.register
def _jitter(disturbance: Jitter, system: System) -> Rule | None:  # noqa: ARG001
    if not disturbance.jitter:
        return None
    drawn = partial(speed_of_pass, disturbance.seed, disturbance.jitter)

    def pace(worker: Resource, work: Work, _: int) -> Pace:
        if work.stage == NONE or worker.kind != "IPU" or disturbance.ipu not in (None, worker.name):
            return _FULL, None
        return drawn(int(worker.name), work.kind, work.stage, work.execution, work.micro_batch), None

    return Rule(pace, None)


@rule.register
def _dead(disturbance: Dead, system: System) -> Rule | None:  # noqa: ARG001
    """Return that nothing is slower: no route takes a dead cable. Where it dies later, things change then."""
    if not disturbance.later:
        return None
    return Rule(lambda worker, work, cycle: (_FULL, None), disturbance.from_, changes=(disturbance.from_,))  # noqa: ARG005


@rule.register
def _lost(disturbance: Lost, system: System) -> Rule | None:  # noqa: ARG001
    """Return nothing: a loss becomes pauses."""
    return None


def cable(system: System, link: tuple[int, int]) -> frozenset[Resource]:
    """Return the link directions of a cable, whatever they carry."""
    one, other = (system.ipus[ipu] for ipu in link)
    both = (one, other), (other, one)
    return frozenset(Resource("link", LinkDirection(*ends, of).label) for ends in both for of in get_args(Channel))


def _host(system: System, part: HostPart) -> frozenset[Resource]:
    """Return a part of the host's work, of all replicas, with its ports."""
    if part in _OF_ALL:
        return frozenset(_OF_ALL[part])
    track = HostTrack[part.upper()]
    kinds = "host", "host port"
    return frozenset(Resource(kind, replica, track) for kind in kinds for replica in range(system.replicas))


@dataclass(frozen=True)
class Watched:
    """Nothing: all is as fast as ever, and simulated as if it might be slower, so that states can be compared."""

    kind: ClassVar[str] = "watched"

    def problems(self, system: Device) -> Problems:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


@dataclass(frozen=True)
class Pause:
    """All IPUs stand before an execution: what losses of IPUs come to once it is known when they meet the run.

    Attributes:
        execution: before which they stand.
        spans: the kind of each span and its cycles.
    """

    kind: ClassVar[str] = "pause"

    execution: int
    spans: tuple[tuple[SpanKind, int], ...]

    def problems(self, system: Device) -> Problems:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


@dataclass(frozen=True)
class Skip:
    """A run goes on as if it were later: copies of what repeats itself are left out of it.

    Attributes:
        at: the cycle from which on it is later, counted without what is left out before.
        cycles: by how many cycles more.
    """

    kind: ClassVar[str] = "skip"

    at: int
    cycles: int

    def problems(self, system: Device) -> Problems:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


@rule.register(Pause)
@rule.register(Skip)
def _no_pace(disturbance: Pause | Skip, system: System) -> Rule | None:  # noqa: ARG001
    """Return nothing: pauses are between executions, and what is skipped is in no pace of its own."""
    return None


@rule.register
def _watched(disturbance: Watched, system: System) -> Rule | None:  # noqa: ARG001
    return Rule(lambda worker, work, cycle: (_FULL, None), 0)  # noqa: ARG005


def _between(slow: frozenset[Resource], speed: Fraction, first: int, until: int | None, late: int = 0) -> Rule:
    """Return the rule of resources that have another speed from one cycle to another, and links that are late then."""

    def pace(worker: Resource, _: Work, cycle: int) -> Pace:
        if (until is not None and cycle >= until) or worker not in slow:
            return _FULL, None
        return (_FULL, first) if cycle < first else (speed, until)

    def delay(worker: Resource, work: Work, cycle: int) -> int:
        delayed = work.kind == SpanKind.LINK and first <= cycle and (until is None or cycle < until) and worker in slow
        return late if delayed else 0

    known = tuple(cycle for cycle in (first, until) if cycle)
    return Rule(pace, first if until is None else until, delay if late else None, known)


def _rules(system: System) -> list[Rule]:
    return [found for each in system.disturbances if (found := rule(each, system)) is not None]


def speed_of(system: System) -> Speed | None:
    """Return how fast work goes on under all disturbances of a system; None where everything is at full speed."""
    paces = [found.pace for found in _rules(system)]

    def speed(worker: Resource, what: What, cycle: int) -> Pace:
        work = what if isinstance(what, Work) else Work(what)
        found = [pace(worker, work, cycle) for pace in paces]
        if len(found) == 1:
            return found[0]
        product = _FULL
        for part, _ in found:
            product *= part
        return product, min((until for _, until in found if until is not None), default=None)

    skips = _skips(system)
    if not skips or not paces:
        return speed if paces else None

    def later(worker: Resource, what: What, cycle: int) -> Pace:
        more = sum(skip.cycles for skip in skips if skip.at <= cycle)
        found, until = speed(worker, what, cycle + more)
        return found, None if until is None else until - more

    return later


def _skips(system: System) -> list[Skip]:
    return [each for each in system.disturbances if isinstance(each, Skip)]


def delay_of(system: System) -> Delay | None:
    """Return how much later work begins under all disturbances of a system; None where nothing is late."""
    delays, skips = [found.delay for found in _rules(system) if found.delay is not None], _skips(system)

    def delay(worker: Resource, what: What, cycle: int) -> int:
        work = what if isinstance(what, Work) else Work(what)
        more = sum(skip.cycles for skip in skips if skip.at <= cycle)
        return sum(late(worker, work, cycle + more) for late in delays)

    return delay if delays else None


def steady_from(system: System) -> int | None:
    """Return the cycle from which on the speed of everything stays as it is; None where it never does."""
    found = [each.steady_from for each in _rules(system)]
    return None if None in found else max((each for each in found if each is not None), default=0)


def changes(system: System) -> tuple[int, ...]:
    """Return the cycles in which the speed of anything changes, rising; none where one of them is not known."""
    rules = _rules(system)
    if any(each.steady_from is None or each.steady_from != max(each.changes, default=0) for each in rules):
        return ()
    return tuple(sorted({cycle for each in rules for cycle in each.changes}))
