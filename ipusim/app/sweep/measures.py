"""The measures that a sweep can be judged and drawn by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipusim.api import analysis
from ipusim.app.render.axes import second_unit
from ipusim.app.sweep.outcome import Outcome
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_figure


@dataclass(frozen=True)
class Measure:
    """A figure of the table that is a number of each outcome.

    Attributes:
        name: as ``--measure`` takes it, beside the figure's own.
        figure: what it measures.
        column: of the table, and the attribute of an Outcome.
        words: with its unit, on a chart; of a time without it.
        head: of its column in a terminal.
        scale: of the chart's unit; 0 for a time, whose unit the largest value sets.
        text: the number for people, without what its column says.
    """

    name: str
    figure: analysis.Figure
    column: str
    words: str
    head: str
    scale: float
    text: Callable[[float], str]

    def of(self, outcome: Outcome) -> float | None:
        """Return the number of an outcome; None where it has none."""
        value: float | None = getattr(outcome, self.column)
        return value

    def on_chart(self, most: float) -> tuple[float, str]:
        """Return the scale and the words, with the unit, of a chart whose largest value is ``most``."""
        if self.scale:
            return self.scale, self.words
        seconds, symbol = second_unit(most)
        return 1 / seconds, f"{self.words}, {symbol}"


def _measure(
    name: str, of: str, column: str, words: str, head: str, scale: float, text: Callable[[float], str] | None = None
) -> Measure:
    return Measure(name, analysis.figure(of), column, words, head, scale, text or analysis.figure(of).text)


MEASURES: Final = (
    _measure("throughput", "throughput", "samples_per_s", "throughput, samples/s", "samples/s", 1.0, format_figure),
    _measure("time", "time_per_weight_update", "weight_update_period_s", "time per weight update", "per update", 0.0),
    _measure("makespan", "makespan", "makespan_s", "makespan", "makespan", 0.0),
    _measure("bubble", "bubble", "bubble", "bubble, % of the IPUs' time", "bubble", 100.0),
    _measure("utilisation", "utilisation", "utilisation", "utilisation, %", "utilisation", 100.0),
    _measure("memory", "peak", "peak_bytes", "fullest IPU, MiB", "peak", 2.0**-20),
    _measure("loss", "mean_loss", "loss", "mean loss of the last step", "loss", 1.0),
    _measure("accuracy", "accuracy", "accuracy", "accuracy on held-out samples, %", "accuracy", 100.0),
)
THROUGHPUT: Final = MEASURES[0]
BUBBLE: Final = next(measure for measure in MEASURES if measure.name == "bubble")
MEMORY: Final = next(measure for measure in MEASURES if measure.name == "memory")


def measure_of(name: str, *, losses: bool = False) -> Measure:
    """Return the measure of that name or that figure.

    Raises OptionError for another, and for what takes arithmetic without it.
    """
    names = {name: measure for measure in MEASURES for name in (measure.figure.name, measure.name)}
    if name not in names:
        known = ", ".join(
            measure.name + (f" ({measure.figure.name})" if measure.figure.name != measure.name else "")
            for measure in MEASURES
        )
        raise OptionError("measure", f"expected one of {known}, got {name!r}{did_you_mean(name, names)}")
    chosen = names[name]
    if chosen.name in ("loss", "accuracy") and not losses:
        raise OptionError("measure", f"expected {{}} with {name}, which takes the arithmetic, got it alone", "losses")
    return chosen
