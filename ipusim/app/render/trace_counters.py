"""Compute counters over a run: busy IPUs, micro-batches in flight, bytes in copies, memory of IPUs."""

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
    """Number over time: ``value`` holds from its entry in ``nanoseconds`` to the next.

    Attributes:
        name, unit: labels for readers; the unit of bytes is ``bytes``.
        nanoseconds, value: columns of equal length; ``nanoseconds`` rises.
        ipu: logical IPU of the number; None for the whole pipeline.
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
    """Return the counters of a run, including the IPUs' ``memory``.

    The parts of the run's time in ``waterfall`` are constant counters. During periods without rows, a counter keeps
    its last value.
    """
    run, timeline = timeline, timeline.contiguous()
    compute = timeline.rows(*timelines.COMPUTE_KINDS)
    copies = timeline.rows(SpanKind.EXCHANGE, SpanKind.SEND, SpanKind.BLOCKING_SEND)
    first, last = _micro_batch_times(timeline)
    busy = timeline.start[compute], timeline.end[compute]
    copy_columns = timeline.start[copies], timeline.end[copies], timeline.bytes[copies]
    clock_hz = timeline.info.clock_hz
    copied_words = "bytes per merged copy" if timeline.info.has_time_steps else "bytes on their way"
    pipeline_counters = (
        ("busy IPUs", "IPUs", _levels(*busy, np.ones_like(compute))),
        ("micro-batches in flight", "micro-batches", _levels(first, last, np.ones_like(first))),
        (copied_words, "bytes", _levels(*copy_columns)),
    )
    return (
        *(
            _counter(clock_hz, name, unit, in_the_run(run, time), level)
            for name, unit, (time, level) in pipeline_counters
        ),
        *_parts(waterfall),
        *(_counter(clock_hz, "memory", "bytes", curve.time, curve.allocated_bytes, curve.ipu) for curve in memory),
    )


def _parts(waterfall: analysis.Waterfall | None) -> Iterator[Counter]:
    """Yield a counter for every part of the run's time, in cycles. Its name contains the share, as in the verdict."""
    start = np.zeros(1, dtype=np.int64)
    if waterfall is None:
        return
    for part, cycles in waterfall.cycles.items():
        if cycles:
            name = f"time goes into {part.words}, {waterfall.share(part):.1%}"
            yield Counter(name, "cycles", start, np.array([cycles], dtype=np.int64))


def _counter(clock_hz: int, name: str, unit: str, cycles: Integers, value: Integers, ipu: int | None = None) -> Counter:
    """Return a counter that changes at most once in a nanosecond, and never to an equal value."""
    nanoseconds = to_nanoseconds(cycles, clock_hz)
    is_last = np.append(nanoseconds[1:] != nanoseconds[:-1], True)[: len(cycles)]
    nanoseconds, value = nanoseconds[is_last], value[is_last]
    changes = np.append(True, value[1:] != value[:-1])[: len(value)]
    return Counter(name, unit, nanoseconds[changes], value[changes], ipu)


def _micro_batch_times(timeline: Timeline) -> tuple[Integers, Integers]:
    """Return the start of every micro-batch's first pass, and the end of its last pass."""
    rows = timeline.rows(*timelines.PASSES)
    executed = timeline.replica[rows] * timeline.info.executions + timeline.execution[rows]
    batch = executed * timeline.info.count + timeline.micro_batch[rows]
    # Rows are sorted by start: a micro-batch's first row is its earliest.
    _, earliest, position = np.unique(batch, return_index=True, return_inverse=True)
    last = np.zeros(len(earliest), dtype=np.int64)
    np.maximum.at(last, position, timeline.end[rows])
    return timeline.start[rows[earliest]], last


def _levels(start: Integers, end: Integers, weight: Integers) -> tuple[Integers, Integers]:
    """Return the times at which the summed weight of open intervals changes, and the sum from each time on."""
    times, position = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, position, np.concatenate([weight, -weight]))
    return times, np.cumsum(change)
