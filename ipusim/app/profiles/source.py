"""Read a profiler's file as bytes, lines or JSON: unpacked, cleaned and limited in size."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ipusim.base.errors import FileError
from ipusim.base.files import open_file
from ipusim.base.json_stream import JsonStream
from ipusim.base.units import format_bytes

#: Maximum size of a file in bytes, unpacked.
MOST_BYTES: Final = 1 << 33
#: Maximum number of events of a file.
MOST_EVENTS: Final = 50_000_000
#: Number of bytes without an event that makes an archive a suspected decompression bomb.
_SUSPICIOUS_BYTES: Final = 1 << 26
#: Maximum compression ratio of a suspected archive; traces compress 10 to 30 times.
_MOST_COMPRESSION: Final = 200
#: Number of bytes for identifying a file's kind.
_FIRST_BYTES: Final = 1 << 16
#: Maximum number of bytes read of a line.
_MOST_LINE_BYTES: Final = 1 << 13
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Source:
    """Open file, read once from its beginning.

    Attributes:
        path: the file.
        events: number of events read.
    """

    def __init__(self, path: Path, progress: Callable[[Callable[[], str]], None] = lambda _: None) -> None:
        """Open ``path``; ``progress`` now and then receives a function, which returns the progress of reading as text.

        Raises OSError for a file that cannot be opened.
        """
        self.path, self.events = path, 0
        self._file = open_file(path)
        self._size = os.fstat(self._file.fileno()).st_size
        self._is_packed = self._file.read(len(_GZIP)) == _GZIP
        self._file.seek(0)
        self._stream = gzip.GzipFile(fileobj=self._file) if self._is_packed else self._file
        self._progress = progress
        self._bytes = self._bytes_at_event = 0

    @contextmanager
    def reading(self) -> Iterator[Source]:
        """Close the file after the block; too large files and damaged archives raise FileError."""
        try:
            if self._size > MOST_BYTES:
                raise self._too_large(self._size)
            yield self
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{self.path}: expected a whole file packed by gzip: {error}") from None
        finally:
            self._file.close()

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, unpacked; raises FileError beyond the bounds."""
        data = self._stream.read(size)
        self._count(len(data))
        return data

    def start(self) -> bytes:
        """Return the first bytes, unpacked and without byte order mark, and rewind."""
        data = self._stream.read(_FIRST_BYTES)
        self._stream.seek(0)
        return data.removeprefix(_BOM)

    def event(self, is_whole: bool = True) -> None:
        """Count an event, or with ``is_whole`` false another element; raises FileError beyond the bound."""
        self.events += 1
        if is_whole:
            self._bytes_at_event = self._bytes
        if self.events > MOST_EVENTS:
            raise FileError(f"{self.path}: expected at most {MOST_EVENTS:,} events, got more: ask for fewer steps")

    def json(self) -> JsonStream:
        """Return the file as JSON."""
        return JsonStream(self, str(self.path), MOST_BYTES)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield lines with their numbers from 1, without colour codes; very long lines are truncated."""
        number, is_line_start = 0, True
        while part := self._stream.readline(_MOST_LINE_BYTES):
            self._count(len(part))
            if is_line_start:
                number += 1
                text = (
                    part.removesuffix(b"\n")
                    .removesuffix(b"\r")
                    .decode("utf-8-sig" if number == 1 else "utf-8", "replace")
                )
                yield number, _COLOURS.sub("", text) if "\x1b" in text else text
            is_line_start = part.endswith(b"\n")

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise self._too_large(self._bytes)
        bytes_without_event = self._bytes - self._bytes_at_event
        if (
            self._is_packed
            and bytes_without_event >= _SUSPICIOUS_BYTES
            and self._bytes > _MOST_COMPRESSION * self._file.tell()
        ):
            raise FileError(
                f"{self.path}: expected a trace, got an archive that unpacks to {_MOST_COMPRESSION} times its size or "
                f"more, without an event in {format_bytes(bytes_without_event)}"
            )
        self._progress(
            lambda: f"{self._file.tell() / max(self._size, 1):.0%} of {self.path.name}, {self.events:,} events"
        )

    def _too_large(self, size: int) -> FileError:
        return FileError(
            f"{self.path}: expected a file of at most {format_bytes(MOST_BYTES)} unpacked, got one of "
            f"{format_bytes(size)} or more: ask for fewer steps"
        )
