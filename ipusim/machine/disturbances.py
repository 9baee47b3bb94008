"""Compute the effect of each kind of disturbance (slower IPU, jitter, dead cable) on speeds and delays.

This module translates each disturbance of a System (:mod:`ipusim.hardware.disturbances`) into a rule, and
:mod:`ipusim.machine.speeds` combines the rules into the speed of every resource, such as an IPU or a link direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import singledispatch
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple, get_args

from ipusim.hardware.disturbances import (
    Dead,
    Delayed,
    Disturbance,
    HostPart,
    Jitter,
    Lost,
    Slower,
    Stall,
)
from ipusim.hardware.jitter import PARTS, Draws
from ipusim.hardware.links import Channel, LinkDirection
from ipusim.hardware.resources import Resource
from ipusim.hardware.system import System
from ipusim.machine.resources import HOST_PROGRAM, NETWORK
from ipusim.machine.run_changes import IpuMove, Pause, Skip, StatedLengths, Watched, moves_of, original_ipu
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind

#: Speed of an undisturbed resource.
FULL_SPEED: Final = Fraction(1)
_STANDSTILL: Final = Fraction(0)
#: Parts of the host's work shared by the replicas.
_SHARED_HOST_PARTS: Final = {"network": NETWORK, "program": HOST_PROGRAM}


class PieceOfWork(NamedTuple):
    """A piece of work on a resource, such as a pass on an IPU.

    Attributes:
        kind: kind of the resulting span.
        stage: stage of a pass; NONE for other work.
        micro_batch: micro-batch of a pass; NONE for other work.
        execution: execution of a pass; NONE for other work.
    """

    kind: SpanKind
    stage: int = NONE
    micro_batch: int = NONE
    execution: int = NONE


#: A kind of work, or a particular pass.
Task = SpanKind | PieceOfWork
#: A pass of an execution: kind of the span, stage and micro-batch.
PassKey = tuple[SpanKind, int, int]
#: Speed of a resource (1 is full speed, 0 a standstill), and the cycle of the next change; None for a speed above 0
#: that never changes.
Pace = tuple[Fraction, int | None]


class SlowPeriod(NamedTuple):
    """Period of slower, or delayed, work on a resource.

    Attributes:
        first: first cycle.
        until: first cycle after the period; None without an end.
        speed: speed during the period; 0 is a standstill.
        late: delay before a link starts to carry, in cycles.
    """

    first: int
    until: int | None
    speed: Fraction = FULL_SPEED
    late: int = 0


class SpeedRule(NamedTuple):
    """The effect of a disturbance.

    Attributes:
        pace: function from (resource, work, cycle) to the speed from the cycle on, regardless of ``windows``.
        steady_from: cycle of the last change of speed; None if speeds never settle.
        delay: function from (resource, work, start cycle) to the delay, regardless of ``windows``; None without delays.
        changes: cycles of every change; empty if cycles are unknown or speeds never change.
        touches: function that tells whether the rule ever slows or delays a resource; by default True for every
            resource.
        passes: whether the rule slows only passes.
        factors: function from (resource, execution, passes) to the relative durations of the execution's passes, each
            as numerator and denominator, because whole numbers are quicker than fractions. None if a duration depends
            on the start cycle.
        least: least duration of a pass relative to its duration at full speed; 0 if unknown.
        windows: periods of lower speed or delay by resource, for any work. A table is quick to search if there are
            many disturbances.
    """

    pace: Callable[[Resource, PieceOfWork, int], Pace]
    steady_from: int | None
    delay: Callable[[Resource, PieceOfWork, int], int] | None = None
    changes: tuple[int, ...] = ()
    touches: Callable[[Resource], bool] = lambda worker: True  # noqa: ARG005
    passes: bool = False
    factors: Callable[[Resource, int, Sequence[PassKey]], list[tuple[int, int]]] | None = None
    least: Fraction = FULL_SPEED
    windows: Mapping[Resource, tuple[SlowPeriod, ...]] = MappingProxyType({})


@singledispatch
def rule(disturbance: Disturbance, system: System) -> SpeedRule | None:  # noqa: ARG001 - read by most rules
    """Return the SpeedRule of a disturbance, by its class; None if speeds and delays stay."""
    raise TypeError(f"expected a disturbance that has a rule, got {disturbance!r}")


@rule.register
def _slower(disturbance: Slower, system: System) -> SpeedRule | None:
    first, end, delay = disturbance.from_, disturbance.until, disturbance.delay
    if first == end or (disturbance.slower == 1 and not delay):
        return None
    if disturbance.ipu is not None:
        slow_workers = frozenset({Resource("IPU", disturbance.ipu)})
    elif disturbance.link is not None:
        slow_workers = cable(system, disturbance.link)
    elif disturbance.host is not None:
        slow_workers = _host(system, disturbance.host)
    else:
        slow_workers = frozenset({Resource("Streaming Memory", disturbance.streaming_memory or 0)})
    return _window_rule(slow_workers, 1 / disturbance.slower, first, end, delay)


@rule.register
def _delay(disturbance: Delayed, system: System) -> SpeedRule | None:
    first, end, delay = disturbance.from_, disturbance.until, disturbance.delay
    return (
        _window_rule(cable(system, disturbance.link), FULL_SPEED, first, end, delay) if delay and first != end else None
    )


@rule.register
def _stall(disturbance: Stall, system: System) -> SpeedRule | None:
    first, end = disturbance.at, disturbance.at + disturbance.stall
    return _window_rule(_host(system, disturbance.host), _STANDSTILL, first, end) if first < end else None


@rule.register
def _jitter(disturbance: Jitter, system: System) -> SpeedRule | None:  # noqa: ARG001
    if not disturbance.jitter:
        return None
    draws = Draws(disturbance.seed, disturbance.jitter)

    def touches(worker: Resource) -> bool:
        return worker.kind == "IPU" and disturbance.ipu in (None, worker.name)

    def factors(worker: Resource, execution: int, passes: Sequence[PassKey]) -> list[tuple[int, int]]:
        return [(parts, PARTS) for parts in draws.parts(int(worker.name), execution, passes)]

    def pace(worker: Resource, work: PieceOfWork, _: int) -> Pace:
        ((numerator, denominator),) = factors(worker, work.execution, [(work.kind, work.stage, work.micro_batch)])
        return Fraction(denominator, numerator), None

    return SpeedRule(pace, None, touches=touches, passes=True, factors=factors, least=draws.least)


@rule.register
def _stated_lengths(disturbance: StatedLengths, system: System) -> SpeedRule | None:  # noqa: ARG001
    def factors(_: Resource, execution: int, passes: Sequence[PassKey]) -> list[tuple[int, int]]:  # noqa: ARG001
        return [*map(disturbance.factors.__getitem__, passes)]

    def pace(_: Resource, work: PieceOfWork, cycle: int) -> Pace:  # noqa: ARG001
        numerator, denominator = disturbance.factors[work.kind, work.stage, work.micro_batch]
        return Fraction(denominator, max(numerator, 1)), None

    is_ipu = lambda worker: worker.kind == "IPU"  # noqa: E731
    return SpeedRule(pace, None, touches=is_ipu, passes=True, factors=factors, least=Fraction(0))


@rule.register
def _dead(disturbance: Dead, system: System) -> SpeedRule | None:  # noqa: ARG001
    """Return the rule of a dead cable.

    Routes avoid the cable. Only a cable that dies during the run changes anything.
    """
    if not disturbance.later:
        return None
    return SpeedRule(_full_speed, disturbance.from_, changes=(disturbance.from_,))


def cable(system: System, link: tuple[int, int]) -> frozenset[Resource]:
    """Return the link directions of a cable, across every channel."""
    first, second = (system.ipus[ipu] for ipu in link)
    pairs = (first, second), (second, first)
    directions = (LinkDirection(*ends, channel) for ends in pairs for channel in get_args(Channel))
    return frozenset(Resource("link", direction.label) for direction in directions if not direction.is_limit)


def _host(system: System, part: HostPart) -> frozenset[Resource]:
    """Return the host's resources for a part of the host's work."""
    if part in _SHARED_HOST_PARTS:
        return frozenset(_SHARED_HOST_PARTS[part])
    track = HostTrack[part.upper()]
    kinds = "host", "host port"
    return frozenset(Resource(kind, replica, track) for kind in kinds for replica in range(system.replicas))


@rule.register(Lost)
@rule.register(Pause)
@rule.register(Skip)
def _no_pace(disturbance: Lost | Pause | Skip, system: System) -> SpeedRule | None:  # noqa: ARG001
    """Return None, as these disturbances change no speed.

    Pause replaces losses and acts between executions; Skip jumps forward in time.
    """
    return None


@rule.register
def _move(disturbance: IpuMove, system: System) -> SpeedRule | None:  # noqa: ARG001
    """Return a move's rule: a change of routes, not of speeds."""
    return SpeedRule(_full_speed, disturbance.from_, changes=(disturbance.from_,), touches=lambda worker: False)  # noqa: ARG005


