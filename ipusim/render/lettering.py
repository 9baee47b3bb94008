"""Where text fits: its width before it is drawn, and labels moved apart on a line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath


@lru_cache(maxsize=65536)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of ``text`` in points at a font size of ``size`` points, in matplotlib's own font."""
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    # Spaces at the ends have no outline; none of the labels has any.
    return float(TextPath((0, 0), text, prop=font).get_extents().width) if text else 0.0


def wrap(text: str, size: float, width: float, bold: bool = False) -> list[str]:
    """Return ``text`` broken into lines no wider than ``width`` points, a word that is wider by itself cut short."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(_cut(word, size, width, bold))
    return lines


def _cut(word: str, size: float, width: float, bold: bool) -> str:
    if text_width(word, size, bold) <= width:
        return word
    kept = next((end for end in range(len(word), 0, -1) if text_width(word[:end] + "…", size, bold) <= width), 0)
    return word[:kept] + "…"


def spread(centres: Sequence[float], widths: Sequence[float], low: float, high: float) -> list[float] | None:
    """Move labels as little as possible so that, in their order, none overlaps another or leaves [low, high].

    Returns the new centres, nearest to the old by least squares; None if the labels are too wide together.
    """
    room = high - low - sum(widths)
    if room < 0:
        return None
    # Less the widths before it, each label is a point; points only have to keep their order (isotonic
    # regression by pooling adjacent violators), and clipping that solution gives the bounded one.
    before = [0.0, *accumulate(widths)][: len(widths)]
    pools: list[tuple[float, int]] = []  # mean of the points pooled, and their number
    for centre, width, offset in zip(centres, widths, before, strict=True):
        mean, count = centre - width / 2 - offset, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    points = [min(max(mean, low), low + room) for mean, count in pools for _ in range(count)]
    return [point + offset + width / 2 for point, offset, width in zip(points, before, widths, strict=True)]
