"""Chrome traces, as torch's profiler and others write them: JSON events, in which names say the passes.

The format is Chrome's Trace Event Format: a mapping with ``traceEvents``, a list of events whose bracket may stay
open, or an event a line. Complete events (X), pairs of begin and end (B, E) and asynchronous pairs (b, e) are spans,
metadata (M) name processes. Torch 2's profiler (Kineto, schemaVersion 1) adds ``distributedInfo`` with rank,
``world_size`` and groups of ranks. Times are microseconds. A span of record_function has the category
``user_annotation`` on the host, and ``gpu_user_annotation`` on each stream that its kernels ran on.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from ipusim.api import runs
from ipusim.app.profiles.names import PASSES, STEP, TORCH, Called, Names
from ipusim.app.profiles.nesting import outermost
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import LONGEST_US, MOST, Fact, Options, Recording, Span
from ipusim.app.profiles.workers import by_worker
from ipusim.base.errors import FileError
from ipusim.base.units import counted

#: How a Chrome trace begins, and not a line of a log that has its rank in brackets.
STARTS: Final = re.compile(rb"\s*(\{\s*[\"}]|\[\s*([{\]]|\Z))")
_DEVICE: Final = "gpu_user_annotation"
_KERNEL: Final = "kernel"
#: A rank in the name or label of a process.
_RANK: Final = re.compile(r"(?i)\brank[\s:_#=-]*(\d{1,6})\b")
#: Microseconds that a time may be away from 0: beyond that floats are no times.
_LATEST_US: Final = float(1 << 62)
#: Events inside of each other on one thread, at most.
_DEEPEST: Final = 10_000
#: A process and a thread, and whether they are a device's.
_Lane = tuple[str, str, bool]
_Begun = tuple[Any, str, Any]


def read(source: Source, options: Options) -> Recording:
    """Return the spans of passes in a trace; raises FileError for a trace that is damaged or too large."""
    reader = _Reader(source, Names(options.names, TORCH))
    stream = source.json()
    if stream.peek() == "[":
        reader.note_all(stream.items(may_be_open=True))
    while stream.peek() == "{":
        alone: dict[str, Any] = {}
        for key in stream.members():
            if key == "traceEvents" and stream.peek() == "[":
                reader.note_all(stream.items())
            else:
                alone[key] = stream.value()
        reader.note_run(alone.get("distributedInfo"))
        reader.note_all([alone])
    if left := stream.peek():
        raise FileError(f"{source.path}: expected a trace, got {left!r} behind its end")
    return reader.recording()


class _Reader:
    """Spans of passes by threads, as events come."""

    def __init__(self, source: Source, names: Names) -> None:
        self._source, self._names = source, names
        self._found = Recording(source.path, "torch.profiler")
        self._lanes: dict[_Lane, list[tuple[Any, Any, str, Called]]] = defaultdict(list)
        self._begun: dict[tuple[Any, ...], list[_Begun]] = defaultdict(list)
        self._extents: dict[str, tuple[float, float]] = {}
        self._sort: dict[str, int] = {}
        self._dropped: Counter[str] = Counter()
        self._kernels = False
        self._count = 0

    def note_all(self, events: Iterable[Any]) -> None:
        """Note events."""
        for event in events:
            is_event = isinstance(event, dict)
            self._source.event(is_event)
            if not is_event:
                continue
            kind = event.get("ph")
            if kind == "X":
                self._span(event, event.get("ts", 0), event.get("dur"), event.get("name"), event.get("cat"))
            elif kind in ("B", "b"):
                begun = self._begun[self._key(event, kind)]
                if len(begun) == _DEEPEST:
                    raise FileError(f"{self._source.path}: expected events of ordinary depth, got {_DEEPEST:,} begun")
                begun.append((event.get("ts"), str(event.get("name", "")), event.get("cat")))
            elif kind in ("E", "e"):
                self._end(event, self._begun[self._key(event, kind.upper() if kind == "E" else "b")])
            elif kind == "M":
                self._metadata(event)

    @staticmethod
    def _key(event: dict[str, Any], kind: str) -> tuple[Any, ...]:
        thread = (str(event.get("pid")), str(event.get("tid")))
        if kind in ("B", "E"):
            return thread
        return (thread[0], str(event.get("cat")), str(event.get("id", event.get("id2"))), str(event.get("name")))

    def _end(self, event: dict[str, Any], begun: list[_Begun]) -> None:
        if not begun:
            self._dropped["that end without a beginning"] += 1
            return
        start, name, category = begun.pop()
        said = event.get("name", name)
        if said != name:
            raise FileError(
                f"{self._source.path}: expected the end of {runs.show(name)}, which began last on its thread, got the "
                f"end of {runs.show(said)}"
            )
        if not (_is_time(start) and _is_time(event.get("ts"))):
            self._dropped["without times"] += 1
            return
        self._span(event, start, Fraction(str(event["ts"])) - Fraction(str(start)), name, category)

    def _span(self, event: dict[str, Any], start: Any, length: Any, name: Any, category: Any) -> None:
        if not isinstance(name, str):
            return
        called = self._names[name]
        if category == _KERNEL:
            self._kernels = True
        if isinstance(length, bool) or not isinstance(length, int | float | Fraction) or not 0 <= length < math.inf:
            self._dropped["without a length"] += called is not None
            return
        if called is not None and called.what in PASSES and length > LONGEST_US:
            raise FileError(
                f"{self._source.path}: expected passes of at most {LONGEST_US:,} us, got a dur of {runs.show(length)} "
                f"us of the event {runs.show(name)}"
            )
        if not _is_time(start) or length > _LATEST_US:
            self._dropped["without a time"] += called is not None
            return
        process, end = str(event.get("pid")), float(start) + float(length)
        before = self._extents.get(process)
        if before is None:
            self._extents[process] = (start, end)
        elif start < before[0] or end > before[1]:
            self._extents[process] = (min(before[0], start), max(before[1], end))
        if called is None:
            self._found.pass_by(name, float(length))
            return
        self._count += 1
        if self._count > MOST:
            raise FileError(f"{self._source.path}: expected at most {MOST:,} passes, got more: profile fewer steps")
        self._lanes[process, str(event.get("tid")), category == _DEVICE].append((start, length, name, called))

    def note_run(self, info: Any) -> None:
        """Note what ``distributedInfo`` says."""
        if not isinstance(info, dict):
            return
        place, facts = f"{self._source.path}: distributedInfo", self._found.facts
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
                said = f"{place}, {runs.show(group['pg_desc'])}"
                facts.state("pipeline_model_parallel_size", len(ranks), said)
                facts.state("stage", ranks.index(info["rank"]), said)

    def _metadata(self, event: dict[str, Any]) -> None:
        process, name, said = str(event.get("pid")), event.get("name"), event.get("args")
        if not isinstance(said, dict):
            return
        if name == "process_sort_index" and _is_whole(said.get("sort_index")):
            self._sort[process] = said["sort_index"]
        text = said.get({"process_name": "name", "process_labels": "labels"}.get(str(name), ""))
        if isinstance(text, str) and (match := _RANK.search(text)):
            rank, place = int(match[1]), f"{self._source.path}: {name} of process {process}"
            before = self._found.ranks.setdefault(process, Fact(rank, place))
            if before.value != rank:
                raise FileError(f"{place}: expected rank {before.value}, as {before.place} says, got rank {rank}")

    def recording(self) -> Recording:
        """Return all that was noted."""
        found = self._found
        if unused := self._names.unused(name for name, _ in found.names.most_common()):
            raise FileError(f"{found.path}: {unused}")
        self._dropped["that begin without an end"] += sum(map(len, self._begun.values()))
        told: Counter[str] = Counter()
        lanes: dict[_Lane, list[Span]] = {}
        steps = set()
        for lane, raw in self._lanes.items():
            made = []
            for start, length, _, called in raw:
                if called.what == STEP:
                    steps.add(called.micro_batch)
                    continue
                span = Span(
                    called.what,
                    called.stage,
                    called.micro_batch,
                    lane[0],
                    lane[1],
                    Fraction(str(start)),
                    Fraction(str(length)),
                )
                span.kind, span.is_part = called.kind, called.is_part
                made.append(span)
            try:
                lanes[lane] = [*outermost(made, told)]
            except FileError as error:
                raise FileError(f"{found.path}: {error}") from None
        if steps:
            found.facts.state("steps", len(steps), f"{found.path}: ProfilerStep#")
        found.spans, notes = by_worker(lanes, found)
        found.notes += notes
        found.notes += [f"{found.path}: {number:,} {text}." for text, number in told.items()]
        for text, number in self._dropped.items():
            if number:
                found.notes.append(
                    f"{found.path}: {counted(number, 'event')} {text} {'is' if number == 1 else 'are'} left out."
                )
        if self._kernels and found.spans and not any(lane[2] for lane in lanes):
            found.notes.append(
                f"{found.path}: its passes have no spans on the device, so that these are the times of the host."
            )
        found.extents = {process: Fraction(end) - Fraction(start) for process, (start, end) in self._extents.items()}
        found.order = self._sort
        return found


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST_US
