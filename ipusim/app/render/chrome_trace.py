"""The run as Trace Event JSON, which chrome://tracing opens, and Perfetto too.

Each group of tracks is a process and each track a thread. Source: "Trace Event
Format", the Chromium project's document of the format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from ipusim.api import timelines
from ipusim.app.render.trace_clock import to_microseconds
from ipusim.app.render.trace_content import Band, Slices, TraceContent, about_run
from ipusim.app.render.trace_counters import Counter

#: Of the numbers of threads: a thread that has its process's number would be shown as a main thread.
_FIRST_THREAD: Final = 1001


def write_chrome_trace(content: TraceContent, write: Callable[[bytes], object]) -> None:
    """Write the trace file of a run, an event a line; equal Timelines give equal bytes."""
    info = content.timeline.info
    about = _text({"name": info.name, **about_run(info)})
    write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n'.encode())
    separator = ""
    for lines in filter(None, _parts(content)):
        write((separator + ",\n".join(lines)).encode())
        separator = ",\n"
    write(b"\n]}\n")


def _parts(content: TraceContent) -> Iterator[list[str]]:
    """Yield events as JSON, many at a time; of events of one time, a slice comes before the flows at it."""
    yield list(map(_text, _names(content)))
    yield [line for track, band in content.bands() for line in _band(content, track, band)]
    for counter in content.counters:
        yield _counter(content, counter)
    for slices in content.slices():
        yield list(_slices(content, slices))
        yield from _flows(content, slices)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _pid(content: TraceContent, track: int) -> int:
    return content.tracks.group_of(track) + 1  # 0 is Perfetto's own, for a machine's idle process


def _tid(track: int) -> int:
    return track + _FIRST_THREAD


def _names(content: TraceContent) -> Iterator[dict[str, Any]]:
    """Yield names and order of processes and threads; numbers over time have neither."""
    for number, track in enumerate(content.tracks.all):
        if track.unit:
            continue
        of = "process" if track.group else "thread"
        where = {"pid": _pid(content, number), "tid": 0 if track.group else _tid(number)}
        yield {"ph": "M", "name": f"{of}_name", **where, "args": {"name": content.tracks.path(number)}}
        yield {"ph": "M", "name": f"{of}_sort_index", **where, "args": {"sort_index": number}}


def _band(content: TraceContent, track: int, band: Band) -> Iterator[str]:
    start_us, length_us = to_microseconds(np.array([band.start_ns, band.end_ns - band.start_ns]))
    yield _text(
        {
            "ph": "X",
            "pid": _pid(content, track),
            "tid": _tid(track),
            "ts": start_us,
            "dur": length_us,
            "name": band.name,
            "cat": band.category,
            "args": band.arguments,
        }
    )
    for part in band.parts:
        yield from _band(content, track, part)


def _counter(content: TraceContent, counter: Counter) -> list[str]:
    number = content.tracks.counter[counter.name, counter.ipu]
    name = counter.name if counter.ipu is None else f"{counter.name} of IPU {counter.ipu}"
    start = f'{{"ph":"C","pid":{_pid(content, number)},"tid":0,"name":"{name}","ts":'
    times = zip(to_microseconds(counter.nanoseconds), counter.value.tolist(), strict=True)
    return [f'{start}{ts!r},"args":{{"{counter.unit}":{value}}}}}' for ts, value in times]


def _slices(content: TraceContent, slices: Slices) -> Iterator[str]:
    # The json module takes several times as long; only the names of stages hold anything to escape.
    looks = timelines.by_number(lambda row: f'"cname":"{row.colour}","cat":"{row.category}"').tolist()
    where = [f'"pid":{_pid(content, number)},"tid":{_tid(number)}' for number in range(len(content.tracks.all))]
    info = content.timeline.info
    stages = [
        f',"stage":{number},"stage_name":{_text(name)}' + (f',"layers":{_text(layers)}' if layers else "")
        for number, (name, layers) in enumerate(zip(info.stages, info.layers_of, strict=True))
    ]
    stages.append("")  # the last position is that of no stage
    for track, kind, ts, dur, name, sends, receives, start, end, stage, micro_batch, time_step, execution, size in zip(
        slices.track.tolist(),
        slices.kind.tolist(),
        to_microseconds(slices.start_ns),
        to_microseconds(slices.end_ns - slices.start_ns),
        slices.name,
        slices.sends,
        slices.receives,
        *(column.tolist() for column in slices.numbers.values()),
        strict=True,
    ):
        args = f'"start_cycles":{start},"end_cycles":{end}{stages[stage]}'
        if micro_batch != timelines.NONE:
            args += f',"micro_batch":{micro_batch}'
        if time_step != timelines.NONE:
            args += f',"time_step":{time_step}'
        if execution != timelines.NONE:
            args += f',"execution":{execution}'
        if size:
            args += f',"bytes":{size}'
        if sends:
            args += f',"sends":"{sends}"'
        if receives:
            args += f',"receives":"{receives}"'
        yield f'{{"ph":"X",{where[track]},"ts":{ts!r},"dur":{dur!r},"name":"{name}",{looks[kind]},"args":{{{args}}}}}'


def _flows(content: TraceContent, slices: Slices) -> Iterator[list[str]]:
    """Yield starts and ends of flows; an end binds to the slice around it (``bp`` of ``e``), like a start."""
    # Just inside the source's end: at its end the next slice has begun.
    leaves_ns = np.maximum(slices.start_ns, slices.end_ns - 1)
    sides = ('"ph":"s"', slices.leaving, leaves_ns), ('"ph":"f","bp":"e"', slices.arriving, slices.start_ns)
    for phase, flows, time_ns in sides:
        position, which = np.nonzero(flows)
        numbers = flows[position, which]
        columns = zip(
            slices.track[position].tolist(),
            to_microseconds(time_ns[position]),
            numbers.tolist(),
            np.where(content.flows.forward[numbers - 1], "activations", "gradients").tolist(),
            strict=True,
        )
        yield [
            f'{{{phase},"pid":{_pid(content, track)},"tid":{_tid(track)},"ts":{ts!r},'
            f'"name":"{name}","cat":"copy","id":{number}}}'
            for track, ts, number, name in columns
        ]
