"""The waterfall of a run: the parts of its time, each measured by simulating the run without it.

From nothing on, one part after the other comes in, in the order of :class:`TimePart`, and the cycles that the run then
takes more are the part's. So they add up to the run, to the cycle; runs without some of the parts are simulated by
:mod:`ipusim.runs.waterfall`. The waits that are left with balanced stages are two parts, gaps in main as
:func:`~ipusim.analysis.gaps.gaps_in_main` has them, and fill and drain as the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipusim.analysis.utilisation import ratio
from ipusim.base.units import counted
from ipusim.timeline.time_parts import TimePart


@dataclass(frozen=True)
class Waterfall:
    """The parts of the time of a run.

    Attributes:
        cycles: of each part, in their order; they add up to the run. Of one that is negative the run takes less with
            it: :meth:`remarks` says so.
        executions: of the pipeline in the run.
    """

    cycles: Mapping[TimePart, int]
    executions: int

    @property
    def run_cycles(self) -> int:
        """Cycles of the run."""
        return sum(self.cycles.values())

    def of_one(self) -> Waterfall:
        """Return the parts of one execution, on average, rounded up."""
        number = max(self.executions, 1)
        return Waterfall({part: -(-cycles // number) for part, cycles in self.cycles.items()}, 1)

    def share(self, part: TimePart) -> float:
        """Return the part of the run's time that it takes; 0 of a run that takes no time."""
        return ratio(self.cycles[part], self.run_cycles)

    def largest(self) -> Iterator[tuple[TimePart, float]]:
        """Yield the parts but useful compute that take any time, with their shares, the largest first."""
        rest = [(part, cycles) for part, cycles in self.cycles.items() if cycles and part is not TimePart.USEFUL]
        for part, _ in sorted(rest, key=lambda item: -item[1]):
            yield part, self.share(part)

    def remarks(self) -> Iterator[str]:
        """Yield a sentence for each part that is negative."""
        for part, cycles in self.cycles.items():
            if cycles < 0:
                rounded = " or as equal parts of all passes are rounded up to whole cycles"
                yield (
                    f"{part.words.capitalize()} {counted(-cycles, 'cycle')} below zero: the run takes less with it "
                    "than without it, as IPUs then wait for each other at other times"
                    f"{rounded if part is TimePart.IMBALANCE else ''}."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return cycles and shares of the parts as plain data for JSON, by the keys of the parts."""
        return {
            "run_cycles": self.run_cycles,
            "executions": self.executions,
            "cycles": {part.key: cycles for part, cycles in self.cycles.items()},
            "shares": {part.key: self.share(part) for part in self.cycles},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Waterfall:
        """Return what :meth:`to_dict` gave; raises KeyError, TypeError or ValueError for anything else."""
        cycles = {part: _whole(data["cycles"][part.key]) for part in TimePart}
        return cls(cycles, _whole(data["executions"]))


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r}")
    return value
