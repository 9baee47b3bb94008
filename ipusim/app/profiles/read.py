"""Choose the reader of a profiler's file by its first bytes, and read it.

A reader returns a :class:`~ipusim.app.profiles.spans.Recording`. A new reader is a module and a row of ``READERS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.app.profiles import chrome, deepspeed_log, megatron_log, megatron_spans, nsys
from ipusim.app.profiles.ranks import Measurement, rank_spans
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Options, Recording
from ipusim.base.errors import FileError

#: Callback that now and then receives a function, which returns the progress of reading as text.
_Progress = Callable[[Callable[[], str]], None]


@dataclass(frozen=True)
class Reader:
    """Reader for a kind of files.

    Attributes:
        kind: the kind, in words.
        has: function that recognises the kind by a file's first bytes.
        read: function from files of a run to their recordings.
    """

    kind: str
    has: Callable[[bytes], object]
    read: Callable[[Iterable[Source], Options], Sequence[Recording]]


def _read_each(read: Callable[[Source, Options], Recording]) -> Callable[[Iterable[Source], Options], list[Recording]]:
    """Return a reader of several files from a single-file reader."""

    def recording(source: Source, options: Options) -> Recording:
        with source.reading():
            return read(source, options)

    return lambda sources, options: [recording(source, options) for source in sources]


#: Readers in order of trial; logs of Megatron have no mark at the beginning and come last.
READERS: Final = (
    Reader("a report of nsys, SQLite", nsys.REPORT.match, _read_each(nsys.read_report)),
    Reader("a summary of NVTX ranges, CSV", nsys.SUMMARY.match, _read_each(nsys.read_summary)),
    Reader("spans of OpenTelemetry", megatron_spans.STARTS.match, _read_each(megatron_spans.read)),
    Reader("a trace, JSON", chrome.STARTS.match, _read_each(chrome.read)),
    Reader("a log of DeepSpeed", deepspeed_log.LINE.search, _read_each(deepspeed_log.read)),
    Reader("a log of Megatron-LM", lambda _: True, megatron_log.read),
)
#: Files of profilers without a reader, by first bytes, with the form to export instead.
_UNREADABLE_KINDS: Final = {
    re.compile(rb"QDSTRM|\x00?nsys|NVDA"): "a report of nsys: export it with nsys export --type sqlite",
    re.compile(rb"PK\x03\x04"): "a zip archive: unpack it",
    re.compile(rb"\xfd7zXZ|\x28\xb5\x2f\xfd|BZh"): "an archive of xz, zstd or bzip2: unpack it, or pack it with gzip",
    re.compile(rb"\x80[\x02-\x05]"): "a pickle: export a Chrome trace",
    re.compile(rb"\xff\xfe|\xfe\xff"): "text in UTF-16: save it as UTF-8",
    re.compile(rb"\s*\{\s*\"data\":\s*\[\s*\{\s*\"traceID\""): "spans of Jaeger: export OTLP in JSON",
    re.compile(
        rb"\s*\{\s*\"name\":[\x00-\xff]{0,400}\"trace_id\""
    ): "spans from the console of OpenTelemetry: export OTLP in JSON",
    re.compile(rb"\s*\{[^{]{0,200}speedscope"): "a profile of speedscope: export a Chrome trace",
    re.compile(
        rb"\n[\x00-\xff]{0,4}[\x08-\x7a]{1,3}[\x00-\x08]"
    ): "a trace of Perfetto in protobuf: convert it to JSON with traceconv",
}


def read_measured(
    files: Sequence[Path],
    names: Sequence[str] = (),
    count: int | None = None,
    parts: int | None = None,
    progress: _Progress = lambda _: None,
) -> Measurement:
    """Return the measurements in files of the same kind.

    Args:
        files: traces, reports or logs of one run.
        names: rules as in :class:`~ipusim.app.profiles.names.Names`.
        count: micro-batches of an iteration of a log.
        parts: number of spans in a pass made of parts.
        progress: callback that now and then receives a function, which returns the progress of reading as text.

    Raises FileError for files of unknown or several kinds, OptionError for wrong rules, and OSError.
    """
    if len({path.resolve() for path in files}) < len(files):
        raise FileError(f"{files[0]}: expected each file once, got one twice")
    readers = {path: _reader_of(path) for path in files}
    reader = readers[files[0]]
    for path, file_reader in readers.items():
        if file_reader is not reader:
            raise FileError(
                f"{path}: expected {reader.kind}, as in {files[0]}, got {file_reader.kind}: import one kind at a time"
            )
    recordings = reader.read((Source(path, progress) for path in files), Options(names, count))
    return rank_spans(recordings, parts)


def _reader_of(path: Path) -> Reader:
    """Return a file's reader; raises FileError for known kinds without a reader."""
    source = Source(path)
    with source.reading() as stream:
        start = stream.start()
    for beginning, kind in _UNREADABLE_KINDS.items():
        if beginning.match(start):
            raise FileError(f"{path}: expected a trace, report or log in a known format, got {kind}")
    return next(reader for reader in READERS if reader.has(start))
