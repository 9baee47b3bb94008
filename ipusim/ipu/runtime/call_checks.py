"""Check functions passed by a program, and the arguments they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipusim.base.errors import ProgramTypeError
from ipusim.ipu.runtime import checks


def arguments_in(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return a constructor's named arguments from ``locals()``."""
    return {name: value for name, value in scope.items() if name not in ("self", "cls", "kwargs", "__class__")}


def check_takes(name: str, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise ProgramTypeError, like Graphcore's loops, if a function does not take given arguments."""
    try:
        inspect.signature(function).bind(*args, **keywords)
    except ValueError:  # functions not written in Python may have no signature to check
        return
    except TypeError as error:
        names = f" and {', '.join(keywords)}" if keywords else ""
        raise ProgramTypeError(f"{name}: expected a function of {len(args)} arguments{names}, got {error}") from None


def check_call(name: str, function: object, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the keyword arguments; raises ProgramTypeError for a non-function, wrong args or wrong kwargs."""
    checks.function(name, function)
    checks.instance("args", args, list | tuple, "a tuple of the function's arguments")
    keywords: Mapping[str, Any] = {} if kwargs is None else kwargs
    if not isinstance(keywords, Mapping) or not all(isinstance(item, str) for item in keywords):
        checks.wrong_type("kwargs", "a dictionary of the function's arguments by name", kwargs)
    return keywords


def check_body(name: str, function: object) -> None:
    """Raise ProgramTypeError unless a loop body is a function."""
    checks.function(name, function, "a function of the loop-carried tensors and of an element of the infeed")
