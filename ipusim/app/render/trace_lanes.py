"""Slices that overlap, side by side: in a trace file, slices of one track must not."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def lanes(start: Integers, end: Integers, group: Integers) -> Integers:
    """Return the lane of each interval, counted from 0 in its group; intervals of a lane do not overlap.

    Columns are of one length, ``start`` rising. A group has as many lanes as intervals overlap at most.
    """
    lane_of = np.empty(len(start), dtype=np.int64)
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[int, int]]] = {}
    used: dict[int, int] = {}
    columns = zip(start.tolist(), end.tolist(), group.tolist(), strict=True)
    for number, (begins, ends, of) in enumerate(columns):
        waiting, ready = busy.setdefault(of, []), free.setdefault(of, [])
        while waiting and waiting[0][0] <= begins:
            heappush(ready, heappop(waiting)[1])
        if ready:
            lane = heappop(ready)
        else:
            lane = used.get(of, 0)
            used[of] = lane + 1
        lane_of[number] = lane
        heappush(waiting, (ends, lane))
    return lane_of
