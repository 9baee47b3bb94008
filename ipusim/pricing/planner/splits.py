"""List the splits of a product over tiles: numbers of parts of each dimension, with the busiest tile's share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[Any]


class Splits(NamedTuple):
    """Candidate splits as arrays, or a single split: parts and shares per dimension.

    Attributes:
        row_parts, output_parts, input_parts, group_parts: numbers of parts of n, m, k and groups.
        rows, output_blocks, input_blocks, groups: busiest tile's share per dimension; m and k in whole blocks.
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
    """Return the useful splits of ``count`` things into at most ``most`` parts.

    For each size of the largest part, the result has the smallest number of parts, and the next even number, since
    pairs of tiles share received data (if parts have one thing each, one part may be empty). No other number of parts
    is better in any respect.

    Returns:
        Array of two rows: numbers of parts, and things in the largest part.

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
    """Return the splits over at most ``tiles`` tiles."""
    columns = [np.zeros(1, dtype=np.int64)]
    tile_counts = np.ones(1, dtype=np.int64)
    ways = [parts(count, tiles) for count in (rows, output_blocks, input_blocks, groups)]
    for way in ways:
        products = (tile_counts[:, None] * way[0][None, :]).ravel()
        indices = np.flatnonzero(products <= tiles)
        tile_counts = products.take(indices)
        earlier, indices = np.divmod(indices, way.shape[1])
        columns = [*(column.take(earlier) for column in columns), indices]
    # Floats hold whole numbers of any size; products of integers would wrap.
    pairs = [(way.astype(np.float64), index) for way, index in zip(ways, columns[1:], strict=True)]
    return Splits(*(way[row].take(index) for row in (0, 1) for way, index in pairs))
