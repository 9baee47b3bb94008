"""Figures of a run as rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ipusim.api import analysis

#: Figures with a column in files, except learning; makespan first, beside its cycles.
_COLUMNS: Final = sorted(
    (figure for figure in analysis.FIGURES if figure.measure and not figure.path.startswith("learning.")),
    key=lambda figure: figure.name != "makespan",
)


def figure_columns(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures by column in files; None for a missing figure."""
    return {figure.column: figures.get(figure.name) for figure in _COLUMNS}


def figure_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name, value and unit of the figures in ``summary.json``."""
    return [
        {"figure": name, "value": value, "unit": analysis.figure(name).unit}
        for name, value in analysis.known_figures(summary).items()
    ]
