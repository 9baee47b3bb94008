"""How time passes where the System is disturbed: a rule for each kind of disturbance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, singledispatch
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
from ipusim.machine.run_changes import Moved, Pause, Skip, Watched, moved_to, moves_of
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


class Rule(NamedTuple):
    """The effect of a disturbance.

    Attributes:
        pace: of a resource at some work, from a cycle on.
        steady_from: the cycle from which on its pace stays as it is for ever; None where it never does.
        delay: of work of a resource that begins in a cycle; None where it delays nothing.
        changes: the cycles in which anything of it changes; empty where they are not known, or there are none.
        touches: whether it ever slows or delays a resource, at any work; by default any of them.
        passes: whether passes alone are slowed, and no other work of a resource.
        factor: how many times as long a resource takes for some work, whenever it begins: a numerator and a
            denominator, as whole numbers are quicker than fractions; None where that depends on the cycle.
    """

    pace: Callable[[Resource, Work, int], Pace]
    steady_from: int | None
    delay: Callable[[Resource, Work, int], int] | None = None
    changes: tuple[int, ...] = ()
    touches: Callable[[Resource], bool] = lambda worker: True  # noqa: ARG005
    passes: bool = False
    factor: Callable[[Resource, Work], tuple[int, int]] | None = None


@singledispatch
def rule(disturbance: Disturbance, system: System) -> Rule | None:  # noqa: ARG001 - most kinds ask it
    """Return the Rule of a disturbance on a system, by its class; None where it changes nothing."""
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
    drawn = Draws(disturbance.seed, disturbance.jitter)

    def touches(worker: Resource) -> bool:
        return worker.kind == "IPU" and disturbance.ipu in (None, worker.name)

    def factor(worker: Resource, work: Work) -> tuple[int, int]:
        return drawn.parts(int(worker.name), work.kind, work.stage, work.execution, work.micro_batch), PARTS

    def pace(worker: Resource, work: Work, _: int) -> Pace:
        longer, whole = factor(worker, work)
        return Fraction(whole, longer), None

    return Rule(pace, None, touches=touches, passes=True, factor=factor)


@rule.register
def _dead(disturbance: Dead, system: System) -> Rule | None:  # noqa: ARG001
    """Return the rule of a dead cable: no route takes it, and no speed changes but where it dies later."""
    if not disturbance.later:
        return None
    return Rule(_full, disturbance.from_, changes=(disturbance.from_,))


def cable(system: System, link: tuple[int, int]) -> frozenset[Resource]:
    """Return the link directions of a cable, whatever they carry."""
    one, other = (system.ipus[ipu] for ipu in link)
    both = (one, other), (other, one)
    directions = (LinkDirection(*ends, of) for ends in both for of in get_args(Channel))
    return frozenset(Resource("link", direction.label) for direction in directions if not direction.is_limit)


def _host(system: System, part: HostPart) -> frozenset[Resource]:
    """Return a part of the host's work, of all replicas, with its ports."""
    if part in _OF_ALL:
        return frozenset(_OF_ALL[part])
    track = HostTrack[part.upper()]
    kinds = "host", "host port"
    return frozenset(Resource(kind, replica, track) for kind in kinds for replica in range(system.replicas))


@rule.register(Lost)
@rule.register(Pause)
@rule.register(Skip)
def _no_pace(disturbance: Lost | Pause | Skip, system: System) -> Rule | None:  # noqa: ARG001
    """Return None: pauses stand for losses, and are between executions; skips change no speed."""
    return None


@rule.register
def _moved(disturbance: Moved, system: System) -> Rule | None:  # noqa: ARG001
    """Return the rule of a move: no speed changes by itself; routes, and disturbances of the IPU, do from then on."""
    return Rule(_full, disturbance.from_, changes=(disturbance.from_,), touches=lambda worker: False)  # noqa: ARG005


@rule.register
def _watched(disturbance: Watched, system: System) -> Rule | None:
    rules = [its_rule for other in disturbance.others if (its_rule := rule(other, system)) is not None]

    def touches(worker: Resource) -> bool:
        return any(rule_of.touches(worker) for rule_of in rules)

    return Rule(_full, 0, touches=touches)


def _full(worker: Resource, work: Work, cycle: int) -> Pace:  # noqa: ARG001
    return _FULL, None


def _between(slow: frozenset[Resource], speed: Fraction, first: int, until: int | None, late: int = 0) -> Rule:
    """Return the rule of resources that have another speed from one cycle to another, and links that are late then."""

    def pace(_: Resource, work: Work, cycle: int) -> Pace:  # noqa: ARG001
        if until is not None and cycle >= until:
            return _FULL, None
        return (_FULL, first) if cycle < first else (speed, until)

    def delay(_: Resource, work: Work, cycle: int) -> int:
        return late if work.kind == SpanKind.LINK and first <= cycle and (until is None or cycle < until) else 0

    known = tuple(cycle for cycle in (first, until) if cycle)
    return Rule(pace, first if until is None else until, delay if late else None, known, slow.__contains__)


