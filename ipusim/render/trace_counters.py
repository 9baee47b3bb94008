"""Numbers that change over a run: busy IPUs, micro-batches in flight, bytes being copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ipusim.timeline.timeline import COMPUTE_KINDS, SpanKind, Timeline

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counter:
    """A number over time: ``value`` holds from each of the rising ``cycles`` to the next."""

    name: str
    unit: str
    cycles: Integers
    value: Integers


def counters(timeline: Timeline) -> tuple[Counter, ...]:
    """Return the counters of a run."""
    compute = timeline.rows(*COMPUTE_KINDS)
    copies = timeline.rows(SpanKind.EXCHANGE)
    first, last = _lives(timeline)
    one = np.ones_like
    busy = timeline.start[compute], timeline.end[compute]
    copied = timeline.start[copies], timeline.end[copies], timeline.bytes[copies]
    return (
        Counter("busy IPUs", "IPUs", *_levels(*busy, one(compute))),
        Counter("micro-batches in flight", "micro-batches", *_levels(first, last, one(first))),
        Counter("bytes per merged copy", "bytes", *_levels(*copied)),
    )


def _lives(timeline: Timeline) -> tuple[Integers, Integers]:
    """Return when the first pass of each micro-batch starts, and when its last ends."""
    rows = timeline.rows(SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.RECOMPUTE)
    executed = timeline.replica[rows] * timeline.info.executions + timeline.execution[rows]
    batch = executed * timeline.info.count + timeline.micro_batch[rows]
    # Rows are sorted by start, so a micro-batch's first row is its earliest.
    _, earliest, place = np.unique(batch, return_index=True, return_inverse=True)
    last = np.zeros(len(earliest), dtype=np.int64)
    np.maximum.at(last, place, timeline.end[rows])
    return timeline.start[rows[earliest]], last


def _levels(start: Integers, end: Integers, weight: Integers) -> tuple[Integers, Integers]:
    """Return the cycles at which the sum of the weights of the open intervals changes, and to what."""
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, place, np.concatenate([weight, -weight]))
    level = np.cumsum(change)
    changes = np.append(True, change[1:] != 0)[: len(times)]
    return times[changes], level[changes]
