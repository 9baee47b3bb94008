"""Group a file's spans by thread: resolve nesting, find threads that are ranks, replace host spans by device spans."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ipusim.app.profiles.names import FORWARD, OVERLAP, PASSES, STEP, UPDATE, Names
from ipusim.app.profiles.nesting import resolve_nesting
from ipusim.app.profiles.spans import LONGEST_US, MOST_SPANS, Recording, Span
from ipusim.base.errors import FileError
from ipusim.base.units import counted

#: Process, thread, and whether they belong to a device.
_Lane = tuple[str, str, bool]


class Lanes:
    """A file's spans by thread."""

    def __init__(self, recording: Recording, names: Names) -> None:
        """Start from an empty recording and pass names."""
        self._recording, self._names = recording, names
        self._lanes: dict[_Lane, list[Span]] = defaultdict(list)
        self._extents: dict[str, tuple[Any, Any]] = {}
        self._count = 0
        self._left_out: Counter[str] = Counter()

    def add(self, name: str, lane: _Lane, start: Any, us: Any, micro_batch: int | None = None) -> None:
        """Add a span; start and length are microseconds, in a form that Fraction accepts."""
        end, extent = start + us, self._extents.get(lane[0])
        if extent is None or start < extent[0] or end > extent[1]:
            first, last = extent or (start, end)
            self._extents[lane[0]] = (min(first, start), max(last, end))
        meaning = self._names[name]
        if meaning is None:
            self._recording.note_other_span(name, float(us))
        elif meaning.activity == STEP:
            return
        else:
            self._count += 1
            if self._count > MOST_SPANS:
                raise FileError(
                    f"{self._recording.path}: expected at most {MOST_SPANS:,} passes, got more: profile fewer steps"
                )
            if us > LONGEST_US and meaning.activity in PASSES:
                self._recording.refuse_length(float(us), name)
            number = meaning.micro_batch if micro_batch is None else micro_batch
            self._lanes[lane].append(Span.from_meaning(meaning, number, lane[0], exact(start), exact(us)))

    def leave_out(self, text: str, number: int = 1) -> None:
        """Count spans left out, by reason."""
        self._left_out[text] += number

    def finish(self) -> Recording:
        """Return the recording with the spans to measure; raises FileError for malformed nesting and ranks."""
        recording, remarks = self._recording, Counter[tuple[str, str]]()
        self._names.refuse_unused(recording.path, (name for name, _ in recording.names.most_common()))
        try:
            lanes = {lane: resolve_nesting(spans, remarks) for lane, spans in self._lanes.items()}
        except FileError as error:
            raise FileError(f"{recording.path}: {error}") from None
        spans, notes = _spans_of_workers(lanes, recording)
        for span in spans:
            recording.add(span, span.kind)
        recording.notes += notes
        recording.notes += [
            f"{recording.path}: {counted(number, noun)} {text}." for (noun, text), number in remarks.items()
        ]
        recording.notes += [
            f"{recording.path}: {counted(number, 'span')} {text}: left out."
            for text, number in self._left_out.items()
            if number
        ]
        recording.extents = {process: exact(end) - exact(start) for process, (start, end) in self._extents.items()}
        return recording


def exact(value: Any) -> Fraction:
    """Return a number exactly as written."""
    return Fraction(str(value) if isinstance(value, float) else value)


