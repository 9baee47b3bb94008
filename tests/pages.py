"""Data of pages, read as their scripts do: packed columns, and an execution that is played."""

import gzip
from base64 import b64decode

import numpy as np

from ipusim.app.render.page.played import played_data
from ipusim.timeline.kinds import PASSES, of_kinds


def unpacked(columns, text):
    """Read columns as the page's script does."""
    content = gzip.decompress(b64decode(text))
    found = {}
    for column in columns:
        kind = np.dtype(column["type"].lower()).newbyteorder("<")
        assert column["at"] % 8 == 0
        values = np.frombuffer(content, kind, column["length"], column["at"])
        found[column["name"]] = (np.cumsum(values) if column["differences"] else values).tolist()
    return found


def data_of(timeline, **how):
    """Return an execution as the scripts read it, and its columns."""
    data, content = played_data(timeline, **how)
    return data, {name: np.array(column, dtype=np.int64) for name, column in unpacked(data["columns"], content).items()}


def rows(columns, *names):
    """Return columns row by row."""
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


def waiting(data, columns, time):
    """Return how many micro-batches wait on each lane at a time."""
    behind = [gap for gap in data["gaps"] if (gap["start"] + gap["end"]) / 2 < time]
    found = np.array(behind[-1]["more"] if behind else [0] * len(data["lanes"]))
    held = (columns["slot.start"] < time) & (columns["slot.end"] > time)
    return (found + np.bincount(columns["slot.lane"][held], minlength=len(found))).tolist()


def computed(data, columns, time):
    """Return the cycles of passes up to a time that lies in no gap."""
    start, end = (columns[name][of_kinds(columns["kind"], PASSES)] for name in ("start", "end"))
    drawn = np.minimum(end, time) - np.minimum(start, time)
    return int(drawn.sum()) + sum(gap["busy"] for gap in data["gaps"] if gap["end"] <= time)
