"""Define the waterfall of a run: parts of the run's time, such as copies, which add up to its length.

Parts are measured by simulations with and without each part. They are added to an empty run in the order of
:class:`TimePart`, and each counts the cycles by which the run grows. :mod:`ipusim.runs.waterfall` simulates runs
without some parts. Waits that remain with balanced stages are divided into two parts: gaps in main
(:func:`~ipusim.analysis.gaps.gaps_in_main`), and the remaining fill and drain.
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
    """Parts of the time of a run.

    Attributes:
        cycles: cycles of every part, in order; they add up to the run. A part is negative if the run is shorter with
            the part, see :meth:`remarks`.
        executions: number of pipeline executions in the run.
    """

    cycles: Mapping[TimePart, int]
    executions: int

    @property
    def run_cycles(self) -> int:
        """Cycles of the run."""
        return sum(self.cycles.values())

    def of_one(self) -> Waterfall:
        """Return the parts of a mean execution, rounded up."""
        number = max(self.executions, 1)
        return Waterfall({part: -(-cycles // number) for part, cycles in self.cycles.items()}, 1)

    def share(self, part: TimePart) -> float:
        """Return a part's fraction of the run; 0 if the run takes no time."""
        return ratio(self.cycles[part], self.run_cycles)

    def largest(self) -> Iterator[tuple[TimePart, float]]:
        """Yield nonzero parts with their shares, largest first, without useful compute."""
        parts = [(part, cycles) for part, cycles in self.cycles.items() if cycles and part is not TimePart.USEFUL]
        for part, _ in sorted(parts, key=lambda item: -item[1]):
            yield part, self.share(part)

    def remarks(self) -> Iterator[str]:
        """Yield a sentence for every negative part."""
        for part, cycles in self.cycles.items():
            if cycles < 0:
                rounding = " or as equal parts of all passes are rounded up to whole cycles"
                yield (
                    f"{part.words.capitalize()} below zero: with this part the run is "
                    f"{counted(-cycles, 'cycle')} shorter than without, because IPUs then wait for each other at other "
                    f"times{rounding if part is TimePart.IMBALANCE else ''}."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return cycles and shares by key of the part, as plain data for JSON."""
        return {
            "run_cycles": self.run_cycles,
            "executions": self.executions,
            "cycles": {part.key: cycles for part, cycles in self.cycles.items()},
            "shares": {part.key: self.share(part) for part in self.cycles},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Waterfall:
        """Read the output of :meth:`to_dict`; raises KeyError, TypeError or ValueError for other data."""
        cycles = {part: _whole(data["cycles"][part.key]) for part in TimePart}
        return cls(cycles, _whole(data["executions"]))


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r}")
    return value
