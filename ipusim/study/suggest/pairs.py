"""What the busiest IPU takes at least where each has two stages: exact, where bounds by stages see one of them alone.

The two stages of an IPU are followed at once, from the first IPU to the last: the one as the model goes, the other as
its second half goes (around), or from its end back (there and back).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.study.suggest.programmes import Numbers

Bits = npt.NDArray[np.bool_]
#: How close the least is found, as a power of two of its share, and where it is sought, in shares of the bound known.
_CLOSE: Final = 8
_FAR: Final = 1.5
#: Units up to which it is worth the time.
_UNITS: Final = 100


def two_stages(mapping: tuple[int, ...]) -> str:
    """Return how two stages of each IPU follow each other: ``around``, ``back``, or empty where it is otherwise."""
    half = len(mapping) // 2
    first = mapping[:half]
    if len(mapping) % 2 or len(set(first)) != half:
        return ""
    return {first: "around", first[::-1]: "back"}.get(mapping[half:], "")


def least_busiest(takes: Numbers, mapping: tuple[int, ...], known: float, spend: Callable[[], None]) -> float:
    """Return what the busiest IPU of any cut takes at least, ``known`` or more.

    ``takes`` are what each stage takes between any two units, infinite where it cannot be.
    """
    way = two_stages(mapping)
    if not way or takes.shape[1] > _UNITS or len(mapping) < 4:
        return known
    low, high = known, known * _FAR
    while high - low > known / (1 << _CLOSE):
        middle = (low + high) / 2
        if _possible(takes, way, middle, spend):
            high = middle
        else:
            low = middle
    return float(np.floor(low))


def _possible(takes: Numbers, way: str, most: float, spend: Callable[[], None]) -> bool:
    """Tell whether some cut has no IPU that takes more than ``most``."""
    half, size = len(takes) // 2, takes.shape[1]
    proper = np.triu(np.ones((size, size), dtype=bool), 1)
    # Where the first walk is, and where the second; around, by where the second began.
    reached: dict[int, Bits]
    if way == "around":
        reached = {0: np.eye(size, dtype=bool)}
    else:
        start = np.zeros((1, size), dtype=bool)
        start[0, -1] = True
        reached = {0: start}
    for first in range(half):
        second = first + half if way == "around" else len(takes) - 1 - first
        room = np.where(proper, takes[second], np.inf)
        room = room if way == "around" else room.T
        further: dict[int, Bits] = {}
        for at, begun in reached.items():
            spend()
            for end in (np.flatnonzero(takes[first, at, at + 1 :] <= most) + at + 1).tolist():
                step = (room <= most - takes[first, at, end]).astype(np.float32)
                moved = begun.astype(np.float32) @ step > 0
                if moved.any():
                    further[end] = further[end] | moved if end in further else moved
        reached = further
    if way == "around":
        return any(bits[end, -1] for end, bits in reached.items())
    return any(bits[0, end] for end, bits in reached.items())
