"""Chrome traces of torch's profiler: JSON with complete events, in which record_function names passes.

The format is what ``export_chrome_trace`` and ``tensorboard_trace_handler`` of torch 2 write (Kineto, schemaVersion 1):
a mapping with ``traceEvents``, and of a distributed run ``distributedInfo`` with the rank; or the list of events alone,
as Chrome's Trace Event Format has it. Times are microseconds. A span of record_function is an event of the category
``user_annotation`` on the host, and one of ``gpu_user_annotation`` for each stream that its kernels ran on. Several
processes in one file, as of traces that were put together, are a rank each.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, Final

from ipusim.api import runs
from ipusim.app.profiles.names import TORCH, Called, Names
from ipusim.app.profiles.timings import LONGEST_US, MOST, Measured, Timing
from ipusim.base.errors import FileError, printable
from ipusim.base.files import open_file
from ipusim.base.json_stream import JsonStream
from ipusim.base.units import enumerated

#: Bytes of a trace, unpacked.
MOST_BYTES: Final = 1 << 31
#: By how many times gzip makes a trace smaller, at most, and bytes up to which it does not matter: 10 to 30 times are
#: usual.
_MOST_PACKED: Final = 100
_UNPACKED_ANYWAY: Final = 1 << 22
#: Events of a trace at most, and bytes of an event at least: those of torch's profiler have two hundred.
_MOST_EVENTS: Final = 1 << 23
_LEAST_EVENT: Final = 32
#: How JSON begins, and not a line of a log that has its rank in brackets.
_JSON: Final = re.compile(rb"\s*(\{\s*[\"}]|\[\s*[{\]])")
_GZIP: Final = b"\x1f\x8b"
_DEVICE: Final = "gpu_user_annotation"
_KERNEL: Final = "kernel"
#: Names that are remembered, and that a message lists, where none is a pass.
_REMEMBERED: Final = 4096
_LISTED: Final = 6
#: A track of a trace: process and thread, as text.
_Lane = tuple[str, str]


@dataclass
class _Trace:
    """The contents of one trace file.

    Attributes:
        rank: of the process; None where it does not say.
        spans: microseconds by what they are, whether they are a device's, and where they stand.
        names: microseconds of what else has a name.
        kernels: whether there are kernels of a device.
        count: of spans.
    """

    rank: int | None = None
    spans: dict[tuple[Called, bool], dict[_Lane, list[Fraction]]] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)
    kernels: bool = False
    count: int = 0


def is_trace(path: Path) -> bool:
    """Whether a file begins as JSON does, packed or not; raises OSError."""
    with open_file(path) as file:
        try:
            start = unpacked(file).read(1 << 10)
        except (OSError, EOFError, zlib.error):
            return True  # a damaged archive, of which the reader says so
    return _JSON.match(start) is not None


def unpacked(file: BinaryIO) -> BinaryIO | gzip.GzipFile:
    """Return the contents of a file, unpacked where gzip has packed it."""
    packed = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def read_traces(paths: Sequence[Path], own: Sequence[str] = ()) -> Measured:
    """Return the passes of traces, a file for each rank, whose names ``own`` rules or torch's say.

    Where a device has a span of a name, the host's spans of that name do not count: they end when kernels are launched.
    Ranks are those that the files say, else their places in ``paths``.

    Raises OptionError for rules that are none, FileError for files that are no traces, or in which no name is a pass's,
    and OSError for files that cannot be read.
    """
    names, notes = Names(own, TORCH), list[str]()
    spans: dict[tuple[int, int], list[tuple[Called, Fraction]]] = {}
    files: dict[int, Path] = {}
    others: Counter[str] = Counter()
    for number, path in enumerate(paths):
        trace = _read(path, names)
        rank = number if trace.rank is None else trace.rank
        if rank in files:
            raise FileError(f"{path}: expected the trace of another rank, got rank {rank}, as {files[rank]} has")
        files[rank] = path
        others += trace.names
        spans |= {(rank, process): chosen for process, chosen in _by_process(trace).items()}
        if trace.kernels and trace.spans and not any(device for _, device in trace.spans):
            notes.append(f"{path}: its passes have no spans on the device, so that these are the times of the host.")
    if not spans:
        listed = ", ".join(printable(name) for name, _ in others.most_common(_LISTED)) or "none"
        raise FileError(
            f"{paths[0]}: expected spans named {names}, got none of these; the longest are {listed}: say with "
            "--name PASS=NAME what is what"
        )
    timings = [
        Timing(rank, called.what, called.stage, us)
        for rank, key in enumerate(sorted(spans))
        for called, us in spans[key]
    ]
    return Measured(enumerated(paths, 1), "torch.profiler", tuple(timings), notes=tuple(notes))


def _by_process(trace: _Trace) -> dict[int, list[tuple[Called, Fraction]]]:
    """Return the spans of each process, counted from 0; of a name on one track, of the device if it has the name.

    Of several tracks that is the one with most of them. Processes have other numbers on the device than on the host.
    """
    chosen: dict[int, list[tuple[Called, Fraction]]] = defaultdict(list)
    processes = {
        kind: sorted(
            {process for (_, device), lanes in trace.spans.items() if device is kind for process, _ in lanes},
            key=lambda process: (len(process), process),
        )
        for kind in (False, True)
    }
    for (called, device), lanes in trace.spans.items():
        if not device and (called, True) in trace.spans:
            continue
        for number, process in enumerate(processes[device]):
            own = [(len(spans), sum(spans), lane) for lane, spans in lanes.items() if lane[0] == process]
            if own:
                chosen[number] += [(called, us) for us in lanes[max(own)[2]]]
    return chosen


def _read(path: Path, names: Names) -> _Trace:
    """Return the spans of ``names`` in a trace."""
    trace = _Trace()
    with open_file(path) as file:
        stream = JsonStream(unpacked(file), str(path), _most_bytes(file))
        try:
            if stream.peek() == "[":
                _note_all(stream, names, trace, path)
                return trace
            for key in stream.members():
                if key == "traceEvents":
                    _note_all(stream, names, trace, path)
                elif key == "distributedInfo":
                    trace.rank = _rank(stream.value())
                else:
                    stream.value()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{path}: expected a whole file that gzip has packed: {error}") from None
    return trace


def _most_bytes(file: BinaryIO) -> int:
    """Return how many bytes of a file's contents are read, by its size if gzip has packed it."""
    packed = file.read(len(_GZIP)) == _GZIP
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return min(MOST_BYTES, max(_MOST_PACKED * size, _UNPACKED_ANYWAY)) if packed else MOST_BYTES


