"""List the figures of a run (named results, such as the throughput): unit, meaning, path in ``summary.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from textwrap import shorten
from typing import Any, Final

from ipusim.base.units import enumerated, format_bytes, format_figure, format_seconds, format_throughput

#: Version of the keys of ``summary.json``; grows when a key is removed or changes its meaning.
SCHEMA_VERSION: Final = 4
#: Differences of versions 2 and 3 from version 4; in messages, ``summary.json`` is the subject of the verbs.
_VERSION_DIFFERENCES: Final = (
    "says only true or false about whether a program fits, takes the speed-up from the bare arithmetic on one IPU, and "
    "counts gaps in main as fill and drain; its parts of the time are therefore left out"
)
#: Differences of every older ``summary.json``, by version; in messages, ``summary.json`` is the subject of the verbs.
OLDER_VERSIONS: Final[Mapping[int, str]] = {
    1: "has no parts of the time, and calls holders of memory and options by their words",
    2: f"calls holders of memory and options by their words, numbers no time-steps with -1, {_VERSION_DIFFERENCES}",
    3: _VERSION_DIFFERENCES,
}
#: Terminal width in characters.
_TERMINAL: Final = 80
#: Placeholder in a path for the item chosen by the suffix of a figure's name.
_ITEM: Final = "{}"
#: Suffixes that select from a list, as functions. A None in a list stands for an infinite or NaN item, and makes
#: ``most`` and ``least`` None.
ITEMS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "first": lambda items: items[0],
    "last": lambda items: items[-1],
    "most": lambda items: None if None in items else max(items),
    "least": lambda items: None if None in items else min(items),
}


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


@dataclass(frozen=True)
class FigureUnit:
    """Unit of figures.

    Attributes:
        example: example of an expectation, for messages.
        text: function that formats a value.
        least: least possible value.
        most: largest possible value.
        chart_scale: factor from a value to its number on charts; charts of seconds choose a unit.
    """

    example: str
    text: Callable[[Any], str] = _number
    least: float = 0.0
    most: float = inf
    chart_scale: float = 1.0


#: Units of figures by name.
FIGURE_UNITS: Final[Mapping[str, FigureUnit]] = {
    "count": FigureUnit("36 or at most 36"),
    "number": FigureUnit("at most 0.01", least=-inf),
    "any": FigureUnit("at most 36, or a name", least=-inf),
    "name": FigureUnit("stage0"),
    "fits": FigureUnit("fits"),
    "seconds": FigureUnit("at most 540 us", format_seconds),
    "bytes": FigureUnit("at most 600 MiB", lambda size: format_bytes(int(size)), chart_scale=2.0**-20),
    "share": FigureUnit("at most 20 %", lambda share: f"{share:.1%}", most=1.0, chart_scale=100.0),
    "samples per second": FigureUnit("at least 0.9 M samples/s", format_throughput),
}


@dataclass(frozen=True)
class Figure:
    """One figure of a run.

    Attributes:
        name: name in snake_case, or path of a figure outside the table.
        unit: key of :data:`FIGURE_UNITS`.
        meaning: description in words.
        path: dotted keys in ``summary.json``; ``{}`` represents an item of a list.
        item: default selection from that list, a key of :data:`ITEMS`.
        less_is_better: whether smaller values are better.
        names: list in ``summary.json`` that translates the figure's numbers to names; empty for other figures.
        measure: name for ranking and drawing points of sweeps; empty for figures outside sweeps.
        column: column in files of sweeps.
        head: heading of the terminal column, with the unit of rates.
        in_tables: whether tables of several runs have the column, where a run has a value.
        chart: name on charts, with the unit; charts of times choose their unit.
    """

    name: str
    unit: str
    meaning: str
    path: str
    item: str = ""
    less_is_better: bool = False
    names: str = ""
    measure: str = ""
    column: str = ""
    head: str = ""
    in_tables: bool = False
    chart: str = ""

    def value_in(self, summary: Mapping[str, Any], item: str = "") -> Any:
        """Return the figure's value from data of ``summary.json``; raises LookupError for a missing value.

        None means NaN for a figure with unit ``number``, such as a loss that is not finite. Several names give a list.
        """
        *lists, last = self.path.split(_ITEM)
        value: Any = _value_at(summary, lists[0] if lists else last)
        if lists:
            value = _item(value, item or self.item, last.strip("."))
        if value is None and self.unit == "number":
            return nan
        if value is None or (value == 0 and self.unit == "samples per second"):  # a run without time has no throughput
            raise LookupError(self.name)
        if self.names:
            item_names = [summary[self.names][number] for number in value]
            return item_names if len(item_names) > 1 else item_names[0]
        return value

    def text(self, value: Any) -> str:
        """Format a value with its unit."""
        if self.names and isinstance(value, list):
            return f"{enumerated(value)} tie"
        if isinstance(value, str | bool | list | dict):
            return str(value)
        return FIGURE_UNITS[self.unit].text(value)

    def cell(self, value: Any) -> str:
        """Format a value for a column; the heading has the unit of rates, and None becomes ``-``."""
        if value is None:
            return "-"
        return format_figure(value) if self.unit == "samples per second" else self.text(value)


def _value_at(data: Any, path: str) -> Any:
    """Return the value at dotted keys; raises LookupError for a missing key."""
    value = data
    for key in filter(None, path.split(".")):
        value = _item(value, key) if isinstance(value, list) else _key(value, key)
    return value


def _key(data: Any, key: str) -> Any:
    if not isinstance(data, Mapping) or key not in data:
        raise LookupError(key)
    return data[key]


def _item(items: Any, choice: str, path: str = "") -> Any:
    """Return the value at path ``path`` of a list item; ``choice`` is a suffix, a number, or an IPU number."""
    if not isinstance(items, list) or not items:
        raise LookupError(choice)
    if choice in ITEMS:
        return ITEMS[choice]([_value_at(item, path) for item in items])
    if not choice.isdecimal():
        raise LookupError(choice)
    by_ipu = {item["ipu"]: item for item in items if isinstance(item, Mapping) and "ipu" in item}
    members = by_ipu or dict(enumerate(items))
    return _value_at(members[int(choice)], path)


#: A figure whose smaller values are better.
_cost: Final = partial(Figure, less_is_better=True)
FIGURES: Final = (
    _cost(
        "time_per_weight_update",
        "seconds",
        "mean time from one weight update to the next; in inference, from one execution to the next",
        "throughput.weight_update_period_s",
        measure="time",
        column="weight_update_period_s",
        head="per update",
        in_tables=True,
        chart="time per weight update",
    ),
    Figure(
        "throughput",
        "samples per second",
        "mean rate of the whole run",
        "throughput.samples_per_s",
        measure="throughput",
        column="samples_per_s",
        head="samples per s",
        in_tables=True,
        chart="throughput, samples/s",
    ),
    _cost(
        "makespan",
        "seconds",
        "the first execution of the pipeline without its weight update",
        "makespan_s",
        measure="makespan",
        column="makespan_s",
        head="makespan",
        chart="makespan",
    ),
    _cost(
        "bubble",
        "share",
        "idle / (IPUs x makespan): time without arithmetic, as a share of the time of all IPUs with a stage, in the "
        "pipeline of the first execution",
        "bubble.idle_fraction",
        measure="bubble",
        column="bubble",
        head="bubble",
        in_tables=True,
        chart="bubble, % of the IPUs' time",
    ),
    _cost(
        "bubble_overhead",
        "number",
        "(makespan - ideal) / ideal, where ideal is the arithmetic of the busiest IPU",
        "bubble.overhead",
    ),
    _cost(
        "bubble_of_longest_rank",
        "share",
        "(cost - ideal) / cost, where cost is the longest time from an IPU's first pass to its last",
        "bubble.rank_cost_rate",
    ),
    _cost(
        "bubble_within_spans",
        "share",
        "idle share of the time between first and last pass, over all IPUs",
        "bubble.span_idle_fraction",
    ),
    Figure(
        "utilisation",
        "share",
        "arithmetic / (IPUs x makespan); the sum with the bubble is 1",
        "utilisation",
        measure="utilisation",
        column="utilisation",
        head="utilisation",
        chart="utilisation, %",
    ),
    Figure("efficiency", "share", "arithmetic of the whole run, including weight updates", "verdict.efficiency"),
    Figure("speed_up", "number", "speed relative to one IPU with the same work", "verdict.speed_up"),
    Figure(
        "slowest_stage",
        "name",
        "all stages with the longest passes per micro-batch; an expectation names one of them",
        "verdict.slowest_stages",
        names="stages",
    ),
    _cost("time_steps", "count", "of an execution, in lock-step", "time_steps"),
    Figure("memory", "fits", "whether the memory of every IPU suffices", "memory.fits"),
    _cost(
        "peak",
        "bytes",
        "maximum memory of an IPU: the fullest IPU, or the IPU with the given number",
        "memory.ipus.{}.peak_bytes",
        "most",
        measure="memory",
        column="peak_bytes",
        head="peak memory",
        in_tables=True,
        chart="fullest IPU, MiB",
    ),
    _cost(
        "mean_loss",
        "number",
        "mean loss of a step: the last, or .first, .least, .most or .NUMBER",
        "learning.mean_loss_by_step.{}",
        "last",
        measure="loss",
        column="loss",
        head="mean loss",
        in_tables=True,
        chart="mean loss of the last step",
    ),
    Figure(
        "accuracy",
        "share",
        "on held-out samples: the last, or .first, .most, .least or .NUMBER",
        "learning.evaluations.{}.accuracy",
        "last",
        measure="accuracy",
        column="accuracy",
        head="accuracy",
        in_tables=True,
        chart="accuracy on held-out samples, %",
    ),
)
_BY_NAME: Final = {figure.name: figure for figure in FIGURES}


def figure(name: str) -> Figure:
    """Return a figure of the table by name; raises KeyError for unknown names."""
    return _BY_NAME[name]


def figure_names() -> list[str]:
    """Return all names of the table."""
    return list(_BY_NAME)


def figure_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return lines with name and value of all known figures, up to terminal width."""
    values = known_figures(summary)
    width = max(map(len, values))
    texts = ((name, figure(name).text(value)) for name, value in values.items())
    return [f"  {name:{width}}  {shorten(text, _TERMINAL - width - 4, placeholder=' ...')}" for name, text in texts]


def known_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures present in data of ``summary.json``, by name."""
    result = {}
    for figure in FIGURES:
        with suppress(LookupError):
            result[figure.name] = figure.value_in(summary)
    return result