def _spans_of_workers(lanes: Mapping[_Lane, Sequence[Span]], recording: Recording) -> tuple[list[Span], list[str]]:
    """Return the spans to measure, with the rank's name as ``process``, and notes on dropped spans.

    If a device has spans of a stage's pass, the host's spans of this pass are dropped: they end at kernel launch. Of
    several streams of a device, the stream with most spans of the pass counts. Threads that run forward passes of the
    same micro-batches are separate ranks.

    Raises FileError if a thread's passes belong to no rank.
    """
    devices = sorted({process for process, _, is_device in lanes if is_device}, key=_number_key)
    hosts = sorted(
        {process for (process, _, is_device), spans in lanes.items() if not is_device and spans}, key=_number_key
    )
    on_device = {(span.activity, span.stage) for lane, spans in lanes.items() if lane[2] for span in spans}
    if on_device and len(hosts) > 1 and len(devices) != len(hosts):
        raise FileError(
            f"{recording.path}: expected a device for each of {len(hosts)} processes, got {len(devices)}: import a "
            "file of each rank"
        )
    result, notes = list[Span](), list[str]()
    by_host: dict[str, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for (process, thread, is_device), spans in lanes.items():
        if not is_device:
            host_spans = [span for span in spans if (span.activity, span.stage) not in on_device]
            if host_spans:
                by_host[process][thread] = host_spans
    for process, threads in by_host.items():
        result += _ranks_of_threads(process, threads, recording, notes)
    for number, process in enumerate(devices):
        streams = {
            thread: spans for (owner, thread, is_device), spans in lanes.items() if is_device and owner == process
        }
        host = hosts[number] if number < len(hosts) else process
        for key in dict.fromkeys((span.activity, span.stage) for spans in streams.values() for span in spans):
            spans_by_stream = [
                [span for span in spans if (span.activity, span.stage) == key] for spans in streams.values()
            ]
            best = max(spans_by_stream, key=lambda spans: (len(spans), sum(span.us for span in spans)))
            for span in best:
                span.process = host
            result += best
        if len(streams) > 1:
            notes.append(
                f"{recording.path}: each pass is measured on the stream with most of its spans, of {len(streams)} "
                "streams."
            )
        if process in recording.ranks:
            recording.ranks.setdefault(host, recording.ranks[process])
    return result, notes


def _ranks_of_threads(
    process: str, threads: Mapping[str, list[Span]], recording: Recording, notes: list[str]
) -> list[Span]:
    """Return the spans of a process's threads. Threads are ranks if several run the same forward passes."""
    workers = {
        thread: spans for thread, spans in threads.items() if any(span.activity in (FORWARD, OVERLAP) for span in spans)
    }
    if len(workers) < 2 or _is_pool([*workers.values()]):
        return [span for spans in threads.values() for span in spans]
    owners = {span.stage: thread for thread, spans in workers.items() for span in spans if span.stage}
    notes.append(
        f"{recording.path}: each of {len(workers)} threads of process {process} with forward passes is a rank."
    )
    result = list[Span]()
    for thread, spans in threads.items():
        for span in spans:
            owner = thread if thread in workers else owners.get(span.stage)
            if owner is None and span.activity == UPDATE:
                # A single thread updates the stages of every worker thread: divide its time equally.
                us = span.us / len(workers)
                result += [replace(span, process=f"{process} thread {name}", us=us) for name in workers]
                continue
            if owner is None:
                raise FileError(
                    f"{recording.path}: expected the stage in names of {span.activity}, because {len(workers)} threads "
                    f"of process {process} have forward passes, got {span.activity} passes on thread {thread} without "
                    f"one: name the stage with --name {span.activity}=NAME{{stage}}"
                )
            span.process = f"{process} thread {owner}"
            result.append(span)
    return result


def _is_pool(threads: Sequence[Sequence[Span]]) -> bool:
    """Return whether threads form a pool: all run the same stages, and none runs a pass that another has run."""
    thread_of: dict[tuple[str, str, int], int] = {}
    for number, spans in enumerate(threads):
        for span in spans:
            if span.activity in PASSES and span.activity != UPDATE:
                if span.micro_batch is None:
                    return False
                if thread_of.setdefault((span.activity, span.stage, span.micro_batch), number) != number:
                    return False
    # Threads of different stages never run the same pass either, but such threads are ranks.
    stages = [{span.stage for span in spans} for spans in threads]
    return all(stage == stages[0] for stage in stages)


def _number_key(text: str) -> tuple[int, str]:
    return (len(text), text)
