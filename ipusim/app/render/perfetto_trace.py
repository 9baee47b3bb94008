"""Write the Perfetto trace of a run: protobuf packets for ui.perfetto.dev and trace_processor.

Messages come from the ``perfetto`` package, whose protocol documents their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from ipusim.api import SpanKind, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.packets import fill
from ipusim.app.render.trace_content import ABOUT, Band, Slices, TraceContent
from ipusim.app.render.trace_tracks import Track

#: Sequence number of all packets.
_SEQUENCE: Final = 1
_UNITS: Final = {"bytes": CounterDescriptor.UNIT_SIZE_BYTES}
#: Arguments that every slice has, as numbers.
_CYCLES: Final = ("start_cycles", "end_cycles")
#: Arguments that some slices have, as numbers.
_NUMBERS: Final = ("stage", "micro_batch", "time_step", "execution", "bytes")
#: Arguments that some slices have, as texts.
_TEXTS: Final = ("stage_name", "layers", "sends", "receives")
#: Interned names of arguments: a packet refers to a name by its position + 1.
_ARGUMENTS: Final = (*_CYCLES, *_NUMBERS, *_TEXTS, *ABOUT)
#: Interned names of categories, referred to in the same way.
_CATEGORIES: Final = (*dict.fromkeys(kind.row.category for kind in sorted(SpanKind)), "execution", "phase")
#: Reference to the category of each span kind.
_CATEGORY_OF: Final = timelines.by_number(lambda row: _CATEGORIES.index(row.category) + 1)


def write_perfetto_trace(content: TraceContent, write: Callable[[bytes], object]) -> None:
    """Write the trace file of a run; equal Timelines give equal bytes.

    Packets of one track follow the order of time, as readers require. Different tracks have no common order.
    """
    info = content.timeline.info
    write(_names((), ()))
    for number, track in enumerate(content.tracks.entries):
        write(_descriptor(number, track))
    for parent, band in content.bands():
        write(_band(_uuid(parent), band))
    for counter in content.counters:
        message = partial(_value, _uuid(content.tracks.counter[counter.name, counter.ipu]))
        write(b"".join(fill(message, {"time_ns": counter.nanoseconds, "value": counter.value})))
    for slices in content.slices():
        write(b"".join(_slices(slices, info.stages, info.layers_of)))


def _uuid(track: int) -> int:
    return track + 1  # 0 is the default track of events without a track


def _bytes(trace: Trace) -> bytes:
    content: bytes = trace.SerializeToString(deterministic=True)
    return content


def _packet(trace: Trace, time_ns: int = 0) -> TracePacket:
    """Add a packet to a trace; concatenated traces form one trace."""
    flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    return trace.packet.add(trusted_packet_sequence_id=_SEQUENCE, sequence_flags=flags, timestamp=time_ns)


def _event(trace: Trace, kind: TrackEvent.Type.ValueType, track: int, time_ns: int) -> TrackEvent:
    """Add a packet with an event to a trace, and return the event."""
    event = _packet(trace, time_ns).track_event
    event.type, event.track_uuid = kind, track
    return event


def _names(events: Sequence[str], texts: Sequence[str]) -> bytes:
    """Return the packet that replaces all interned names.

    Replacement keeps the number of names bounded, for readers and for this writer.
    """
    trace = Trace()
    packet = _packet(trace)
    packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    interned = packet.interned_data
    tables = interned.debug_annotation_names, interned.event_categories, interned.event_names
    for table, names in zip(tables, (_ARGUMENTS, _CATEGORIES, events), strict=True):
        for number, name in enumerate(names, start=1):
            table.add(iid=number, name=name)
    for number, name in enumerate(texts, start=1):
        interned.debug_annotation_string_values.add(iid=number, str=name.encode())
    return _bytes(trace)


def _descriptor(number: int, track: Track) -> bytes:
    """Return the packet that describes a track."""
    trace = Trace()
    descriptor = _packet(trace).track_descriptor
    descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = _uuid(number), track.name, number
    descriptor.child_ordering = TrackDescriptor.EXPLICIT
    if track.description:
        descriptor.description = track.description
    if track.parent is not None:
        descriptor.parent_uuid = _uuid(track.parent)
    if track.unit:
        counter = descriptor.counter
        # Counters of one name share a scale, which makes the memory of IPUs comparable.
        counter.y_axis_share_key = track.name
        if track.unit in _UNITS:
            counter.unit = _UNITS[track.unit]
        else:
            counter.unit_name = track.unit
    return _bytes(trace)


def _argument(event: TrackEvent, name: str, number: int) -> None:
    event.debug_annotations.add(name_iid=_ARGUMENTS.index(name) + 1, int_value=number)


def _band(track: int, band: Band) -> bytes:
    """Return begin and end packets of a band, with its inner bands between them."""
    begin, end = Trace(), Trace()
    event = _event(begin, TrackEvent.TYPE_SLICE_BEGIN, track, band.start_ns)
    event.name = band.name
    event.category_iids.append(_CATEGORIES.index(band.category) + 1)
    for name, value in band.arguments.items():
        if isinstance(value, int):
            _argument(event, name, value)
        else:
            event.debug_annotations.add(name_iid=_ARGUMENTS.index(name) + 1, string_value=value)
    _event(end, TrackEvent.TYPE_SLICE_END, track, band.end_ns)
    inside = (_band(track, part) for part in band.parts)
    return b"".join((_bytes(begin), *inside, _bytes(end)))


def _value(track: int, marks: Mapping[str, int]) -> bytes:
    trace = Trace()
    _event(trace, TrackEvent.TYPE_COUNTER, track, marks["time_ns"]).counter_value = marks["value"]
    return _bytes(trace)


def _slices(slices: Slices, stages: Sequence[str], layers: Sequence[str]) -> list[bytes]:
    """Return the interned names of slices, then begin and end packets of each."""
    events, event_numbers = _with_numbers(slices.name)
    texts, text_numbers = _with_numbers([*stages, *layers, *slices.sends, *slices.receives])
    sizes = [len(stages), len(layers), len(slices.name)]
    of_stage, of_layers, sends, receives = np.split(text_numbers, np.cumsum(sizes))
    numbers: dict[str, Integers] = {
        "start_ns": slices.start_ns,
        "end_ns": slices.end_ns,
        "track": _uuid(0) + slices.track,
        "name": event_numbers,
        "category": _CATEGORY_OF[slices.kind],
        **slices.numbers,
        "stage_name": np.append(of_stage, 0)[slices.numbers["stage"]],  # position -1 means no stage
        "layers": np.append(of_layers, 0)[slices.numbers["stage"]],
        "sends": sends,
        "receives": receives,
    }
    flows = {f"leaves {position}": column for position, column in enumerate(slices.departures.T)}
    flows |= {f"arrives {position}": column for position, column in enumerate(slices.arriving.T)}
    presence = {name: numbers[name] != timelines.NONE for name in _NUMBERS} | {"bytes": numbers["bytes"] > 0}
    presence |= {name: numbers[name] > 0 for name in _TEXTS} | {name: column > 0 for name, column in flows.items()}
    # Slices with the same arguments and number of flows become one batch.
    shape = sum(
        (has.astype(np.int64) << position for position, has in enumerate(presence.values())), np.zeros_like(slices.row)
    )
    packets = np.empty(len(slices.row), dtype=object)
    for code in np.unique(shape).tolist():
        members = np.flatnonzero(shape == code)
        absent = {name for position, name in enumerate(presence) if not code >> position & 1}
        varints = {name: column[members] for name, column in numbers.items() if name not in absent}
        flow_columns = {name: column[members] for name, column in flows.items() if name not in absent}
        packets[members] = fill(_slice, varints, flow_columns)
    return [_names(events, texts), *packets.tolist()]


def _with_numbers(names: Sequence[str]) -> tuple[list[str], Integers]:
    """Return the distinct names, and each name's number among them, counted from 1; an empty name has number 0."""
    distinct = [name for name in dict.fromkeys(names) if name]
    numbers = {name: number for number, name in enumerate(distinct, start=1)} | {"": 0}
    return distinct, np.fromiter(map(numbers.__getitem__, names), dtype=np.int64, count=len(names))


def _slice(marks: Mapping[str, int]) -> bytes:
    """Return begin and end packets of a slice, with placeholders for its numbers."""
    trace = Trace()
    event = _event(trace, TrackEvent.TYPE_SLICE_BEGIN, marks["track"], marks["start_ns"])
    event.name_iid = marks["name"]
    event.category_iids.append(marks["category"])
    for name in (*_CYCLES, *_NUMBERS):
        if name in marks:
            _argument(event, name, marks[name])
    for name in _TEXTS:
        if name in marks:
            event.debug_annotations.add(name_iid=_ARGUMENTS.index(name) + 1, string_value_iid=marks[name])
    event.flow_ids.extend(mark for name, mark in marks.items() if name.startswith("leaves"))
    event.terminating_flow_ids.extend(mark for name, mark in marks.items() if name.startswith("arrives"))
    _event(trace, TrackEvent.TYPE_SLICE_END, marks["track"], marks["end_ns"])
    return _bytes(trace)
