"""What disturbances cost a run: against the same run without them, by who waits for whom, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.analysis.causes import Column, waits_by_ipu
from ipusim.analysis.utilisation import ratio
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class DisturbanceCost:
    """What disturbances cost a run.

    Attributes:
        cycles, plain_cycles: of the run, and of the same without disturbances.
        waits: cycles that an IPU waits more for another than in that, by the numbers of both; those above 0.
        recovery: how many micro-batches the first stage begins behind the last change of a disturbance until the state
            of the machine is that of the run without them, in which it then stays; None where it does not come back to
            that, or disturbances never end.
        passes: whether disturbances end for good within the run, and its states behind that were looked at: those of
            runs of up to 50,000 spans are.
    """

    cycles: int
    plain_cycles: int
    waits: Mapping[tuple[int, int], int]
    recovery: int | None
    passes: bool

    @property
    def slowdown(self) -> float:
        """The slowdown S against the run without disturbances; 1 of runs that take no time."""
        return ratio(self.cycles, self.plain_cycles) if self.plain_cycles else 1.0

    def most_waited_for(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield each IPU that others wait for longer, for how many cycles in all, and these; the longest first."""
        totals: dict[int, int] = {}
        for (_, source), cycles in self.waits.items():
            totals[source] = totals.get(source, 0) + cycles
        for source, cycles in sorted(totals.items(), key=lambda found: (-found[1], found[0])):
            yield source, cycles, tuple(ipu for ipu, other in self.waits if other == source)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {
            "slowdown": self.slowdown,
            "cycles_without": self.plain_cycles,
            "waits": [{"ipu": ipu, "for_ipu": source, "cycles": more} for (ipu, source), more in self.waits.items()],
            "passes": self.passes,
            "recovery_micro_batches": self.recovery,
        }


def more_waits(timeline: Timeline, plain: Timeline) -> dict[tuple[int, int], int]:
    """Return the cycles that an IPU waits longer for another in a run than in the one without disturbances."""
    more: Column = waits_by_ipu(timeline) - waits_by_ipu(plain)
    return {(int(ipu), int(source)): int(more[ipu, source]) for ipu, source in np.argwhere(more > 0).tolist()}
