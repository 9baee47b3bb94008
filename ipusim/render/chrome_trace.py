"""The run as Trace Event JSON, which Perfetto and chrome://tracing open.

Three processes: the IPUs (a thread each), the link directions that carry
traffic, and the host; and a fourth, the I/O tiles of the IPUs, where they work.
A span of all IPUs lies on every IPU's track. Every slice carries its exact cycles
in ``args``. Source: "Trace Event Format", the Chromium project's document of the
format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.ops import Op, Pass
from ipusim.render.trace_clock import to_microseconds, to_units
from ipusim.render.trace_counters import counters
from ipusim.render.trace_flows import flows
from ipusim.timeline.timeline import ALL_IPUS, IO_TILE_KINDS, NONE, SpanKind, Timeline

Integers = npt.NDArray[np.int64]

#: Numbers of the processes; 0 is Perfetto's own for a machine's idle process.
IPUS, LINKS, HOST, IO_TILES = 1, 2, 3, 4

#: Passes are named as in a printed schedule, ``F1.3``.
_LETTERS: Final = {int(each): str(Op(each, 0, 0))[0] for each in Pass}
_LAST_PASS: Final = int(SpanKind.RECOMPUTE)
_NAMES: Final[dict[int, str]] = {
    SpanKind.WEIGHT_UPDATE: "weight update",
    SpanKind.SYNC: "sync",
    SpanKind.EXCHANGE: "exchange",
    SpanKind.LINK: "carry",
    SpanKind.INFEED: "infeed",
    SpanKind.OUTFEED: "outfeed",
    SpanKind.HOST_WAIT: "host wait",
    SpanKind.SYNC_WAIT: "sync wait",
    SpanKind.HOST: "host",
    SpanKind.ALL_REDUCE: "all-reduce",
    SpanKind.REMOTE_LOAD: "load from Streaming Memory",
    SpanKind.REMOTE_STORE: "store to Streaming Memory",
    SpanKind.OVERLAPPED_INFEED: "infeed",
    SpanKind.OVERLAPPED_OUTFEED: "outfeed",
    SpanKind.OVERLAPPED_WAIT: "host wait",
    SpanKind.ALL_GATHER: "all-gather",
}
#: Colours by chrome://tracing's own names: it would give every ``F0.1`` a colour of its own (Perfetto leaves
#: the numbers out when it picks one, and this key unread).
_COLOURS: Final[dict[int, str]] = {
    SpanKind.FORWARD: "thread_state_runnable",
    SpanKind.BACKWARD: "thread_state_iowait",
    SpanKind.RECOMPUTE: "yellow",
    SpanKind.WEIGHT_UPDATE: "rail_response",
    SpanKind.SYNC: "grey",
    SpanKind.EXCHANGE: "thread_state_running",
    SpanKind.LINK: "thread_state_running",
    SpanKind.INFEED: "black",
    SpanKind.OUTFEED: "black",
    SpanKind.HOST_WAIT: "terrible",
    SpanKind.SYNC_WAIT: "white",
    SpanKind.HOST: "black",
    SpanKind.ALL_REDUCE: "rail_load",
    SpanKind.REMOTE_LOAD: "olive",
    SpanKind.REMOTE_STORE: "olive",
    SpanKind.OVERLAPPED_INFEED: "black",
    SpanKind.OVERLAPPED_OUTFEED: "black",
    SpanKind.OVERLAPPED_WAIT: "terrible",
    SpanKind.ALL_GATHER: "rail_load",
}
#: Tracks of the host for each replica, in the order of their numbers in a Timeline.
_FEEDS: Final = ("infeed", "outfeed")
#: Lines written at a time.
_CHUNK: Final = 4096


def write_trace(timeline: Timeline, file: BinaryIO) -> None:
    """Write the trace file of a run, an event a line; equal Timelines give equal bytes."""
    info = timeline.info
    about = {
        "name": info.name,
        "system": info.system,
        "schedule": info.schedule,
        "selection_order": info.selection_order,
        "clock_hz": info.clock_hz,
    }
    file.write(f'{{"displayTimeUnit":"ns","otherData":{_text(about)},"traceEvents":[\n'.encode())
    lines = trace_lines(timeline)
    separator = ""
    while chunk := list(islice(lines, _CHUNK)):
        file.write((separator + ",\n".join(chunk)).encode())
        separator = ",\n"
    file.write(b"\n]}\n")


def trace_lines(timeline: Timeline) -> Iterator[str]:
    """Yield each event of the trace file as JSON: names first, then all others by rising time.

    Slices that take no time are left out, but for passes, which flows need.
    """
    yield from map(_text, _names(timeline))
    parts = [_slices(timeline), *_flow_ends(timeline), *_counters(timeline)]
    when = np.concatenate([times for times, _ in parts])
    part = np.repeat(np.arange(len(parts)), [len(times) for times, _ in parts])
    # Of events of one time, a slice comes before the flow that starts or ends in it.
    order = np.lexsort((part, when))
    streams = [lines for _, lines in parts]
    for which in part[order].tolist():
        yield next(streams[which])


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _names(timeline: Timeline) -> Iterator[dict[str, Any]]:
    info = timeline.info
    holders = info.stages_of_ipu
    feeds = [
        feed if info.replicas == 1 else f"{feed} of replica {replica}"
        for replica in range(info.replicas)
        for feed in _FEEDS
    ]
    ipus = [
        f"IPU {ipu}" + (f" (on {physical})" if physical != ipu else "") + ("" if ipu in holders else ", no stage")
        for ipu, physical in enumerate(info.ipus)
    ]
    tracks = [(IPUS, "IPUs", ipus), (LINKS, "IPU-Links", list(info.links)), (HOST, "host", feeds)]
    if len(timeline.rows(*IO_TILE_KINDS)):
        tracks.append((IO_TILES, "I/O tiles", ipus))
    for pid, process, threads in tracks:
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        for tid, thread in enumerate(threads, start=1):
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _slices(timeline: Timeline) -> tuple[Integers, Iterator[str]]:
    """Return the times of all slices, rising, and the slices."""
    info = timeline.info
    rows = np.flatnonzero((timeline.end > timeline.start) | (timeline.kind <= SpanKind.RECOMPUTE))
    kind, link = timeline.kind[rows], timeline.link[rows]
    pid = np.where(kind == SpanKind.LINK, LINKS, np.where(kind == SpanKind.HOST, HOST, IPUS))
    pid = np.where(np.isin(kind, IO_TILE_KINDS), IO_TILES, pid)
    # Of link and host tracks each row is one slice, like those of one IPU.
    alone = (pid == LINKS) | (pid == HOST)
    source, track = timeline.on_each_ipu(rows[~alone])
    source = np.concatenate([source, rows[alone]])
    host = np.where(kind == SpanKind.HOST, len(_FEEDS) * timeline.replica[rows], 0)
    track = np.concatenate([track, (link + host)[alone]])
    order = np.lexsort((track, source))
    source, track = source[order], track[order]
    place = np.searchsorted(rows, source)
    start = to_units(timeline.start[source], info.clock_hz)
    end = to_units(timeline.end[source], info.clock_hz)
    # Rows are sorted by start, and rounding keeps that order.
    columns = (
        pid[place].tolist(),
        (track + 1).tolist(),
        to_microseconds(start),
        to_microseconds(end - start),
        *(
            getattr(timeline, name)[source].tolist()
            for name in ("start", "end", "kind", "stage", "micro_batch", "time_step", "execution", "bytes", "ipu")
        ),
    )
    return start, map(_slice, *columns)


def _slice(
    pid: int,
    tid: int,
    start_us: float,
    length_us: float,
    start: int,
    end: int,
    kind: int,
    stage: int,
    micro_batch: int,
    time_step: int,
    execution: int,
    size: int,
    ipu: int,
) -> str:
    # The json module takes several times as long, for text that holds nothing to escape.
    args = f'"start_cycles":{start},"end_cycles":{end}'
    if stage != NONE:
        args += f',"stage":{stage}'
    if micro_batch != NONE:
        args += f',"micro_batch":{micro_batch}'
    if time_step != NONE:
        args += f',"time_step":{time_step}'
    if execution != NONE:
        args += f',"execution":{execution}'
    if size and (pid != IPUS or ipu != ALL_IPUS):  # a merged copy's bytes are its links'; here they would count N times
        args += f',"bytes":{size}'
    name = f"{_LETTERS[kind]}{stage}.{micro_batch}" if kind <= _LAST_PASS else _NAMES[kind]
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{start_us!r},"dur":{length_us!r},'
        f'"name":"{name}","cname":"{_COLOURS[kind]}","args":{{{args}}}}}'
    )


def _flow_ends(timeline: Timeline) -> list[tuple[Integers, Iterator[str]]]:
    """Return starts and ends of flows; an end binds to the slice around it (``bp`` of ``e``), like a start."""
    found = flows(timeline)
    clock = timeline.info.clock_hz
    began, ended = (to_units(column[found.source], clock) for column in (timeline.start, timeline.end))
    # Just inside the source's end: at its end the next slice has begun.
    leaves = np.maximum(began, ended - 1)
    arrives = to_units(timeline.start[found.target], clock)
    numbers = np.arange(1, len(found.source) + 1)
    sides: list[tuple[Integers, Iterator[str]]] = []
    for phase, rows, times in (('"s"', found.source, leaves), ('"f","bp":"e"', found.target, arrives)):
        order = np.argsort(times, kind="stable")
        columns = zip(
            (timeline.ipu[rows] + 1)[order].tolist(),
            to_microseconds(times[order]),
            numbers[order].tolist(),
            np.where(found.forward, "activations", "gradients")[order].tolist(),
            strict=True,
        )
        sides.append((times[order], _flow_lines(phase, columns)))
    return sides


def _flow_lines(phase: str, columns: Iterator[tuple[int, float, int, str]]) -> Iterator[str]:
    for tid, ts, number, name in columns:
        yield f'{{"ph":{phase},"pid":{IPUS},"tid":{tid},"ts":{ts!r},"name":"{name}","cat":"copy","id":{number}}}'


def _counters(timeline: Timeline) -> list[tuple[Integers, Iterator[str]]]:
    parts: list[tuple[Integers, Iterator[str]]] = []
    for counter in counters(timeline):
        times = to_units(counter.cycles, timeline.info.clock_hz)
        # Of changes within one unit of the file only the last is seen.
        keep = np.append(times[1:] != times[:-1], True)[: len(times)]
        columns = zip(to_microseconds(times[keep]), counter.value[keep].tolist(), strict=True)
        parts.append((times[keep], _counter_lines(counter.name, counter.unit, columns)))
    return parts


def _counter_lines(name: str, unit: str, columns: Iterator[tuple[float, int]]) -> Iterator[str]:
    for ts, value in columns:
        yield f'{{"ph":"C","pid":{IPUS},"tid":0,"ts":{ts!r},"name":"{name}","args":{{"{unit}":{value}}}}}'
