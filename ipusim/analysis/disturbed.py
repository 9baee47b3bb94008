"""The cost of disturbances: slowdown against the undisturbed run, longer waits by IPU and cause, and recovery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.analysis.causes import CAUSES, idle_by_root
from ipusim.analysis.plain import as_plain
from ipusim.analysis.utilisation import ratio
from ipusim.base.looks import key_of
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class DisturbedCable:
    """A cable that is slower or dead, or on which signals take longer.

    Attributes:
        link: the two logical IPUs that it joins, in ascending order.
        dead: whether it carries nothing.
        used: whether copies cross the cable in the run without disturbances.
        detour: logical IPUs between its ends on the detour round a dead cable, from the first of ``link`` on; empty
            for other cables.
    """

    link: tuple[int, int]
    dead: bool
    used: bool
    detour: tuple[int, ...] = ()


@dataclass(frozen=True)
class DisturbanceCost:
    """The cost of a run's disturbances.

    Attributes:
        cycles, plain_cycles: of the run, and of the same without disturbances.
        waits: cycles that an IPU waits more for another than in that, by the numbers of both; those above 0. Where one
            waits for another that waits meanwhile, that is for the one that this waits for in the end. Where a cable
            is disturbed, of IPUs that are disturbed themselves alone: healthy ones wait for the cable's copies.
        idle: cycles that all IPUs together are idle more than in that, by what they are idle for in the end: none of
            them more than all causes together, as waits for one may come in place of waits for another.
        recovery: how many micro-batches the first stage begins behind the last change of a disturbance until the state
            of the machine is that of the run without them, in which it then stays; None where it does not come back to
            that, or disturbances never end.
        passes: whether disturbances end for good within the run, and its states behind that were looked at: those of
            runs of up to 50,000 spans are, unless so many tensors pile up that they are not all noted.
        loses: whether an IPU is lost within the run, so that work is.
        slow_ipus: logical IPUs that are slower, ascending.
        cables: the cables that are slower, late or dead.
        cable_cycles: further cycles in which IPUs, all together, wait for copies over these cables or round them. If
            cables alone are disturbed, these are all further idle cycles of the run, else those for copies.
        cables_alone: whether nothing but cables is disturbed.
    """

    cycles: int
    plain_cycles: int
    waits: Mapping[tuple[int, int], int]
    idle: Mapping[Idle, int]
    recovery: int | None
    passes: bool
    loses: bool = False
    slow_ipus: tuple[int, ...] = ()
    cables: tuple[DisturbedCable, ...] = ()
    cable_cycles: int = 0
    cables_alone: bool = False

    @property
    def slowdown(self) -> float:
        """The slowdown S against the run without disturbances; 1 of runs that take no time."""
        return ratio(self.cycles, self.plain_cycles) if self.plain_cycles else 1.0

    @property
    def cause(self) -> Idle | None:
        """The cause of most idle cycles that the undisturbed run does not have; None where there is none."""
        return max(self.idle, key=lambda cause: self.idle[cause], default=None)

    def most_waited_for(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield each IPU that others wait for longer, for how many cycles in all, and these; the longest first."""
        totals: dict[int, int] = {}
        for (_, source), cycles in self.waits.items():
            totals[source] = totals.get(source, 0) + cycles
        for source, cycles in sorted(totals.items(), key=lambda item: (-item[1], item[0])):
            yield source, cycles, tuple(ipu for ipu, other in self.waits if other == source)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {
            "slowdown": self.slowdown,
            "cycles_without": self.plain_cycles,
            "waits": [{"ipu": ipu, "for_ipu": source, "cycles": more} for (ipu, source), more in self.waits.items()],
            "idle_cycles": {key_of(cause.words): more for cause, more in self.idle.items()},
            "slow_ipus": list(self.slow_ipus),
            "cables": [as_plain(cable) for cable in self.cables],
            "cable_cycles": self.cable_cycles,
            "passes": self.passes,
            "recovery_micro_batches": self.recovery,
        }


@dataclass(frozen=True)
class MoreIdle:
    """The idle cycles that a run has more than the one without disturbances.

    Attributes:
        cycles: further idle cycles of all IPUs together; below 0 for fewer.
        waits: further cycles in which an IPU waits for another, by the numbers of both, where above 0.
        by_cause: further idle cycles of all IPUs by cause, where above 0, and ``cycles`` at most.
    """

    cycles: int
    waits: Mapping[tuple[int, int], int]
    by_cause: Mapping[Idle, int]


def more_idle(timeline: Timeline, plain: Timeline) -> MoreIdle:
    """Return the idle cycles by cause that a run has more than the one without disturbances.

    Args:
        timeline: of the run.
        plain: of the one without.

    Returns:
        The cycles in all, by the IPU that is waited for, and by cause.
    """
    more = idle_by_root(timeline) - idle_by_root(plain)
    by_ipu, by_cause = more.sum(axis=2), np.minimum(more.sum(axis=(0, 1)), more.sum())
    np.fill_diagonal(by_ipu, 0)
    waits = {(int(ipu), int(source)): int(by_ipu[ipu, source]) for ipu, source in np.argwhere(by_ipu > 0).tolist()}
    causes = {cause: int(by_cause[number]) for number, cause in enumerate(CAUSES) if by_cause[number] > 0}
    return MoreIdle(int(more.sum()), waits, causes)
