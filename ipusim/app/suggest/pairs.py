"""What the busiest IPU takes at least where each has two stages: exact, where bounds by stages see one of them alone.

The two stages of an IPU are followed at once, from the first IPU to the last: the one as the model goes, the other as
its second half goes (around), or from its end back (there and back).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.suggest.programmes import Numbers

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


def worth(takes: Numbers, mapping: tuple[int, ...]) -> bool:
    """Tell whether two stages of each IPU can be followed at once, in a time that they are worth."""
    return bool(two_stages(mapping)) and takes.shape[1] <= _UNITS and len(mapping) >= 4


def least_busiest(takes: Numbers, mapping: tuple[int, ...], known: float, spend: Callable[[], None]) -> float:
    """Return what the busiest IPU of any cut takes at least, ``known`` or more.

    ``takes`` are what each stage takes between any two units, infinite where it cannot be.
    """
    way = two_stages(mapping)
    if not worth(takes, mapping):
        return known
    low, high = known, known * _FAR
    while high - low > known / (1 << _CLOSE):
        middle = (low + high) / 2
        if _possible(takes, way, middle, spend):
            high = middle
        else:
            low = middle
    return float(np.floor(low))


def possible_stages(takes: Numbers, mapping: tuple[int, ...], most: float, spend: Callable[[], None]) -> Bits:
    """Return which stages, between any two units, are in some cut that has no IPU that takes more than ``most``."""
    walk = _Walk(takes, two_stages(mapping), most)
    ways, back = walk.forward(spend), walk.backward(spend)
    found = np.zeros(takes.shape, dtype=bool)
    for first, reached in enumerate(ways[:-1]):
        second = walk.second(first)
        for at, begun in reached.items():
            spend()
            for end in walk.ends(first, at):
                if end not in back[first + 1]:
                    continue
                together = begun.T.astype(np.float32) @ back[first + 1][end].astype(np.float32) > 0
                together &= walk.steps(first, at, end)
                found[first, at, end] = together.any()
                found[second] |= together if walk.around else together.T
    return found


class _Walk:
    """Two walks over the units at once, one IPU after the other.

    Where the first walk is, a table says where the second may be, in columns; around, in a row for each of its starts.
    """

    def __init__(self, takes: Numbers, way: str, most: float) -> None:
        """Walk ``way`` over stages that take so much, ``most`` of it on each IPU."""
        self._takes, self._most, self.around = takes, most, way == "around"
        self._half, size = len(takes) // 2, takes.shape[1]
        self._proper = np.triu(np.ones((size, size), dtype=bool), 1)

    def second(self, first: int) -> int:
        """Return the other stage of the IPU of a stage of the first half."""
        return first + self._half if self.around else len(self._takes) - 1 - first

    def ends(self, first: int, at: int) -> list[int]:
        """Return where a stage of the first walk that begins ``at`` a unit may end."""
        return [*map(int, np.flatnonzero(self._takes[first, at, at + 1 :] <= self._most) + at + 1)]

    def steps(self, first: int, at: int, end: int) -> Bits:
        """Return from where to where the second walk may go meanwhile."""
        room = np.where(self._proper, self._takes[self.second(first)], np.inf)
        return np.asarray((room if self.around else room.T) <= self._most - self._takes[first, at, end])

    def forward(self, spend: Callable[[], None]) -> list[dict[int, Bits]]:
        """Return what is reached before each IPU, and behind the last where both walks end as they should."""
        size = len(self._proper)
        start = np.eye(size, dtype=bool) if self.around else np.eye(size, dtype=bool)[-1:]
        reached = self._walked({0: start}, spend, back=False)
        reached[-1] = {end: bits for end, here in reached[-1].items() if (bits := here & self._ended(end)).any()}
        return reached

    def backward(self, spend: Callable[[], None]) -> list[dict[int, Bits]]:
        """Return from where the end is reached, before each IPU and behind the last."""
        ends = {end: self._ended(end) for end in range(1, len(self._proper))}
        return self._walked(ends, spend, back=True)[::-1]

    def _walked(self, start: dict[int, Bits], spend: Callable[[], None], *, back: bool) -> list[dict[int, Bits]]:
        """Return what both walks reach from ``start`` on, IPU by IPU from the first on, or back from the last."""
        reached = [start]
        for first in reversed(range(self._half)) if back else range(self._half):
            further: dict[int, Bits] = {}
            for at in range(len(self._proper) - 1):
                spend()
                for end in self.ends(first, at) if back or at in reached[-1] else ():
                    source, target = (end, at) if back else (at, end)
                    if source not in reached[-1]:
                        continue
                    steps = self.steps(first, at, end)
                    moved = reached[-1][source].astype(np.float32) @ (steps.T if back else steps).astype(np.float32) > 0
                    if moved.any():
                        further[target] = further[target] | moved if target in further else moved
            reached.append(further)
        return reached

    def _ended(self, end: int) -> Bits:
        """Return where the second walk ends rightly, if the first one ends before unit ``end``."""
        size = len(self._proper)
        ended = np.zeros((size if self.around else 1, size), dtype=bool)
        ended[(end, -1) if self.around else (0, end)] = True
        return ended


def _possible(takes: Numbers, way: str, most: float, spend: Callable[[], None]) -> bool:
    """Tell whether some cut has no IPU that takes more than ``most``."""
    return bool(_Walk(takes, way, most).forward(spend)[-1])
