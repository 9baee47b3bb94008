"""What every Timeline keeps: each moment of an IPU has one span, and a track beside it no two at once."""

from __future__ import annotations

import numpy as np

from ipusim.timeline.kinds import BACK_KINDS, OUT_KINDS, SpanKind
from ipusim.timeline.timeline import ALL_IPUS, NONE, Timeline

#: Spans that are on no IPU's own track: beside its passes, or beside all IPUs.
BESIDE = (
    SpanKind.SEND,
    SpanKind.LINK,
    SpanKind.HOST,
    SpanKind.OVERLAPPED_INFEED,
    SpanKind.OVERLAPPED_OUTFEED,
    SpanKind.OVERLAPPED_WAIT,
    *OUT_KINDS,
    *BACK_KINDS,
)


def check_tiling(timeline: Timeline) -> int:
    """Hold that each IPU's spans tile the run, and that no link and no track of a host has two at once.

    Returns the cycle in which the last IPU ends.
    """
    shards = len(timeline.info.ipus) // timeline.info.replicas
    own, ends = ~np.isin(timeline.kind, BESIDE), []
    for ipu in {
        replica * shards + shard for replica in range(timeline.info.replicas) for shard in timeline.info.mapping
    }:
        replica = ipu // shards
        mine = (timeline.ipu == ipu) | ((timeline.ipu == ALL_IPUS) & np.isin(timeline.replica, (replica, NONE)))
        start, end = _spans(timeline, own & mine)
        assert start[0] == 0
        assert (start[1:] == end[:-1]).all(), "two spans at once, or a gap that none explains"
        ends.append(int(end[-1]))
    for kind in (SpanKind.LINK, SpanKind.HOST):
        rows = timeline.kind == kind
        for track, replica in set(zip(timeline.link[rows].tolist(), timeline.replica[rows].tolist(), strict=True)):
            start, end = _spans(timeline, rows & (timeline.link == track) & (timeline.replica == replica))
            assert (start[1:] >= end[:-1]).all(), "two spans at once on one track"
    return max(ends)


def _spans(timeline: Timeline, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of spans that take time, in the order of time."""
    start, end = timeline.start[rows], timeline.end[rows]
    order = np.lexsort((end, start))
    return start[order], end[order]
