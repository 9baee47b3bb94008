"""Fold large traces into few rows: draw one replica in place of all, or several IPUs in a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ipusim.api import Span, Timeline, timelines
from ipusim.app.render.shortened import drawn_of
from ipusim.app.render.style import LOOK_OF_KIND
from ipusim.app.render.window import Window


@dataclass(frozen=True)
class Folded:
    """Timeline with ``ipus_to_a_row`` neighbouring IPUs in each row; ``words`` describe the folding."""

    timeline: Timeline
    ipus_to_a_row: int = 1
    words: str = ""


def rows_of(timeline: Timeline, ipus_to_a_row: int) -> int:
    """Return the number of rows with ``ipus_to_a_row`` IPUs in each."""
    return -(-len(timeline.info.ipus) // ipus_to_a_row)


def fold_rows(timeline: Timeline, most_rows: int, window: Window) -> Folded:
    """Return ``timeline`` in at most ``most_rows`` rows.

    If all replicas do the same within ``window``, the first replaces all. If they differ and their rows are too many,
    only the first is drawn. If its rows are still too many, neighbouring IPUs share a row.
    """
    words = []
    info = timeline.info
    if replicas_alike(timeline, window):
        words.append(f"{info.replicas} equal replicas")
        timeline = first_replica(timeline)
    elif len(info.ipus) > most_rows and info.replicas > 1:
        words.append(f"the first of {info.replicas} replicas")
        timeline = first_replica(timeline)
    ipus_to_a_row = 1
    while rows_of(timeline, ipus_to_a_row) > most_rows:
        ipus_to_a_row *= 2
    if ipus_to_a_row > 1:
        words.append(f"{ipus_to_a_row} IPUs to a row")
    return Folded(timeline, ipus_to_a_row, ", ".join(words))


def replicas_alike(timeline: Timeline, window: Window | None) -> bool:
    """Return whether several replicas all do the same at the same times within ``window``."""
    info = timeline.info
    if info.replicas == 1:
        return False
    start, end = (0, timeline.makespan_cycles) if window is None else (window.start, window.end)
    timeline = timeline.with_block_ends_expanded() if window is None else drawn_of(timeline, window)
    rows = np.flatnonzero((LOOK_OF_KIND[timeline.kind] >= 0) & (timeline.end > start) & (timeline.start < end))
    rows, ipu = timeline.per_ipu(rows)
    counts = np.bincount(ipu // info.shards, minlength=info.replicas)
    if (counts != counts[0]).any():
        return False
    columns = [timeline.micro_batch[rows], timeline.stage[rows], timeline.kind[rows], timeline.end[rows]]
    columns += [timeline.start[rows], ipu % info.shards]
    order = np.lexsort([*columns, ipu // info.shards])
    return all(
        bool((values == values[0]).all()) for values in (column[order].reshape(info.replicas, -1) for column in columns)
    )


def first_replica(timeline: Timeline) -> Timeline:
    """Return the Timeline of the first replica, without causes."""
    info = timeline.info
    members = np.isin(timeline.replica, (0, timelines.NONE)) & (timeline.ipu < info.shards)
    return spans_of(timeline, members).with_info(first_replica_info(info))


def spans_of(timeline: Timeline, members: npt.NDArray[np.bool_]) -> Timeline:
    """Return the rows of a mask of shape (rows,), without causes."""
    columns = np.stack([getattr(timeline, name)[members] for name in Span._fields]).T
    columns[:, Span._fields.index("cause")] = timelines.NONE
    return Timeline(timeline.info, columns)


def first_replica_info(info: timelines.TimelineInfo) -> timelines.TimelineInfo:
    """Return the info of the first replica's Timeline."""
    return replace(info, ipus=info.ipus[: info.shards], replicas=1)
