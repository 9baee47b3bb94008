"""The figures of a run as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipusim.api import analysis


def figure_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name, value and unit of each figure that the data of ``summary.json`` have."""
    return [
        {"figure": name, "value": value, "unit": analysis.figure(name).unit}
        for name, value in analysis.known_figures(summary).items()
    ]
