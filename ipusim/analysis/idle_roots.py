"""Find the IPU at the root of idle time: the end of a chain of waits for IPUs that wait themselves."""

from __future__ import annotations

import numpy as np

from ipusim.analysis.idle_spans import CAUSES, NUMBER, WAITS_FOR, IpuSpans, ended_waits, non_arithmetic, spans_during
from ipusim.timeline.kinds import SEND_KINDS, STREAMED_KINDS, of_kinds
from ipusim.timeline.repeats import Column
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import NONE, Timeline


def idle_by_root(timeline: Timeline) -> Column:
    """Sum idle cycles by idle IPU, root IPU and cause; shape (IPUs, IPUs, causes).

    If an IPU waits for a waiting IPU, the cycles count for the IPU at the end of this chain of waits. Idle time without
    a wait, such as a copy, counts for the idle IPU itself. Waits without a known releasing span are not counted.
    """
    track = IpuSpans(timeline.with_block_ends_expanded())
    table = np.zeros((len(timeline.info.ipus),) * 2 + (len(CAUSES),), dtype=np.int64)
    ipu, start, end, cause, _, span = non_arithmetic(track)
    np.add.at(table, (ipu, ipu, cause), (end - start) * track.times[span])
    waits, releases = ended_waits(track)
    waits, releases = waits[releases != NONE], releases[releases != NONE]
    # For every wait: the releasing IPU, and the cycle from which the wait is for a transfer or for host I/O.
    source, switch, later_cause = np.full((3, len(track.row)), NONE)
    source[waits] = track.timeline.ipu[releases]
    is_send = of_kinds(track.timeline.kind[releases], SEND_KINDS)
    is_host_copy = ~is_send & (source[waits] == track.ipu[waits])
    begin = np.clip(np.where(is_send, track.timeline.start[releases], 0), track.start[waits], track.end[waits])
    switch[waits] = np.where(is_send | is_host_copy, begin, track.end[waits])
    later_cause[waits] = np.where(is_send, NUMBER[Idle.COPIES], NUMBER[Idle.HOST])
    later_cause[waits[of_kinds(track.timeline.kind[releases], STREAMED_KINDS)]] = NUMBER[Idle.STREAMING]
    waiter, wait, start, end = track.ipu[waits], waits, track.start[waits], track.end[waits]
    weight = track.times[waits]
    for _ in range(len(timeline.info.ipus)):
        if not len(wait):
            break
        transit_cycles = np.maximum(end - np.maximum(start, switch[wait]), 0)
        np.add.at(table, (waiter, source[wait], later_cause[wait]), transit_cycles * weight)
        end = np.maximum(np.minimum(end, switch[wait]), start)
        piece, during = spans_during(track, source[wait], start, end)
        waiter, weight, worker = waiter[piece], weight[piece], track.ipu[during]
        start = np.maximum(start[piece], track.start[during])
        end = np.maximum(np.minimum(end[piece], track.end[during]), start)
        is_continued = (source[during] != NONE) & (worker != waiter)
        is_final = ~is_continued
        cause = WAITS_FOR[track.kind[during]]
        cause = np.where(cause == NONE, NUMBER[Idle.PASSES], cause)
        np.add.at(table, (waiter[is_final], worker[is_final], cause[is_final]), ((end - start) * weight)[is_final])
        waiter, wait, start, end, weight = (column[is_continued] for column in (waiter, during, start, end, weight))
    return table
