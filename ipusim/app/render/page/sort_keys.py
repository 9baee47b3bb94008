"""Compute sort keys of table cells: leading numbers converted to base units."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from ipusim.base.units import UNITS

#: Number at the head of a cell, and the word behind it.
_NUMBER: Final = re.compile(r"([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([A-Za-zµ%/]*)")
#: Factors of units to the base unit of their kind.
_FACTORS: Final[dict[str, Fraction]] = {
    unit: factor
    for kind in ("bytes", "bytes per second", "hertz", "seconds")
    for unit, factor in UNITS[kind][0].items()
}


def sort_key(cell: str) -> float | None:
    """Return a cell's leading number in base units. None for text and dashes.

    >>> sort_key("1.5 KiB"), sort_key("1,200 cycles, 3 us"), sort_key("dense")
    (1536.0, 1200.0, None)
    """
    match = _NUMBER.match(cell)
    if match is None:
        return None
    number, unit = match.groups()
    return float(Fraction(number.replace(",", "")) * _FACTORS.get(unit, Fraction(1)))
