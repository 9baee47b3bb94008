"""Choose round ticks, a common unit and the memory limit of an axis of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ipusim.app.render.style import LINE, TEXT_SIZE

#: Powers of 1024, missing in matplotlib's EngFormatter.
_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
#: Inches of axis per tick.
TICK_IN: Final = 0.28
#: Factor of room above the fullest level.
HEADROOM: Final = 1.06
#: Minimum fill of the fullest IPU, as share of the limit, for the limit to be drawn.
_WITHIN_REACH: Final = 0.5


def limit_in_sight(limit: int | None, fullest: int) -> int | None:
    """Return ``limit`` if the fullest IPU comes near it; None otherwise."""
    return limit if limit and fullest >= _WITHIN_REACH * limit else None


def byte_ticks(top_bytes: float, most: float) -> dict[float, str]:
    """Return at most ``most`` round byte numbers above 0, with their labels.

    Ticks keep a distance from the top. No tick is returned if even the coarsest round numbers are more than ``most``.
    """
    unit, name = byte_unit(top_bytes)
    room = 0.94 * top_bytes / unit
    marks = MaxNLocator(nbins=int(max(most, 1)) + 1, steps=[1, 2, 5, 10]).tick_values(0, room)
    ticks = {tick * unit: f"{tick:.6g} {name}" for tick in map(float, marks) if 0 < tick <= room}
    return ticks if len(ticks) <= max(most, 1) else {}


def byte_unit(size: float) -> tuple[int, str]:
    """Return the unit for sizes up to ``size``: its bytes and name."""
    return next((unit for unit in _UNITS if size >= unit[0]), _UNITS[-1])


def label_bytes(axes: Axes, ticks: Mapping[float, str]) -> None:
    """Label the vertical axis at ``ticks``."""
    axes.set_yticks([*ticks], [*ticks.values()])
    axes.tick_params(axis="y", labelsize=TEXT_SIZE, color=LINE, length=3, pad=2)
