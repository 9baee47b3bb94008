"""Messages for errors of a user's own Python: whatever they are, and whether or not they can be printed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NoReturn

from ipusim.base.errors import IpusimError, ModelError

#: Packages that are not the place of a user's mistake.
LIBRARIES: Final = frozenset({"autograd", "ipusim", "numpy", "scipy", "tensorflow", "tf_keras"})


def message_of(error: BaseException) -> str:
    """Return the message of an error; behind its type, unless it is one of ipusim's own."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as second:  # its own __str__ may do anything
        text = f"(its message cannot be read: {type(second).__name__})"
    if isinstance(error, IpusimError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of what else can be called."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def first_line(function: Callable[..., Any]) -> str:
    """Return ``file:line`` where a function begins; where it is not written in Python, its name."""
    code = _code(function)
    return name_of(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def line_of(error: BaseException, function: Callable[..., Any] | None = None) -> str:
    """Return ``file:line`` of the innermost line that is not a library's.

    Where there is none, as in a backward pass, that of the first line of ``function``; empty without it.
    """
    line, step = "", error.__traceback__
    while step is not None:
        if package_of(step.tb_frame) not in LIBRARIES:
            line = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return line or (first_line(function) if function is not None else "")


def package_of(frame: FrameType) -> str:
    """Return the name of the package whose code a frame runs."""
    return _first(str(frame.f_globals.get("__name__", "")))


@lru_cache(maxsize=1024)  # asked for wherever a traced array is looked into
def _first(module: str) -> str:
    return module.partition(".")[0]


def _code(function: Callable[..., Any]) -> CodeType | None:
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


class Failing:
    """A block that runs a user's code; whatever it raises becomes a ModelError behind ``what``.

    An interrupt from the keyboard passes. A class, as a layer enters the same one at every pass, which one of
    contextlib's generators cannot do.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        """Take what the message begins with, such as the name of a layer."""
        self._what = what

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise the ModelError."""
        if error is not None:
            self.raise_for(error)

    def raise_for(self, error: BaseException) -> NoReturn:
        """Raise the ModelError of an error, for loops in which entering a block would cost too much."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        raise ModelError(f"{self._what}: {message_of(error)}") from error