def _rules(system: System) -> list[Rule]:
    rules = [rule_of for disturbance in system.disturbances if (rule_of := rule(disturbance, system)) is not None]
    moves = moves_of(system)
    return [_of_hardware(rule_of, moves) for rule_of in rules] if moves else rules


def _of_hardware(rule: Rule, moves: Sequence[Moved]) -> Rule:
    """Return the rule of disturbances of physical IPUs, which logical ones change with their moves."""

    def on(worker: Resource, cycle: int) -> Resource:
        return Resource("IPU", moved_to(int(worker.name), moves, cycle)) if worker.kind == "IPU" else worker

    def touches(worker: Resource) -> bool:
        return any(rule.touches(on(worker, cycle)) for cycle in (0, *(move.from_ for move in moves)))

    def pace(worker: Resource, work: Work, cycle: int) -> Pace:
        worker, following = on(worker, cycle), [move.from_ for move in moves if move.from_ > cycle]
        speed, until = rule.pace(worker, work, cycle) if rule.touches(worker) else (_FULL, None)
        return speed, min([*following, *([] if until is None else [until])], default=None)

    return rule._replace(pace=pace, touches=touches, factor=None)


class Speeds:
    """How fast work goes on, and how late it begins, under all disturbances of a system."""

    def __init__(self, rules: Sequence[Rule], skips: Sequence[Skip]) -> None:
        """Take the rules of all disturbances, and the skips, which leave cycles out."""
        self._rules, self._skips = rules, skips
        self._late = any(rule_of.delay is not None for rule_of in rules)
        self._touching = cache(self._found_touching)

    def touching(self, worker: Resource, what: What | None = None) -> list[Rule]:
        """Return the rules that slow or delay a resource at any time; without any it is always at full speed.

        Args:
            worker: the resource.
            what: it works at; None for anything.
        """
        is_pass = what is None or (what.__class__ is Work and what.stage != NONE)
        return self._touching(worker, is_pass)

    def _found_touching(self, worker: Resource, is_pass: bool) -> list[Rule]:
        return [rule_of for rule_of in self._rules if (is_pass or not rule_of.passes) and rule_of.touches(worker)]

    def pace(self, worker: Resource, what: What, cycle: int) -> Pace:
        """Return the pace of a resource at some work, from a cycle on."""
        rules = self.touching(worker, what)
        if not rules:
            return _FULL, None
        work = what if isinstance(what, Work) else Work(what)
        more = self._more(cycle) if self._skips else 0
        speed, until = rules[0].pace(worker, work, cycle + more)
        for rule_of in rules[1:]:
            part, as_long = rule_of.pace(worker, work, cycle + more)
            speed *= part
            until = as_long if until is None else until if as_long is None else min(until, as_long)
        return speed, None if until is None else until - more

    def foreseen(self, worker: Resource) -> Callable[[Work, int], int] | None:
        """Return a function from work and its cycles at full speed to those it takes; None where its start matters."""
        factors = [rule_of.factor for rule_of in self.touching(worker)]
        if None in factors:
            return None

        def taken(work: Work, cycles: int) -> int:
            whole = 1
            for factor in factors:
                longer, parts = factor(worker, work)  # type: ignore[misc]
                cycles, whole = cycles * longer, whole * parts
            return -(-cycles // whole)

        return taken

    def delay(self, worker: Resource, what: What, cycle: int) -> int:
        """Return the cycles by which a resource begins some work later than it could, from a cycle on."""
        touching = self.touching(worker, what) if self._late else ()
        delays = [rule_of.delay for rule_of in touching if rule_of.delay is not None]
        if not delays:
            return 0
        work = what if isinstance(what, Work) else Work(what)
        more = self._more(cycle)
        return sum(late(worker, work, cycle + more) for late in delays)

    def _more(self, cycle: int) -> int:
        """Return how many cycles have been left out before a cycle."""
        return sum(skip.cycles for skip in self._skips if skip.at <= cycle)


def speeds_of(system: System) -> Speeds | None:
    """Return how fast work goes on under all disturbances of a system; None where everything is at full speed."""
    rules = _rules(system)
    return Speeds(rules, [skip for skip in system.disturbances if isinstance(skip, Skip)]) if rules else None


def disturbs(system: System) -> bool:
    """Whether any disturbance of a system changes anything: not one of factor 1, or of no length."""
    return bool(_rules(system) or system.topology.dead) or any(isinstance(loss, Lost) for loss in system.disturbances)


def steady_from(system: System) -> int | None:
    """Return the cycle from which on the speed of everything stays as it is; None where it never does."""
    cycles = [rule_of.steady_from for rule_of in _rules(system)]
    return None if None in cycles else max((cycle for cycle in cycles if cycle is not None), default=0)


def changes(system: System) -> tuple[int, ...]:
    """Return the cycles in which the speed of anything changes, rising; none where one of them is not known."""
    rules = _rules(system)
    if any(rule_of.steady_from is None or rule_of.steady_from != max(rule_of.changes, default=0) for rule_of in rules):
        return ()
    return tuple(sorted({cycle for rule_of in rules for cycle in rule_of.changes}))
