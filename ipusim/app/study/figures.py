"""Collect the figures of an outcome by name, and as rows and columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Final

from ipusim.api import analysis

#: Measures of sweeps; throughput, the default, comes first.
MEASURES: Final = sorted(
    (figure for figure in analysis.FIGURES if figure.measure), key=lambda figure: figure.name != "throughput"
)
#: Names of the measures of time, which every run has.
TIME_MEASURES: Final = {figure.name for figure in MEASURES if not figure.path.startswith(("memory.", "learning."))}
#: Names of measures in messages; a different name under ``expect`` follows in brackets.
MEASURE_NAMES: Final = [
    figure.measure + (f" ({figure.name})" if figure.name != figure.measure else "") for figure in MEASURES
]
#: Figures with a column in files, except learning; makespan first, beside its cycles.
_COLUMNS: Final = sorted(
    (figure for figure in analysis.FIGURES if figure.measure and not figure.path.startswith("learning.")),
    key=lambda figure: figure.name != "makespan",
)


#: Bound on integers about a run.
_INTEGER_BOUND: Final = 2**63


def outcome_figures(parts: Mapping[str, Any], whole: Callable[[], Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Return the figures of an outcome by name, without impossible values and NaN.

    Args:
        parts: parts of ``summary.json``.
        whole: function that returns the whole ``summary.json``; called if parts lack a measure of time.
    """
    known = analysis.known_figures(parts)
    if whole is not None and not known.keys() >= TIME_MEASURES:
        known = analysis.known_figures({**whole(), **parts})
    return {name: value for name, value in known.items() if is_value(analysis.figure(name), value)}


def is_value(figure: analysis.Figure, value: Any) -> bool:
    """Return whether a run may have this value of a figure."""
    if figure.unit == "fits":
        return value in tuple(analysis.Fits)
    if figure.unit in ("bytes", "count"):
        return type(value) is int and 0 <= value < _INTEGER_BOUND
    if type(value) not in (int, float) or isnan(value):
        return figure.unit == "name"
    unit = analysis.FIGURE_UNITS[figure.unit]
    return unit.least <= value <= min(unit.most, sys.float_info.max) or figure.unit == "number"


def figure_columns(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures by column in files; None for a missing figure."""
    return {figure.column: figures.get(figure.name) for figure in _COLUMNS}


def figure_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name, value and unit of the figures in ``summary.json``; None for a figure that is not known."""
    return [
        {
            "figure": name,
            "value": None if isinstance(value, float) and isnan(value) else value,
            "unit": analysis.figure(name).unit,
        }
        for name, value in analysis.known_figures(summary).items()
    ]
