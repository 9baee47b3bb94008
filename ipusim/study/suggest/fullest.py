"""What the fullest IPU holds at least, by stages alone and by prices: proofs that a choice fits under no cut."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ipusim.study.suggest.alive import PARTS
from ipusim.study.suggest.prices import Maxima, raised
from ipusim.study.suggest.programmes import least_sum
from ipusim.study.suggest.room import Room

#: Steps in which prices of bytes are raised.
_STEPS = 200


def possible_stages(room: Room) -> npt.NDArray[np.bool_]:
    """Return which stages, between any two units, fit their IPU if no other stage is there."""
    stages, size = len(room.mapping), len(room.temporary)
    found = np.ones((stages, size, size), dtype=bool)
    if room.sram_bytes is None:
        return found
    for own, moments in room.moments.values():
        for number, stage in enumerate(own):
            counts = moments[:, number * len(PARTS) : (number + 1) * len(PARTS)]
            live = np.zeros((size, size), dtype=np.int64)
            for count in np.unique(counts, axis=0):
                live = np.maximum(live, np.tensordot(count, room.parts[room.again[stage]], 1))
            there = room.resident[stage] + room.temporary + np.maximum(live, room.update - room.temporary)
            found[stage] = there <= room.sram_bytes
    return found


def any_cut(possible: npt.NDArray[np.bool_]) -> bool:
    """Tell whether some cut has ``possible`` stages alone."""
    return bool(np.isfinite(least_sum(np.where(possible, 0.0, np.inf))[0, 0]))


def fullest_bytes(room: Room, possible: npt.NDArray[np.bool_], spend: Callable[[], None]) -> int:
    """Return what the fullest IPU of any cut of ``possible`` stages holds at least.

    It is sought until it is more than an IPU has, or a cut is found that may fit.
    """
    stages = len(room.mapping)
    kinds = len(PARTS) + 2
    rows = []
    for own, moments in room.moments.values():
        for moment in moments.reshape(len(moments), len(own), len(PARTS)):
            for largest in own:  # an IPU's products take at least what those of one of its stages do
                row = np.zeros((kinds, stages))
                row[: len(PARTS), list(own)] = moment.T
                row[len(PARTS), list(own)] = 1
                row[len(PARTS) + 1, largest] = 1
                rows.append(row)
    parts = np.stack([room.parts[each] for each in room.again]).astype(np.float64)
    tables = (*np.moveaxis(parts, 1, 0), room.resident.astype(np.float64), room.temporary.astype(np.float64))
    maxima = Maxima(tables, np.array([rows]), np.ones(1), np.zeros(1), possible)
    enough = float("inf") if room.sram_bytes is None else room.sram_bytes * (1 + 1e-9) + 1
    found = raised(maxima, _STEPS, enough, spend).bound * (1 - 1e-9)
    return int(min(found, float(1 << 62)))
