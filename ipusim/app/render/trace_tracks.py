"""Choose the tracks of a trace file: names, nesting and order from the top down.

The most important tracks are direct children of the run, which viewers unfold: phases, IPUs, and counters over all
IPUs. IPU-Links with traffic and the host form groups. IPUs follow the order of ``TimelineInfo.ipu_rows``. Links follow
the order of the physical IPUs in their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from ipusim.api import SpanKind, Timeline, timelines
from ipusim.app.render.arrays import Integers


@dataclass(frozen=True)
class Track:
    """One track: a group, a row of slices, or a counter.

    Attributes:
        name: label for readers.
        parent: number of the parent track; None for the whole run's track.
        unit: unit of a counter; empty for other tracks.
        group: whether the track only holds other tracks.
        description: text that viewers show on request; empty for no text.
    """

    name: str
    parent: int | None = None
    unit: str = ""
    group: bool = False
    description: str = ""


@dataclass
class Tracks:
    """Tracks of a trace file, and track numbers by item of a Timeline.

    Attributes:
        entries: tracks from the top down.
        phases: track of executions and phases.
        redone: track of work repeated after an IPU failed; NONE if none failed.
        ipu, io_tiles: tracks of each logical IPU; NONE for an IPU without the track.
        send: track of each send, in the Timeline's order; an IPU has a track for every simultaneous send.
        link: track of each link direction, in the Timeline's order.
        feed: tracks of the host, such as infeed and outfeed, for each replica, in the order of ``HostTrack``.
        counter: track of each counter by name and logical IPU; None means all IPUs.
    """

    entries: list[Track] = field(default_factory=list)
    phases: int = timelines.NONE
    redone: int = timelines.NONE
    ipu: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    io_tiles: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    send: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    link: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    feed: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    counter: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def add(self, name: str, parent: int | None = 0, unit: str = "", group: bool = False, description: str = "") -> int:
        """Add a track at the bottom and return its number."""
        self.entries.append(Track(name, parent, unit, group, description))
        return len(self.entries) - 1

    def group_of(self, number: int) -> int:
        """Return the innermost group of a track, at any depth; a group holds itself."""
        track = self.entries[number]
        return number if track.group or track.parent is None else self.group_of(track.parent)

    def path(self, number: int) -> str:
        """Return a track's name with its ancestors up to the group: ``IPU 0: I/O tiles``."""
        track = self.entries[number]
        if track.parent is None or self.entries[track.parent].group:
            return track.name
        return f"{self.path(track.parent)}: {track.name}"


def tracks(timeline: Timeline, counters: Sequence[tuple[str, str, int | None]]) -> Tracks:
    """Return the tracks of a run with ``counters``: name, unit, and logical IPU or None."""
    info = timeline.info
    result = Tracks()
    result.add(f"{info.name}: {info.order_and_sync} on {info.system}", parent=None, group=True)
    result.phases = result.add("phases")
    result.redone = result.add("done again") if len(timeline.rows(SpanKind.LOST_WORK)) else timelines.NONE
    result.ipu = np.full(len(info.ipus), timelines.NONE, dtype=np.int64)
    result.io_tiles = result.ipu.copy()
    sends = timeline.rows(*timelines.SEND_KINDS)
    sender = timeline.ipu[sends]
    lane = lanes(timeline.start[sends], timeline.end[sends], sender)
    result.send = np.full(len(sends), timelines.NONE, dtype=np.int64)
    with_io_tiles = set(timeline.ipu[timeline.rows(*timelines.IO_TILE_KINDS)].tolist())
    physical = physical_ipus(timeline)
    for ipu_row in info.ipu_rows:
        position = result.add(_ipu_name(info, ipu_row), description=_physical(info, ipu_row) if physical else "")
        result.ipu[ipu_row] = position
        if ipu_row in with_io_tiles:
            result.io_tiles[ipu_row] = result.add("I/O tiles", position)
        members = sender == ipu_row
        result.send[members] = len(result.entries) + lane[members]
        for number in range(int(lane[members].max(initial=timelines.NONE)) + 1):
            result.add(f"sends {number + 1}" if number else "sends", position)
        for name, unit, ipu in counters:
            if ipu == ipu_row:
                result.counter[name, ipu] = result.add(name, position, unit)
    for name, unit, ipu in counters:
        if ipu is None:
            result.counter[name, None] = result.add(name, unit=unit)
    result.link = np.full(len(info.links), timelines.NONE, dtype=np.int64)
    if used_links := np.unique(timeline.link[_transfer_rows(timeline)]).tolist():
        group = result.add("IPU-Links", group=True, description="between physical IPUs" if physical else "")
        ends = {link: [int(ipu) for ipu in re.findall(r"\d+", info.links[link])] for link in used_links}
        for link in sorted(used_links, key=lambda link: (ends[link], info.links[link])):
            result.link[link] = result.add(info.links[link], group)
    result.feed = np.full(info.replicas * len(timelines.HostTrack), timelines.NONE, dtype=np.int64)
    host_rows = timeline.rows(SpanKind.HOST)
    if len(host_rows):
        group = result.add("host", group=True)
        feeds = set(
            np.unique(timeline.replica[host_rows] * len(timelines.HostTrack) + timeline.link[host_rows]).tolist()
        )
        for feed in range(len(result.feed)):
            replica, number = divmod(feed, len(timelines.HostTrack))
            track = timelines.HostTrack(number)
            if track.is_permanent or feed in feeds:
                suffix = "" if info.replicas == 1 or track.of_all_replicas else f" of replica {replica}"
                result.feed[feed] = result.add(track.word + suffix, group)
    return result


