"""How a trace with more IPUs than there is room for is shown by fewer rows: one replica, or several IPUs to a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ipusim.timeline.timeline import NONE, Span, Timeline


@dataclass(frozen=True)
class Folded:
    """A Timeline whose rows stand for ``ipus_to_a_row`` neighbouring IPUs each; ``words`` say what is left out."""

    timeline: Timeline
    ipus_to_a_row: int = 1
    words: str = ""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return rows_of(self.timeline, self.ipus_to_a_row)


def rows_of(timeline: Timeline, ipus_to_a_row: int) -> int:
    """Return the number of rows of a Timeline whose rows stand for so many IPUs each."""
    return -(-len(timeline.info.ipus) // ipus_to_a_row)


def folded(timeline: Timeline, most_rows: int) -> Folded:
    """Return ``timeline`` in at most ``most_rows`` rows: as it is, or its first replica, or several IPUs to a row."""
    words = []
    info = timeline.info
    if len(info.ipus) > most_rows and info.replicas > 1:
        words.append(f"the first of {info.replicas} replicas")
        timeline = first_replica(timeline)
    together = 1
    while rows_of(timeline, together) > most_rows:
        together *= 2
    if together > 1:
        words.append(f"{together} IPUs to a row")
    return Folded(timeline, together, ", ".join(words))


def first_replica(timeline: Timeline) -> Timeline:
    """Return what the first replica does, as a Timeline of its own, without causes."""
    info = timeline.info
    own = np.isin(timeline.replica, (0, NONE)) & (timeline.ipu < info.shards)
    columns = np.stack([getattr(timeline, name)[own] for name in Span._fields], axis=1)
    columns[:, Span._fields.index("cause")] = NONE
    return Timeline(replace(info, ipus=info.ipus[: info.shards], replicas=1), columns)
