"""Numbers that change over a run: busy IPUs, micro-batches in flight, bytes being copied, memory of each IPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ipusim.api import SpanKind, Timeline, analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.shortened import in_the_run
from ipusim.app.render.trace_clock import to_nanoseconds


@dataclass(frozen=True)
class Counter:
    """A number over time: ``value`` holds from each of the rising ``nanoseconds`` to the next.

    Attributes:
        name, unit: for people; bytes are named ``bytes``.
        nanoseconds, value: columns of one length.
        ipu: the logical IPU whose number it is; None for one of the whole pipeline.
    """

    name: str
    unit: str
    nanoseconds: Integers
    value: Integers
    ipu: int | None = None


def counters(
    timeline: Timeline,
    memory: Sequence[analysis.MemoryCurve] = (),
    waterfall: analysis.Waterfall | None = None,
) -> tuple[Counter, ...]:
    """Return the counters of a run, with the memory of the IPUs in ``memory``.

    Known parts of the run's time are constant counters from its start on.

    In repeats of blocks without rows, counters keep their values from the repeats' beginning.
    """
    run, timeline = timeline, timeline.contiguous()
    compute = timeline.rows(*timelines.COMPUTE_KINDS)
    copies = timeline.rows(SpanKind.EXCHANGE, SpanKind.SEND, SpanKind.BLOCKING_SEND)
    first, last = _lives(timeline)
    one = np.ones_like
    busy = timeline.start[compute], timeline.end[compute]
    copied = timeline.start[copies], timeline.end[copies], timeline.bytes[copies]
    clock_hz = timeline.info.clock_hz
    copied_words = "bytes per merged copy" if timeline.info.has_time_steps else "bytes on their way"
    of_all = (
        ("busy IPUs", "IPUs", _levels(*busy, one(compute))),
        ("micro-batches in flight", "micro-batches", _levels(first, last, one(first))),
        (copied_words, "bytes", _levels(*copied)),
    )
    return (
        *(_counter(clock_hz, name, unit, in_the_run(run, at), level) for name, unit, (at, level) in of_all),
        *_parts(waterfall),
        *(_counter(clock_hz, "memory", "bytes", curve.time, curve.allocated_bytes, curve.ipu) for curve in memory),
    )


def _parts(waterfall: analysis.Waterfall | None) -> Iterator[Counter]:
    """Yield a counter for each part of the run's time, in cycles; its name has the share that the verdict tells."""
    at = np.zeros(1, dtype=np.int64)
    if waterfall is None:
        return
    for part, cycles in waterfall.cycles.items():
        if cycles:
            name = f"time goes into {part.words}, {waterfall.share(part):.1%}"
            yield Counter(name, "cycles", at, np.array([cycles], dtype=np.int64))


def _counter(clock_hz: int, name: str, unit: str, cycles: Integers, value: Integers, ipu: int | None = None) -> Counter:
    """Return a counter without invisible changes: to the same value, or within one nanosecond."""
    nanoseconds = to_nanoseconds(cycles, clock_hz)
    last = np.append(nanoseconds[1:] != nanoseconds[:-1], True)[: len(cycles)]
    nanoseconds, value = nanoseconds[last], value[last]
    changes = np.append(True, value[1:] != value[:-1])[: len(value)]
    return Counter(name, unit, nanoseconds[changes], value[changes], ipu)


def _lives(timeline: Timeline) -> tuple[Integers, Integers]:
    """Return the start of each micro-batch's first pass, and the end of its last."""
    rows = timeline.rows(*timelines.PASSES)
    executed = timeline.replica[rows] * timeline.info.executions + timeline.execution[rows]
    batch = executed * timeline.info.count + timeline.micro_batch[rows]
    # Rows are sorted by start, so a micro-batch's first row is its earliest.
    _, earliest, position = np.unique(batch, return_index=True, return_inverse=True)
    last = np.zeros(len(earliest), dtype=np.int64)
    np.maximum.at(last, position, timeline.end[rows])
    return timeline.start[rows[earliest]], last


def _levels(start: Integers, end: Integers, weight: Integers) -> tuple[Integers, Integers]:
    """Return the cycles at which the sum of the weights of the open intervals changes, and to what."""
    times, position = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, position, np.concatenate([weight, -weight]))
    return times, np.cumsum(change)
