"""Define disturbances of a System, such as a slower IPU: deviations from the rates.

Scenarios list disturbances; :mod:`ipusim.machine.disturbances` defines their effect on time.

A class with a ``kind`` is an item of a scenario's ``disturbances``. Annotated fields of the dataclass are the item's
keys; a key that is a Python keyword ends in an underscore. An item's kind follows from its keys: an item of kind
``stall`` has a key ``stall``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal, Protocol

from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.units import Unit, enumerated, format_numbers
from ipusim.hardware.placed import Placement

#: Tasks of a run's host: feeds, embedding tables, variables and host calls, with ports; the network between hosts
#: (``network``); the program between two session runs (``program``).
HostPart = Literal["infeed", "outfeed", "tables", "variables", "outside", "network", "program"]
#: Logical IPU of the device, numbered over replicas.
Ipu = Annotated[int, Ge(0), Le(1023)]
#: Problems of a disturbance: pairs of key and text.
Problems = Iterator[tuple[str, str]]
#: Number of an IPU's cables listed in a message.
_MOST_LISTED_CABLES: Final = 8

_Cycles = Annotated[int, Unit("cycles")]
_Begin = Annotated[_Cycles, Doc("start of the disturbance: cycles of the tile clock, or a time")]
_End = Annotated[_Cycles | None, Doc("end of the disturbance; default: never")]
_Ipu = Annotated[Ipu | None, Doc("logical IPU of the device; the IPUs of all replicas are numbered in a row")]
_Link = tuple[Ipu, Ipu]
_Cable = Doc("the two logical IPUs that a cable joins; both directions are meant")


class Disturbance(Protocol):
    """A frozen disturbance; ``rule`` in ``machine/disturbances.py`` defines the class's effect on time."""

    kind: ClassVar[str]

    def problems(self, system: Placement) -> Problems:
        """Yield the problems of the disturbance on a system, by key."""
        ...


@dataclass(frozen=True)
class Slower:
    """An IPU, a cable, a host part or a Streaming Memory works more slowly, including work already begun."""

    kind: ClassVar[str] = "slower"

    slower: Annotated[Fraction, Unit("times"), Doc("factor on the duration of the work")]
    ipu: _Ipu = None
    link: Annotated[_Link | None, _Cable] = None
    host: Annotated[HostPart | None, Doc("part of the host's work, for all replicas")] = None
    streaming_memory: Annotated[
        int | None, Ge(0), Le(255), Doc("number of the IPU-Machine with the Streaming Memory; each has four IPUs")
    ] = None
    delay: Annotated[
        _Cycles, Doc("additional latency of signals over the cable: cycles of the tile clock, or a time")
    ] = 0
    from_: _Begin = 0
    until: _End = None

    def problems(self, system: Placement) -> Problems:
        """Yield problems of the resource and of the times."""
        resources = [name for name in ("ipu", "link", "host", "streaming_memory") if getattr(self, name) is not None]
        if len(resources) != 1:
            count_text = " and ".join(resources) or "none of them"
            yield "slower", f"expected one slower part: ipu, link, host or streaming_memory, got {count_text}"
        if self.delay and self.link is None:
            yield "delay", "expected a delay only with a link, got a delay without a link"
        yield from _ipu_problems(system, self.ipu)
        yield from _link_problems(system, self.link)
        memories = sorted({system.streaming_memory_of(ipu) for ipu in range(system.count)})
        if self.streaming_memory is not None and self.streaming_memory not in memories:
            text = f"expected a machine of the device, out of {', '.join(map(str, memories))}"
            yield "streaming_memory", f"{text}, got {self.streaming_memory}"
        yield from _period_problems(self.from_, self.until)


@dataclass(frozen=True)
class Delayed:
    """A cable with additional latency for every signal."""

    kind: ClassVar[str] = "delay"

    link: Annotated[_Link, _Cable]
    delay: Annotated[_Cycles, Doc("additional latency of a signal: cycles of the tile clock, or a time")]
    from_: _Begin = 0
    until: _End = None

    def problems(self, system: Placement) -> Problems:
        """Yield problems: two IPUs without a common cable, an end before the begin."""
        yield from _link_problems(system, self.link)
        yield from _period_problems(self.from_, self.until)


@dataclass(frozen=True)
class Jitter:
    """Pass durations vary at random around the mean 1, with factors from a lognormal distribution.

    The draw depends on seed, IPU, kind of pass, stage, micro-batch and execution, and is equal in every schedule.
    """

    kind: ClassVar[str] = "jitter"

    jitter: Annotated[
        Fraction, Unit("share"), Doc("standard deviation of the duration of a pass, as a share of the duration")
    ]
    ipu: Annotated[Ipu | None, Doc("logical IPU with varying passes; default: all IPUs")] = None
    seed: Annotated[int, Ge(0), Le(2**32 - 1), Doc("seed of the random draws")] = 0

    def problems(self, system: Placement) -> Problems:
        """Yield a problem per IPU absent from the device."""
        yield from _ipu_problems(system, self.ipu)


@dataclass(frozen=True)
class Stall:
    """A host part pauses for a while, then continues."""

    kind: ClassVar[str] = "stall"

    host: Annotated[HostPart, Doc("part of the host's work, for all replicas")]
    stall: Annotated[_Cycles, Doc("duration of the stall: cycles of the tile clock, or a time")]
    at: Annotated[_Cycles, Doc("start of the stall: cycles of the tile clock, or a time")]

    def problems(self, system: Placement) -> Problems:  # noqa: ARG002 - every system has a host
        """Yield nothing: every system has a host."""
        yield from ()


