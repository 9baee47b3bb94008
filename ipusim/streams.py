"""What the process prints, wherever it goes: no stream, encoding or reader that left may break a run."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: What stands for a character that an encoding has not, as wide as that, so that tables keep their columns.
_INSTEAD: Final = {"→": ">", "µ": "u", "…": "."}
_ERRORS: Final = "ipusim"


class _Outlet(io.FileIO):
    """A stream whose reader may leave (``| head``): what nobody reads any more goes nowhere.

    Another failure of standard output, such as of a full disk, is raised, and once: Python would raise
    it again at its end. Of standard error nobody is left to tell.
    """

    _gone = False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self._gone:
            try:
                return super().write(data)
            except OSError as error:
                self._gone = True
                if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                    error.filename = "standard output"
                    raise
        return memoryview(data).nbytes


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
    buffer = io.BufferedWriter(_Outlet(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(buffer, encoding, _ERRORS, line_buffering=descriptor == 2)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Stand in for characters that cannot be encoded; bytes of a file's name that were no text show as \\xff."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    shown = (f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else _INSTEAD.get(c, "?") for c in lost)
    return "".join(shown), error.end
