"""Lay out text: measure widths before drawing, break lines, and move labels apart."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath, text_to_path

T = TypeVar("T")


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of the outline of ``text`` in points at a font size of ``size`` points."""
    return _outline_width(text.strip(), bold) * size / text_to_path.FONT_SCALE


@lru_cache(maxsize=65536)
def _outline_width(text: str, bold: bool) -> float:
    """Return the width of the outline of ``text``, in font units.

    The end points of curves suffice: evaluating every curve of this font's outlines gave the same widths.
    """
    if not text:
        return 0.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    outline = TextPath((0, 0), text, size=text_to_path.FONT_SCALE, prop=font)
    return float(np.ptp(outline.vertices[outline.codes != Path.CLOSEPOLY, 0]))


def wrap(text: str, size: float, width: float, bold: bool = False) -> list[str]:
    """Break ``text`` into the fewest lines within ``width`` points, of about equal length.

    Numbers stay with their units. Words wider than a line are cut.
    """
    words = [
        truncate(word, size, width, bold)
        for word in re.split(r"(?<!\d) +| +(?!(?:(?:[KMGT]i)?B|[nµm]?s)\b)", text)
        if word
    ]

    # Begin and end of every word in a single line. Measuring words and neighbouring pairs is enough to know any line's
    # width.
    ends_of_words: list[tuple[float, float]] = []
    for number, word in enumerate(words):
        word_width = text_width(word, size, bold)
        end = word_width
        if number:
            end = ends_of_words[-1][0] + text_width(f"{words[number - 1]} {word}", size, bold)
        ends_of_words.append((end - word_width, end))

    def width_of(line: Sequence[int]) -> float:
        return ends_of_words[line[-1]][1] - ends_of_words[line[0]][0]

    return [" ".join(words[number] for number in line) for line in even_lines(range(len(words)), width_of, width)]


def even_lines(items: Sequence[T], width_of: Callable[[Sequence[T]], float], width: float) -> list[list[T]]:
    """Break ``items`` into the fewest lines within ``width``, minimising the widest.

    ``width_of`` gives a line's width. An item wider than ``width`` fills a line alone.
    """

    def lines_within(most: float) -> list[list[T]]:
        lines: list[list[T]] = []
        for item in items:
            if lines and width_of([*lines[-1], item]) <= most:
                lines[-1].append(item)
            else:
                lines.append([item])
        return lines

    lines = lines_within(width)
    low, high = 0.0, width
    while len(lines) > 1 and high - low > 1e-3 * width:
        middle = (low + high) / 2
        narrower = lines_within(middle)
        if len(narrower) > len(lines):
            low = middle
        else:
            lines, high = narrower, middle
    return lines


def truncate(word: str, size: float, width: float, bold: bool = False, *, keeps_end: bool = False) -> str:
    """Cut ``word`` to ``width`` points with an ellipsis.

    With ``keeps_end`` the ellipsis is in the middle, for names with different endings.
    """
    # Doubling and bisection: names may have any length, and measuring takes linear time.
    most = 64
    while text_width(word[:most], size, bold) <= width:
        if most >= len(word):
            return word
        most *= 2

    def shortened(letters: int) -> str:
        tail = letters // 2 if keeps_end else 0
        return f"{word[: letters - tail]}…{word[len(word) - tail :]}"

    ends = range(1, min(most, len(word)) + 1)
    return shortened(bisect_right(ends, width, key=lambda letters: text_width(shortened(letters), size, bold)))


def space_out(centres: Sequence[float], widths: Sequence[float], low: float, high: float) -> list[float] | None:
    """Move labels as little as possible to remove overlaps within [low, high].

    Returns the centres nearest to ``centres`` in least squares, in unchanged order; None if labels are too wide.
    """
    room = high - low - sum(widths)
    if room < 0:
        return None
    # Without the widths before it, a label is a point. Points only keep their order: isotonic regression by pooling
    # adjacent violators. Clipping this solution gives the bounded solution. SciPy offers the same, but importing
    # scipy.optimize takes 0.13 s, and these lines take microseconds.
    offsets = [0.0, *accumulate(widths)][: len(widths)]
    pools: list[tuple[float, int]] = []  # mean and number of pooled points
    for centre, width, offset in zip(centres, widths, offsets, strict=True):
        mean, count = centre - width / 2 - offset, 1
        while pools and pools[-1][0] > mean:
            pool_mean, pool_count = pools.pop()
            mean, count = (mean * count + pool_mean * pool_count) / (count + pool_count), count + pool_count
        pools.append((mean, count))
    points = [min(max(mean, low), low + room) for mean, count in pools for _ in range(count)]
    return [point + offset + width / 2 for point, offset, width in zip(points, offsets, widths, strict=True)]