@rule.register
def _watched(disturbance: Watched, system: System) -> SpeedRule | None:
    rules = [speed_rule for inner in disturbance.disturbances if (speed_rule := rule(inner, system)) is not None]

    def touches(worker: Resource) -> bool:
        return any(speed_rule.touches(worker) for speed_rule in rules)

    return SpeedRule(_full_speed, 0, touches=touches)


def _full_speed(worker: Resource, work: PieceOfWork, cycle: int) -> Pace:  # noqa: ARG001
    return FULL_SPEED, None


def _window_rule(slow: frozenset[Resource], speed: Fraction, first: int, end: int | None, late: int = 0) -> SpeedRule:
    """Return the rule of resources that are slower, or late, during a period."""
    cycles = tuple(cycle for cycle in (first, end) if cycle)
    windows = dict.fromkeys(slow, (SlowPeriod(first, end, speed, late),))
    steady = first if end is None else end
    return SpeedRule(_full_speed, steady, changes=cycles, touches=windows.__contains__, windows=windows)


def rules_of(system: System) -> list[SpeedRule]:
    """Return the rules of effective disturbances, for logical IPUs (numbered like in the program)."""
    rules = [speed_rule for disturbance in system.disturbances if (speed_rule := rule(disturbance, system)) is not None]
    moves = moves_of(system)
    return [_for_logical_ipus(speed_rule, moves) for speed_rule in rules] if moves else rules


