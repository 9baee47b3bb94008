"""Trace files: Perfetto's read back, and those of torch's profiler written of simulated runs."""

import io
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, Trace, TracePacket, TrackEvent

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.render.perfetto_trace import write_perfetto_trace
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.replay.replay import Replay, replay
from ipusim.timeline.kinds import PASSES, SpanKind
from ipusim.timeline.timeline import Timeline


def perfetto_file(timeline: Timeline, *content: Any) -> bytes:
    """Return the trace file of a Timeline, and of further content."""
    file = io.BytesIO()
    write_perfetto_trace(TraceContent(timeline, *content), file.write)
    return file.getvalue()


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


#: Rank, name, begin and length in microseconds.
Event = tuple[int, str, float, float]


def events_of(timeline: Timeline) -> Iterable[Event]:
    """Yield the passes and updates of a run."""
    us = 1_000_000 / timeline.info.clock_hz
    for span in timeline.expanded():
        kind = SpanKind(span.kind)
        if kind in PASSES:
            assert kind.row.of_pass is not None
            name = f"PP:{span.stage}{kind.row.of_pass.letter}{span.micro_batch}"
        elif kind == SpanKind.WEIGHT_UPDATE:
            name = "Optimizer.step#SGD.step"
        else:
            continue
        yield span.ipu, name, span.start * us, (span.end - span.start) * us


def write_trace(path: Path, events: Iterable[Event]) -> Path:
    """Write a trace in Chrome's format, in which each rank is a process that says its rank."""
    listed = [*events]
    data: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in sorted({rank for rank, *_ in listed})
    ]
    data += [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": name,
            "pid": rank,
            "tid": 0,
            "ts": round(at, 6),
            "dur": round(us, 6),
        }
        for rank, name, at, us in listed
    ]
    path.write_text(json.dumps({"traceEvents": data}))
    return path


def replayed(events: Iterable[Event]) -> Replay:
    """Return a measured step of a trace of such events beside its simulation."""
    with tempfile.TemporaryDirectory() as folder:
        return replayed_files([write_trace(Path(folder, "trace.json"), events)])


def replayed_files(files: list[Path]) -> Replay:
    """Return a measured step of traces beside its simulation."""
    with tempfile.TemporaryDirectory() as folder:
        return replay(stages_of(read_measured(files)), Path(folder), files)