def _rank(value: Any) -> int | None:
    rank = value.get("rank") if isinstance(value, dict) else None
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 else None


def _note_all(stream: JsonStream, names: Names, trace: _Trace, path: Path) -> None:
    """Note the events of the list that comes next."""
    most = min(_MOST_EVENTS, stream.most_bytes // _LEAST_EVENT)
    for number, event in enumerate(stream.items(), 1):
        if number > most:
            raise FileError(f"{path}: expected at most {most:,} events in a file of its size, got more")
        _note(event, names, trace, path)
        if trace.count > MOST:
            raise FileError(f"{path}: expected at most {MOST:,} passes, got more: profile fewer steps")


def _note(event: Any, names: Names, trace: _Trace, path: Path) -> None:
    """Note a complete event that is named as a pass; of others how long they are."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return
    name, length = event.get("name"), event.get("dur")
    if not isinstance(name, str) or isinstance(length, bool) or not isinstance(length, int | float):
        return
    if not 0 <= length < math.inf:
        return
    category = event.get("cat")
    trace.kernels |= category == _KERNEL
    called = names[name]
    if called is not None:
        if length > LONGEST_US:
            raise FileError(
                f"{path}: expected passes of at most {LONGEST_US:,} us, got a dur of {runs.show(length)} us of the "
                f"event {runs.show(name)}"
            )
        trace.count += 1
        lanes = trace.spans.setdefault((called, category == _DEVICE), defaultdict(list))
        lanes[str(event.get("pid")), str(event.get("tid"))].append(Fraction(str(length)))
    elif name in trace.names or len(trace.names) < _REMEMBERED:
        trace.names[name] += int(length) + 1
