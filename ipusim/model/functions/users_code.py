"""Write messages for errors in user code, even if the error itself cannot be printed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NoReturn

from ipusim.base.errors import IpusimError, ModelError

#: Packages that are never the place of a user's mistake.
LIBRARIES: Final = frozenset({"autograd", "ipusim", "numpy", "scipy", "tensorflow", "tf_keras"})


def message_of(error: BaseException) -> str:
    """Return the message of an error, prefixed by its type unless ipusim raised it."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as second:  # the error's __str__ may fail in any way
        text = f"(its message cannot be read: {type(second).__name__})"
    if isinstance(error, IpusimError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or the class name of another callable."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def first_line(function: Callable[..., Any]) -> str:
    """Return ``file:line`` of a function's definition, or the name of a function not written in Python."""
    code = _code(function)
    return name_of(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def line_of(error: BaseException, function: Callable[..., Any] | None = None) -> str:
    """Return ``file:line`` of the innermost line outside of libraries.

    If no such line exists, for example in a backward pass, return the first line of ``function``; without a function,
    return an empty text.
    """
    line, step = "", error.__traceback__
    while step is not None:
        if package_of(step.tb_frame) not in LIBRARIES:
            line = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return line or (first_line(function) if function is not None else "")


def package_of(frame: FrameType) -> str:
    """Return the name of the package that contains a frame's code."""
    return _top_package(str(frame.f_globals.get("__name__", "")))


@lru_cache(maxsize=1024)  # called at every access to a traced array
def _top_package(module: str) -> str:
    return module.partition(".")[0]


def _code(function: Callable[..., Any]) -> CodeType | None:
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


class Failing:
    """Block that runs user code and turns exceptions into a ModelError prefixed by ``beginning``.

    A keyboard interrupt passes through. This is a class, not a contextlib generator, since a layer enters the same
    block in every pass.
    """

    __slots__ = ("_beginning",)

    def __init__(self, beginning: str) -> None:
        """Store the beginning of the message, such as a layer's name."""
        self._beginning = beginning

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise the ModelError."""
        if error is not None:
            self.raise_for(error)

    def raise_for(self, error: BaseException) -> NoReturn:
        """Raise the ModelError for an error, for loops in which entering a block is too slow."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        raise ModelError(f"{self._beginning}: {message_of(error)}") from error
