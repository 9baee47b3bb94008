"""A reader of Perfetto traces."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, Trace, TracePacket, TrackEvent


class PerfettoReader:
    """A Perfetto trace read back by the library's own messages, as a viewer does.

    Attributes:
        tracks: path of each track, from the top: its name, with those that it lies under before it.
        slices: track, name, category, start_ns, end_ns, args, leaving, arriving, and how many are open around it.
        counters: (time_ns, value) of each counter's track; ``units`` has their units.
    """

    def __init__(self, trace: bytes) -> None:
        self.descriptors, self.slices, self.counters = {}, [], defaultdict(list)
        names: dict[str, dict[int, str]] = {}
        events = []
        for packet in Trace.FromString(trace).packet:
            if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                names = defaultdict(dict)
            for field, entries in packet.interned_data.ListFields():
                for entry in entries:
                    names[field.name][entry.iid] = entry.str.decode() if hasattr(entry, "str") else entry.name
            if packet.HasField("track_descriptor"):
                self.descriptors[packet.track_descriptor.uuid] = packet.track_descriptor
            elif packet.HasField("track_event"):
                events.append((packet.timestamp, packet.track_event, names))
        events.sort(key=lambda event: event[0])
        open_slices = defaultdict(list)
        for time_ns, event, known in events:
            track = self.path(event.track_uuid)
            match event.type:
                case TrackEvent.TYPE_COUNTER:
                    self.counters[track].append((time_ns, event.counter_value))
                case TrackEvent.TYPE_SLICE_BEGIN:
                    found = SimpleNamespace(
                        track=track,
                        name=event.name or known["event_names"][event.name_iid],
                        category=known["event_categories"][event.category_iids[0]],
                        start_ns=time_ns,
                        end_ns=None,
                        args={
                            known["debug_annotation_names"][each.name_iid]: _argument(each, known)
                            for each in event.debug_annotations
                        },
                        leaving=list(event.flow_ids),
                        arriving=list(event.terminating_flow_ids),
                        around=len(open_slices[track]),
                    )
                    open_slices[track].append(found)
                    self.slices.append(found)
                case TrackEvent.TYPE_SLICE_END:
                    open_slices[track].pop().end_ns = time_ns
        assert not any(open_slices.values())

    @property
    def tracks(self) -> list[tuple[str, ...]]:
        return [self.path(uuid) for uuid in self.descriptors]

    @property
    def units(self) -> dict[tuple[str, ...], str]:
        counters = {uuid: each.counter for uuid, each in self.descriptors.items() if each.HasField("counter")}
        return {
            self.path(uuid): counter.unit_name or CounterDescriptor.Unit.Name(counter.unit)
            for uuid, counter in counters.items()
        }

    def path(self, uuid: int) -> tuple[str, ...]:
        track = self.descriptors[uuid]
        return (*(self.path(track.parent_uuid) if track.parent_uuid else ()), track.name)


def _argument(each, known):
    if each.HasField("string_value_iid"):
        return known["debug_annotation_string_values"][each.string_value_iid]
    return each.string_value if each.HasField("string_value") else each.int_value