def lanes(start: Integers, end: Integers, group: Integers) -> Integers:
    """Return the lane of each interval, counted from 0 in its group.

    Intervals of a lane do not overlap, since slices of one track in a trace file must not. The number of lanes is the
    largest number of simultaneous intervals. Columns have one length; ``start`` rises.
    """
    lane_of = np.empty(len(start), dtype=np.int64)
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[int, int]]] = {}
    columns = zip(start.tolist(), end.tolist(), group.tolist(), strict=True)
    for number, (begins, ends, owner) in enumerate(columns):
        ends_of_running, ready = busy.setdefault(owner, []), free.setdefault(owner, [])
        while ends_of_running and ends_of_running[0][0] <= begins:
            heappush(ready, heappop(ends_of_running)[1])
        lane = heappop(ready) if ready else len(ends_of_running)  # every existing lane is busy: open another
        lane_of[number] = lane
        heappush(ends_of_running, (ends, lane))
    return lane_of


def physical_ipus(timeline: Timeline) -> tuple[int, ...]:
    """Return the physical IPU of every logical IPU.

    The tuple is empty if logical and physical numbers agree, or if no link takes time, because only the names of links
    contain physical IPUs.
    """
    ipus = timeline.info.ipus
    numbers_agree = ipus == tuple(timeline.info.ipu_rows) and not timeline.info.ipus_at_end
    return ipus if not numbers_agree and len(_transfer_rows(timeline)) else ()


def _physical(info: timelines.TimelineInfo, ipu: int) -> str:
    """Return a logical IPU's physical IPU at a run's begin and end."""
    begin, end = info.ipus[ipu], (info.ipus_at_end or info.ipus)[ipu]
    return f"on physical IPU {begin}" if begin == end else f"on physical IPU {begin}, at the end of the run on {end}"


def _transfer_rows(timeline: Timeline) -> Integers:
    """Return the rows of link transfers that take time."""
    rows = timeline.rows(SpanKind.LINK)
    rows_with_time: Integers = rows[timeline.end[rows] > timeline.start[rows]]
    return rows_with_time


def _ipu_name(info: timelines.TimelineInfo, ipu: int) -> str:
    """Return an IPU's name with its replica and stages."""
    stages = info.stages_of_ipu.get(ipu, ())
    name = f"IPU {ipu}"
    if info.replicas > 1:
        name = f"replica {ipu // info.shards}, {name}"
    # Unnamed stages appear by number.
    names = {stage: info.stages[stage] for stage in stages if info.stages[stage] != f"stage{stage}"}
    stage_names = ", ".join(f"{stage} {names[stage]}" if stage in names else str(stage) for stage in stages)
    return f"{name}, stage{'s' if len(stages) > 1 else ''} {stage_names}" if stages else f"{name}, no stage"