@dataclass(frozen=True)
class Dead:
    """A cable without traffic: routes go another way."""

    kind: ClassVar[str] = "dead"

    link: Annotated[_Link, _Cable]
    dead: Annotated[bool, Doc("whether the cable is dead")]
    from_: Annotated[_Cycles, Doc("time at which the cable dies; copies in transit are then sent again")] = 0

    @property
    def later(self) -> bool:
        """Whether the cable dies in the middle of a run."""
        return self.dead and self.from_ > 0

    def problems(self, system: Placement) -> Problems:
        """Yield problems: no common cable, or a later death in a system with collectives."""
        yield from _link_problems(system, self.link)
        if self.later and (system.replicas > 1 or system.hosts > 1):
            text = "expected a cable that is dead from the beginning, because collectives of replicas keep their routes"
            yield "from", f"{text}, got one that dies in cycle {int(self.from_)}"


@dataclass(frozen=True)
class Lost:
    """An IPU fails for good: work since the last checkpoint is lost, and repeated after a restart."""

    kind: ClassVar[str] = "lost"

    lost: Annotated[_Cycles, Doc("time of the failure: cycles of the tile clock, or a time")]
    ipu: Annotated[Ipu, Doc("logical IPU that fails")]
    detect: Annotated[_Cycles, Doc("time from the failure to its detection")] = 0
    restart: Annotated[_Cycles, Doc("time from the detection until the program runs again")] = 0
    checkpoint: Annotated[_Cycles, Doc("time of writing a checkpoint; all IPUs wait meanwhile")] = 0
    checkpoint_every: Annotated[int, Ge(1), Le(10**6), Doc("weight updates from one checkpoint to the next")] = 1
    spare: Annotated[
        bool,
        Doc(
            "whether an IPU without a stage replaces the lost IPU, only with one replica; copies then use the links of "
            "the spare IPU"
        ),
    ] = False

    def problems(self, system: Placement) -> Problems:
        """Yield a problem per IPU absent from the device."""
        yield from _ipu_problems(system, self.ipu)


def problems_of(disturbances: Sequence[Disturbance], system: Placement) -> Iterator[tuple[int, str, str]]:
    """Yield the problems of disturbances on an undisturbed system: the disturbance's number, the key, and the text.

    If dead cables together cut an IPU off, the problem names the last of the cables.
    """
    dead: frozenset[tuple[int, int]] = frozenset()
    checkpoint = next(
        ((loss.checkpoint, loss.checkpoint_every) for loss in disturbances if isinstance(loss, Lost)), None
    )
    for number, disturbance in enumerate(disturbances):
        problems = list(disturbance.problems(system))
        yield from ((number, *problem) for problem in problems)
        if isinstance(disturbance, Lost) and (disturbance.checkpoint, disturbance.checkpoint_every) != checkpoint:
            yield number, "checkpoint_every", "expected the checkpoint and checkpoint_every of the first lost IPU"
        if isinstance(disturbance, Dead) and not problems:
            dead |= {system.cable(disturbance.link)} if disturbance.dead else set()
            if lost_ipus := system.topology.drop(dead).unreachable_ipus:
                ipus = ", ".join(str(system.ipus.index(ipu)) for ipu in lost_ipus)
                text = f"expected cables that still join all IPUs, got one without which IPU {ipus} is cut off"
                yield number, "link", text
                return


def dead_cables(disturbances: Sequence[Disturbance], system: Placement) -> frozenset[tuple[int, int]]:
    """Return the cables that are dead from the start of the run, as ascending pairs of physical IPU numbers."""
    return frozenset(
        system.cable(cable.link) for cable in disturbances if isinstance(cable, Dead) and cable.dead and not cable.later
    )


def _ipu_problems(system: Placement, ipu: int | None) -> Problems:
    if ipu is not None and ipu >= system.count:
        yield "ipu", f"expected an IPU {format_numbers(system.count)} of {system.name}, got {ipu}"


def _link_problems(system: Placement, link: tuple[int, int] | None) -> Problems:
    """Yield a problem if no cable joins two IPUs, listing the cables that end there."""
    if link is None:
        return
    outside = [ipu for ipu in link if ipu >= system.count]
    if outside:
        yield "link", f"expected two IPUs {format_numbers(system.count)} of {system.name}, got {outside[0]}"
        return
    first, second = link
    if second not in system.cables[first]:
        ends = dict.fromkeys(link)
        cables = "; ".join(f"those of IPU {ipu} go to {_list_ipus(system.cables[ipu])}" for ipu in ends)
        yield "link", f"expected two IPUs that a cable joins, got {first} and {second}: {cables}"


def _list_ipus(ipus: Sequence[int]) -> str:
    return enumerated(
        [*ipus[:_MOST_LISTED_CABLES], *(["others"] if len(ipus) > _MOST_LISTED_CABLES else [])] or ["none"]
    )


def _period_problems(first: int, end: int | None) -> Problems:
    if end is not None and end < first:
        yield "until", f"expected an end no earlier than its begin in cycle {int(first)}, got cycle {int(end)}"
