"""Compress content to gzip in a thread, while later content is produced."""

from __future__ import annotations

import gzip
import io
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

#: Level 9 makes a trace file a tenth smaller, and takes as long as the rest of the work.
_LEVEL: Final = 3


class Gzip:
    """Gzip's format from consecutive parts; equal bytes in equal parts give equal output.

    Compression runs in a thread, as zlib releases the interpreter lock: for a trace file of 64 IPUs, a third of the
    time overlaps with the remaining work (measured). At most one part waits for compression, which bounds memory.

    As a context manager, it closes the stream even after an error: under some versions of Python, the garbage collector
    warns about an open stream.

    Example:
        >>> with Gzip() as file:
        ...     file.write(b"part")
        ...     content = file.close()
    """

    def __init__(self) -> None:
        """Begin without content."""
        self._content = io.BytesIO()
        # Without file name and time, which differ between equal runs.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._content, compresslevel=_LEVEL, mtime=0)
        self._thread = ThreadPoolExecutor(1)
        self._previous: Future[int] | None = None

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread and close the stream."""
        self._thread.shutdown()
        self._file.close()

    def write(self, part: bytes) -> None:
        """Start to compress a part."""
        if self._previous is not None:
            self._previous.result()
        self._previous = self._thread.submit(self._file.write, part)

    def close(self) -> bytes:
        """Return the compressed content."""
        if self._previous is not None:
            self._previous.result()
        self._file.close()
        return self._content.getvalue()
