"""What a sweep can be judged and drawn by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipusim.errors import OptionError
from ipusim.near_names import did_you_mean
from ipusim.study.sweep.outcome import Outcome
from ipusim.units import format_bytes, format_figure, format_seconds


@dataclass(frozen=True)
class Measure:
    """One number of an outcome.

    Attributes:
        name: as ``--measure`` takes it.
        column: of the table, and the attribute of an Outcome.
        words: with its unit, on a chart.
        told: the number for people.
        head: of its column in a terminal.
        scale: of the chart's unit.
        least: whether less is better.
    """

    name: str
    column: str
    words: str
    told: Callable[[float], str]
    head: str
    scale: float = 1.0
    least: bool = False

    def of(self, outcome: Outcome) -> float | None:
        """Return the number of an outcome; None where it has none."""
        found: float | None = getattr(outcome, self.column)
        return found


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _bytes(size: float) -> str:
    return format_bytes(int(size))


MEASURES: Final = (
    Measure("throughput", "samples_per_s", "throughput, samples/s", format_figure, "samples/s"),
    Measure("time", "weight_update_period_s", "time per weight update, ms", format_seconds, "per update", 1e3, True),
    Measure("makespan", "makespan_s", "makespan, ms", format_seconds, "makespan", 1e3, True),
    Measure("bubble", "bubble", "bubble, % of the IPUs' time", _percent, "bubble", 100.0, True),
    Measure("utilisation", "utilisation", "utilisation, %", _percent, "utilisation", 100.0),
    Measure("memory", "peak_bytes", "fullest IPU, MiB", _bytes, "peak", 2.0**-20, True),
    Measure("loss", "loss", "mean loss of the last step", "{:.4g}".format, "loss", 1.0, True),
    Measure("accuracy", "accuracy", "accuracy on held-out samples, %", _percent, "accuracy", 100.0),
)
THROUGHPUT: Final = MEASURES[0]
BUBBLE: Final = next(each for each in MEASURES if each.name == "bubble")


def measure_of(name: str, *, losses: bool = False) -> Measure:
    """Return the measure of that name; raises OptionError for another, and for what takes arithmetic without it."""
    names = [each.name for each in MEASURES]
    if name not in names:
        near = did_you_mean(name, names)
        raise OptionError("measure", f"expected one of {', '.join(names)}, got {name!r}{near}")
    if name in ("loss", "accuracy") and not losses:
        raise OptionError("measure", f"expected {{}} with {name}, which takes the arithmetic, got it alone", "losses")
    return next(each for each in MEASURES if each.name == name)
