"""Splits: every way to lay the blocks of a product over tiles that differs in what a tile gets."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[Any]


class Splits(NamedTuple):
    """Candidate splits as arrays, or one of them: parts of each dimension, and the busiest tile's share.

    Attributes:
        row_parts, output_parts, input_parts, group_parts: into how many parts n, m, k and the groups are split.
        rows, output_blocks, input_blocks, groups: what of each the busiest tile gets; m and k in whole blocks.
    """

    row_parts: Counts
    output_parts: Counts
    input_parts: Counts
    group_parts: Counts
    rows: Counts
    output_blocks: Counts
    input_blocks: Counts
    groups: Counts


@lru_cache(maxsize=1024)
def parts(count: int, most: int) -> Counts:
    """Return ways to split ``count`` things into at most ``most`` parts: columns of parts, and things in the largest.

    Of the ways with the same largest part the one with the fewest parts is there, and the next one with an even
    number of them, since pairs of tiles share what they receive alike (with single things, one part may be empty). No
    other way is better in anything.

    >>> parts(5, 6).tolist()
    [[1, 2, 3, 4, 5, 6], [5, 3, 2, 2, 1, 1]]
    """
    ways = []
    number = 1
    while number <= min(count, most):
        largest = -(-count // number)
        ways.append((number, largest))
        last = (count - 1) // (largest - 1) if largest > 1 else count + 1  # the most with this largest
        if number % 2 and number + 1 <= min(last, most):
            ways.append((number + 1, largest))
        number = last + 1
    return np.array(ways, dtype=np.int64).T


@lru_cache(maxsize=256)
def splits(rows: int, output_blocks: int, input_blocks: int, groups: int, tiles: int) -> Splits:
    """Return every split over at most ``tiles`` tiles."""
    chosen = [np.zeros(1, dtype=np.int64)]
    used = np.ones(1, dtype=np.int64)
    ways = [parts(count, tiles) for count in (rows, output_blocks, input_blocks, groups)]
    for way in ways:
        together = (used[:, None] * way[0][None, :]).ravel()
        here = np.flatnonzero(together <= tiles)
        used = together.take(here)
        earlier, here = np.divmod(here, way.shape[1])
        chosen = [*(column.take(earlier) for column in chosen), here]
    # Whole still, of any size: what is multiplied of them would wrap as integers.
    pairs = [(way.astype(np.float64), which) for way, which in zip(ways, chosen[1:], strict=True)]
    return Splits(*(way[row].take(which) for row in (0, 1) for way, which in pairs))