def _for_logical_ipus(rule: SpeedRule, moves: Sequence[IpuMove]) -> SpeedRule:
    """Translate a rule from physical to logical IPUs, following the moves."""
    if rule.windows:
        windows = _windows_for_logical_ipus(rule.windows, moves)
        return rule._replace(windows=windows, touches=windows.__contains__)

    def logical_worker(worker: Resource, cycle: int) -> Resource:
        return Resource("IPU", original_ipu(int(worker.name), moves, cycle)) if worker.kind == "IPU" else worker

    def touches(worker: Resource) -> bool:
        return any(rule.touches(logical_worker(worker, cycle)) for cycle in (0, *(move.from_ for move in moves)))

    def pace(worker: Resource, work: PieceOfWork, cycle: int) -> Pace:
        worker, later_moves = logical_worker(worker, cycle), [move.from_ for move in moves if move.from_ > cycle]
        speed, next_change = rule.pace(worker, work, cycle) if rule.touches(worker) else (FULL_SPEED, None)
        return speed, min([*later_moves, *([] if next_change is None else [next_change])], default=None)

    return rule._replace(pace=pace, touches=touches, factors=None)


def _windows_for_logical_ipus(
    windows: Mapping[Resource, tuple[SlowPeriod, ...]], moves: Sequence[IpuMove]
) -> dict[Resource, tuple[SlowPeriod, ...]]:
    """Translate windows from physical to logical IPUs, for the periods between moves."""
    result: dict[Resource, tuple[SlowPeriod, ...]] = {}
    period_starts: list[int | None] = [0, *sorted({move.from_ for move in moves}), None]
    for worker, periods in windows.items():
        if worker.kind != "IPU":
            result[worker] = periods
            continue
        for ipu in {int(worker.name)}.union(*({move.ipu, move.spare} for move in moves)):
            for begin, end in pairwise(period_starts):
                if begin is not None and original_ipu(ipu, moves, begin) == worker.name:
                    logical = Resource("IPU", ipu)
                    result[logical] = result.get(logical, ()) + tuple(_parts_between(periods, begin, end))
    return {worker: periods for worker, periods in result.items() if periods}


def _parts_between(windows: Sequence[SlowPeriod], begin: int, end: int | None) -> Iterator[SlowPeriod]:
    """Yield the parts of windows between two cycles. If ``end`` is None, the parts reach to the end of the run."""
    for window in windows:
        ends = [cycle for cycle in (window.until, end) if cycle is not None]
        first, stop = max(window.first, begin), min(ends, default=None)
        if stop is None or first < stop:
            yield window._replace(first=first, until=stop)


def disturbs(system: System) -> bool:
    """Whether any disturbance has an effect; a factor of 1, or a period of length 0, has no effect."""
    return bool(rules_of(system) or system.topology.dead) or any(
        isinstance(disturbance, Lost) for disturbance in system.disturbances
    )


def steady_from(system: System) -> int | None:
    """Return the cycle after which every speed is constant; None if speeds never settle."""
    cycles = [speed_rule.steady_from for speed_rule in rules_of(system)]
    return None if None in cycles else max((cycle for cycle in cycles if cycle is not None), default=0)


def are_constant(system: System) -> bool:
    """Tell whether all disturbances have the same effect from the first to the last cycle."""
    return steady_from(system) == 0 and not any(isinstance(disturbance, Lost) for disturbance in system.disturbances)


def changes(system: System) -> tuple[int, ...]:
    """Return the cycles of all speed changes, ascending; empty if any of them is unknown."""
    rules = rules_of(system)
    if any(
        speed_rule.steady_from is None or speed_rule.steady_from != max(speed_rule.changes, default=0)
        for speed_rule in rules
    ):
        return ()
    return tuple(sorted({cycle for speed_rule in rules for cycle in speed_rule.changes}))
