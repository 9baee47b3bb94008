"""Measure the cost of disturbances: slowdown against the undisturbed run, longer waits, and recovery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.analysis.idle_roots import idle_by_root
from ipusim.analysis.idle_spans import CAUSES
from ipusim.analysis.plain import as_plain
from ipusim.analysis.utilisation import ratio
from ipusim.base.looks import key_of
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import Timeline


def slowdown(cycles: int, plain_cycles: int) -> float:
    """Return the slowdown S of a run, its time over the time of a plain run; 1 for a plain run of zero cycles."""
    return ratio(cycles, plain_cycles) if plain_cycles else 1.0


@dataclass(frozen=True)
class DisturbedCable:
    """A cable that is slower, late or dead.

    Attributes:
        link: the two connected logical IPUs, ascending.
        dead: whether the cable carries nothing.
        used: whether copies cross the cable in the undisturbed run.
        detour: intermediate logical IPUs of the detour around a dead cable, starting near the first IPU of ``link``;
            empty for other cables.
    """

    link: tuple[int, int]
    dead: bool
    used: bool
    detour: tuple[int, ...] = ()


@dataclass(frozen=True)
class DisturbanceCost:
    """Cost of a run's disturbances.

    Attributes:
        cycles: length of the run.
        plain_cycles: length of the run without disturbances.
        waits: further cycles of waits, keyed by waiting IPU and awaited IPU; only values above 0. A chain of waiting
            IPUs counts for the IPU at its end. If cables are disturbed, only disturbed IPUs count as awaited: healthy
            IPUs wait for copies over these cables.
        idle: further idle cycles of all IPUs together, by root cause; only values above 0. No value exceeds the total
            of all causes, as waits for one cause may replace waits for another.
        recovery: micro-batches that the first stage begins after the last change of a disturbance, until the machine
            state is that of the undisturbed run for good; None if this never happens or disturbances never end.
        passes: whether disturbances end within the run and later states were compared. Runs of up to 50,000 spans are
            compared, unless too many tensors pile up to be recorded.
        loses: whether the run loses an IPU, and so work.
        slow_ipus: slower logical IPUs, ascending.
        cables: slower, late or dead cables.
        cable_cycles: further cycles in which IPUs wait for copies over these cables or around them, summed over IPUs.
            If only cables are disturbed, every further idle cycle of the run counts, else only idle cycles for copies.
        cables_alone: whether only cables are disturbed.
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
        """Run time over undisturbed run time."""
        return slowdown(self.cycles, self.plain_cycles)

    @property
    def cause(self) -> Idle | None:
        """Cause of most further idle cycles; None without further idle cycles."""
        return max(self.idle, key=lambda cause: self.idle[cause], default=None)

    def most_waited_for(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield every awaited IPU, longest waits first: number, further cycles of waits, and waiting IPUs."""
        totals: dict[int, int] = {}
        for (_, source), cycles in self.waits.items():
            totals[source] = totals.get(source, 0) + cycles
        for source, cycles in sorted(totals.items(), key=lambda item: (-item[1], item[0])):
            yield source, cycles, tuple(ipu for ipu, target in self.waits if target == source)

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain data for JSON."""
        return {
            "slowdown": self.slowdown,
            "cycles_without": self.plain_cycles,
            "waits": [
                {"ipu": ipu, "for_ipu": source, "cycles": further} for (ipu, source), further in self.waits.items()
            ],
            "idle_cycles": {key_of(cause.words): further for cause, further in self.idle.items()},
            "slow_ipus": list(self.slow_ipus),
            "cables": [as_plain(cable) for cable in self.cables],
            "cable_cycles": self.cable_cycles,
            "passes": self.passes,
            "recovery_micro_batches": self.recovery,
        }


@dataclass(frozen=True)
class MoreIdle:
    """Further idle cycles of a run against the undisturbed run.

    Attributes:
        cycles: further idle cycles, summed over IPUs; negative if the run has fewer.
        waits: further cycles of waits, keyed by waiting IPU and awaited IPU; only values above 0.
        by_cause: further idle cycles by cause, summed over IPUs; only values above 0, and at most ``cycles``.
    """

    cycles: int
    waits: Mapping[tuple[int, int], int]
    by_cause: Mapping[Idle, int]


def more_idle(timeline: Timeline, plain: Timeline) -> MoreIdle:
    """Compare the idle cycles of a run with the undisturbed run.

    Args:
        timeline: Timeline of the run.
        plain: Timeline of the undisturbed run.

    Returns:
        Further idle cycles in total, by awaited IPU, and by cause.
    """
    further = idle_by_root(timeline) - idle_by_root(plain)
    by_ipu, by_cause = further.sum(axis=2), np.minimum(further.sum(axis=(0, 1)), further.sum())
    np.fill_diagonal(by_ipu, 0)
    waits = {(int(ipu), int(source)): int(by_ipu[ipu, source]) for ipu, source in np.argwhere(by_ipu > 0).tolist()}
    causes = {cause: int(by_cause[number]) for number, cause in enumerate(CAUSES) if by_cause[number] > 0}
    return MoreIdle(int(further.sum()), waits, causes)
