"""Axes of bytes: ticks at round numbers in one unit, a margin above, and the memory's limit if it is in range."""

from __future__ import annotations

from typing import Final

from matplotlib.ticker import MaxNLocator

#: Powers of 1024, which matplotlib's EngFormatter does not have.
_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
#: Inches of axis to a tick.
TICK_IN: Final = 0.28
#: Room above the fullest level.
ABOVE: Final = 1.06
#: The limit is drawn when the fullest IPU reaches this part of it.
_WITHIN_REACH: Final = 0.5


def limit_in_sight(limit: int | None, fullest: int) -> int | None:
    """Return an IPU's memory in bytes where it is in sight of what the fullest holds; None where it is not limited."""
    return limit if limit and fullest >= _WITHIN_REACH * limit else None


def byte_ticks(top_bytes: float, most: float) -> list[float]:
    """Return round bytes above 0, at most ``most`` of them or one, and none where it would touch the top."""
    unit = byte_unit(top_bytes)[0]
    room = 0.94 * top_bytes / unit
    marks = MaxNLocator(nbins=int(max(most, 1)) + 1, steps=[1, 2, 5, 10]).tick_values(0, room)
    ticks = [tick * unit for tick in marks if 0 < tick <= room]
    return ticks if len(ticks) <= max(most, 1) else []


def byte_unit(size: float) -> tuple[int, str]:
    """Return the unit for sizes up to ``size``: bytes in one of it, and its name."""
    return next((unit for unit in _UNITS if size >= unit[0]), _UNITS[-1])
