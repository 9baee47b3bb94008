"""Make standard output and error accept any text, even if closed, narrow in encoding, or without a reader."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

#: Substitutes for characters missing from an encoding, of equal width, to keep the columns of tables.
_SUBSTITUTES: Final = {"→": ">", "µ": "u", "…": "."}
#: Name of ipusim's handler of encoding errors.
_ERRORS: Final = "ipusim"


class _Outlet(io.TextIOWrapper):
    """Standard output or error whose reader may close the pipe (``| head``): later text is dropped.

    Any other failure of standard output, such as a full disk, is raised once; Python would raise the error again at
    exit. Failures of standard error are silent.

    The class wraps the buffer, not the raw stream. A raw stream written in Python may be interrupted after the system's
    write, before its method returns; the buffer would then print the text twice.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._drop_later_text(error)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._drop_later_text(error)

    def _drop_later_text(self, error: OSError) -> None:
        with io.FileIO(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self.fileno())
        if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
            error.filename = "standard output"
            raise error


def prepare_streams() -> None:
    """Make standard output and error accept every text, even if closed."""
    codecs.register_error(_ERRORS, _replace)
    # The next opened file would get the number of a closed stream, and with the number the printed text.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = _accepting_all_text(sys.stdout, sys.__stdout__, 1)
    sys.stderr = _accepting_all_text(sys.stderr, sys.__stderr__, 2)


def _accepting_all_text(stream: TextIO | None, original: TextIO | None, descriptor: int) -> TextIO:
    if stream is not None and (stream is not original or stream.isatty()):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
        return stream
    encoding = stream.encoding if stream is not None else "utf-8"
    buffer = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    return _Outlet(buffer, encoding, _ERRORS, line_buffering=descriptor == 2)


class NumberedLines(io.TextIOBase):
    """A stream whose lines begin with the number of the printing host.

    A line is written when complete; text from a host without a number is written unchanged.
    """

    def __init__(self, stream: TextIO, number: Callable[[], int | None]) -> None:
        """Take the output stream, and the function that returns the number."""
        self._stream, self._number = stream, number
        self._partial_lines: dict[int, str] = {}

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only in the library, too
        """Encoding of the stream."""
        return self._stream.encoding

    def write(self, text: str, /) -> int:
        """Print the complete lines."""
        if (number := self._number()) is None:
            return self._stream.write(text)
        *lines, self._partial_lines[number] = (self._partial_lines.get(number, "") + text).split("\n")
        for line in lines:
            self._stream.write(f"[{number}] {line}\n")
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Tell whether lines go to a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's number."""
        return self._stream.fileno()

    def finish(self) -> None:
        """Print the incomplete lines."""
        for number, line in sorted(self._partial_lines.items()):
            if line:
                self._stream.write(f"[{number}] {line}\n")
        self._partial_lines.clear()


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Substitute characters missing from the encoding; undecodable bytes of file names show as \\xff."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    substitutes = (
        f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else _SUBSTITUTES.get(c, "?") for c in characters
    )
    return "".join(substitutes), error.end
