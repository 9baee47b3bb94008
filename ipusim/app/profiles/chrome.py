"""Read passes from Chrome traces of torch's profiler and other tools: JSON events named after passes.

The format is Chrome's Trace Event Format: a mapping with ``traceEvents``, a list of events with an optional closing
bracket, or an event per line. Complete events (X), pairs of begin and end (B, E) and asynchronous pairs (b, e) are
spans, metadata (M) name processes. Torch 2's profiler (Kineto, schemaVersion 1) adds ``distributedInfo`` with rank,
``world_size`` and groups of ranks. Times are microseconds. A span of record_function has the category
``user_annotation`` on the host, and ``gpu_user_annotation`` on each stream of its kernels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from ipusim.api import runs
from ipusim.app.profiles.names import PASSES, TORCH, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import LONGEST_US, Fact, Options, Recording
from ipusim.app.profiles.workers import Lanes, exact
from ipusim.base.errors import FileError

#: Beginning of a Chrome trace, distinct from a log line with its rank in brackets.
STARTS: Final = re.compile(rb"\s*(\{\s*[\"}]|\[\s*([{\]]|\Z))")
#: Category of spans of record_function on a device.
_DEVICE: Final = "gpu_user_annotation"
#: Category of kernels.
_KERNEL: Final = "kernel"
#: Rank in a process's name or label.
_RANK: Final = re.compile(r"(?i)\brank[\s:_#=-]*(\d{1,6})\b")
#: Maximum time in microseconds: larger floats are no times.
_LATEST_US: Final = float(1 << 62)
#: Maximum number of simultaneously open events per thread.
_MOST_OPEN_EVENTS: Final = 10_000
#: Start, name and category of an open span.
_OpenEvent = tuple[Any, str, Any]


def read(source: Source, options: Options) -> Recording:
    """Return the spans of passes in a trace; raises FileError for damaged or too large traces."""
    reader = _Reader(source, Names(options.names, TORCH))
    stream = source.json()
    if stream.peek() == "[":
        reader.note_all(stream.items(may_be_open=True))
    while stream.peek() == "{":
        facts: dict[str, Any] = {}
        for key in stream.members():
            if key == "traceEvents" and stream.peek() == "[":
                reader.note_all(stream.items())
            else:
                facts[key] = stream.value()
        reader.note_run(facts.get("distributedInfo"))
        reader.note_all([facts])
    if trailing := stream.peek():
        raise FileError(f"{source.path}: expected a trace, got {trailing!r} after its end")
    return reader.recording()


class _Reader:
    """Collector of spans and facts from events."""

    def __init__(self, source: Source, names: Names) -> None:
        self._source, self._names = source, names
        self.recording_so_far = Recording(source.path, "torch.profiler")
        self._lanes = Lanes(self.recording_so_far, names)
        self._open_events: dict[tuple[Any, ...], list[_OpenEvent]] = defaultdict(list)
        self._has_kernels = self._has_device_spans = False

    def note_all(self, events: Iterable[Any]) -> None:
        """Collect events."""
        for event in events:
            is_event = isinstance(event, dict)
            self._source.event(is_event)
            kind = event.get("ph") if is_event else None
            if kind == "X":
                self._add_span(event, event.get("name"), event.get("ts", 0), event.get("dur"), event.get("cat"))
            elif kind in ("B", "b"):
                stack = self._open_events[self._key(event, kind)]
                if len(stack) == _MOST_OPEN_EVENTS:
                    raise FileError(
                        f"{self._source.path}: expected fewer events inside each other, got {_MOST_OPEN_EVENTS:,} open "
                        "at once"
                    )
                stack.append((event.get("ts"), str(event.get("name", "")), event.get("cat")))
            elif kind in ("E", "e"):
                self._end_span(event, self._open_events[self._key(event, "b" if kind == "e" else "B")])
            elif kind == "M":
                self._note_metadata(event)

    @staticmethod
    def _key(event: dict[str, Any], kind: str) -> tuple[Any, ...]:
        """Return the common key of a span's begin and end."""
        if kind == "B":
            return str(event.get("pid")), str(event.get("tid"))
        return tuple(str(event.get(key)) for key in ("pid", "cat", "id", "id2", "name"))

    def _end_span(self, event: dict[str, Any], stack: list[_OpenEvent]) -> None:
        if not stack:
            self._lanes.leave_out("that end without a beginning")
            return
        start, name, category = stack.pop()
        end_name = event.get("name", name)
        if end_name != name:
            raise FileError(
                f"{self._source.path}: expected the end of {runs.show(name)}, the latest begun event of its thread, "
                f"got the end of {runs.show(end_name)}"
            )
        end = event.get("ts")
        length = exact(end) - exact(start) if _is_time(start) and _is_time(end) else None
        self._add_span(event, name, start, length, category)

    def _add_span(self, event: dict[str, Any], name: Any, start: Any, length: Any, category: Any) -> None:
        """Collect a span; passes without a length are left out with a note."""
        if not isinstance(name, str):
            return
        self._has_kernels |= category == _KERNEL
        if not (_is_time(start) and (_is_time(length) or isinstance(length, Fraction)) and length >= 0):
            meaning = self._names[name]
            if (
                meaning is not None
                and meaning.activity in PASSES
                and isinstance(length, int | float)
                and length > LONGEST_US
            ):
                self.recording_so_far.refuse_length(length, name)
            self._lanes.leave_out("without a time or length", meaning is not None)
            return
        self._has_device_spans |= category == _DEVICE
        self._lanes.add(name, (str(event.get("pid")), str(event.get("tid")), category == _DEVICE), start, length)

    def note_run(self, info: Any) -> None:
        """Collect the facts of ``distributedInfo``."""
        if not isinstance(info, dict):
            return
        place, facts = f"{self._source.path}: distributedInfo", self.recording_so_far.facts
        for key in ("rank", "world_size"):
            if _is_whole(info.get(key)):
                facts.state(key, info[key], place)
        groups = info.get("pg_config")
        for group in groups if isinstance(groups, list) else ():
            ranks = group.get("ranks") if isinstance(group, dict) else None
            if not isinstance(ranks, list) or not all(map(_is_whole, ranks)) or info.get("rank") not in ranks:
                continue
            words = re.split(r"[^a-z]+", str(group.get("pg_desc", "")).lower())
            if {"pp", "pipeline"} & {*words}:
                source = f"{place}, {runs.show(group['pg_desc'])}"
                facts.state("pipeline_model_parallel_size", len(ranks), source)
                facts.state("stage", ranks.index(info["rank"]), source)

    def _note_metadata(self, event: dict[str, Any]) -> None:
        process, name, arguments = str(event.get("pid")), event.get("name"), event.get("args")
        if not isinstance(arguments, dict):
            return
        # Kineto writes the process's own number as its sort index, unrelated to ranks.
        if (
            name == "process_sort_index"
            and _is_whole(arguments.get("sort_index"))
            and str(arguments["sort_index"]) != process
        ):
            self.recording_so_far.order[process] = arguments["sort_index"]
        text = arguments.get({"process_name": "name", "process_labels": "labels"}.get(str(name), ""))
        if isinstance(text, str) and (match := _RANK.search(text)):
            rank, place = int(match[1]), f"{self._source.path}: {name} of process {process}"
            earlier = self.recording_so_far.ranks.setdefault(process, Fact(rank, place))
            if earlier.value != rank:
                raise FileError(f"{place}: expected rank {earlier.value}, as in {earlier.place}, got rank {rank}")

    def recording(self) -> Recording:
        """Return the collected recording."""
        self._lanes.leave_out("that begin without an end", sum(map(len, self._open_events.values())))
        recording = self._lanes.finish()
        if self._has_kernels and recording.spans and not self._has_device_spans:
            recording.notes.append(f"{recording.path}: passes have no spans on the device; the times are of the host.")
        return recording


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST_US
