"""What the process prints, wherever it goes: no stream, encoding or reader that left may break a run."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

#: What stands for a character that an encoding has not, as wide as that, so that tables keep their columns.
_INSTEAD: Final = {"→": ">", "µ": "u", "…": "."}
_ERRORS: Final = "ipusim"


class _Outlet(io.TextIOWrapper):
    """Standard output whose reader may close the pipe (``| head``): text written after that is dropped.

    Another failure of standard output, such as of a full disk, is raised, and once: Python would raise
    it again at its end. Nothing can be told of a broken standard error.

    It stands above the buffer, not below: an interrupt in a raw stream of Python's, between the system's write and its
    return, would leave in the buffer what is printed already, and print it twice.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._leave(error)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        with io.FileIO(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self.fileno())
        if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
            error.filename = "standard output"
            raise error


def prepare_streams() -> None:
    """Make standard output and error take every text, closed ones too."""
    codecs.register_error(_ERRORS, _replace)
    # A closed stream's number would go to the next file that is opened, and what is printed into that.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = _taking_all(sys.stdout, sys.__stdout__, 1)
    sys.stderr = _taking_all(sys.stderr, sys.__stderr__, 2)


def _taking_all(stream: TextIO | None, original: TextIO | None, descriptor: int) -> TextIO:
    if stream is not None and (stream is not original or stream.isatty()):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
        return stream
    encoding = stream.encoding if stream is not None else "utf-8"
    buffer = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    return _Outlet(buffer, encoding, _ERRORS, line_buffering=descriptor == 2)


class NumberedLines(io.TextIOBase):
    """A stream whose lines begin with the number of the host that prints them, where several take turns in a process.

    A line is written when it is complete; what a host without a number prints is written unchanged.
    """

    def __init__(self, stream: TextIO, number: Callable[[], int | None]) -> None:
        """Take the stream that lines go to, and the function that returns the number."""
        self._stream, self._number = stream, number
        self._begun: dict[int, str] = {}

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of the library it cannot be set either
        """The encoding of the stream."""
        return self._stream.encoding

    def write(self, text: str, /) -> int:
        """Print the lines that are whole now."""
        if (number := self._number()) is None:
            return self._stream.write(text)
        *lines, self._begun[number] = (self._begun.get(number, "") + text).split("\n")
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
        """Print the lines that have not ended."""
        for number, line in sorted(self._begun.items()):
            if line:
                self._stream.write(f"[{number}] {line}\n")
        self._begun.clear()


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Stand in for characters that cannot be encoded; bytes of a file's name that were no text show as \\xff."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    shown = (f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else _INSTEAD.get(c, "?") for c in lost)
    return "".join(shown), error.end
