"""Check arguments, with ipusim's own messages for errors that have no text of Graphcore's.

Messages name the argument, the value and the expected value. All checks raise ProgramTypeError for a value of a
wrong type.
"""

from __future__ import annotations

import math
from os import PathLike, fspath
from reprlib import Repr
from types import UnionType
from typing import Any, Final, NoReturn

import numpy as np

from ipusim.base.errors import ProgramError, ProgramTypeError

_INT32_MAX: Final = 2**31 - 1
_SHORT: Final = Repr()
_SHORT.maxstring = _SHORT.maxother = 60  # maximum length of a value in messages


def wrong_type(name: str, requirement: str, value: object) -> NoReturn:
    """Raise ProgramTypeError for an argument of a wrong type."""
    raise ProgramTypeError(f"{name}: expected {requirement}, got {_SHORT.repr(value)}")


def wrong_value(name: str, requirement: str, value: object) -> NoReturn:
    """Raise ProgramError for an argument out of range."""
    raise ProgramError(f"{name}: expected {requirement}, got {_SHORT.repr(value)}")


def instance(name: str, value: object, kinds: type | UnionType, requirement: str) -> None:
    """Check that an argument is an instance of ``kinds``."""
    if not isinstance(value, kinds):
        wrong_type(name, requirement, value)


def function(name: str, value: object, requirement: str = "a function", *, optional: bool = False) -> None:
    """Check that an argument is callable; an ``optional`` argument may be None."""
    if not callable(value) and not (optional and value is None):
        wrong_type(name, requirement, value)


def integer(name: str, value: object) -> int:
    """Return an integer; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        wrong_type(name, "a whole number", value)
    return int(value)


def whole(name: str, value: object, least: int = 0) -> int:
    """Return a 32-bit integer of at least ``least``; raises ProgramError if out of range."""
    result = integer(name, value)
    if not least <= result <= _INT32_MAX:
        wrong_value(name, f"a whole number from {least} to {_INT32_MAX}", result)
    return result


def number(name: str, value: object) -> float:
    """Return a finite number; raises ProgramError for infinities and NaN."""
    result = _real(name, value)
    if not math.isfinite(result):
        wrong_value(name, "a finite number", value)
    return result


def not_negative(name: str, value: object) -> float:
    """Return a finite, non-negative number; raises ProgramError for other numbers."""
    result = _real(name, value)
    if not 0 <= result < float("inf"):
        wrong_value(name, "a finite number from 0", value)
    return result


def _real(name: str, value: object) -> float:
    """Return a number; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        wrong_type(name, "a number", value)
    return float(value)


def truth(name: str, value: object) -> bool:
    """Return a boolean."""
    instance(name, value, bool | np.bool_, "True or False")
    return bool(value)


def three_state(name: str, value: object) -> bool | None:
    """Return a boolean, or None for the default."""
    instance(name, value, bool | np.bool_ | None, "True, False or None")
    return None if value is None else bool(value)


def text(name: str, value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        wrong_type(name, "a text", value)
    return value


def path(name: str, value: Any) -> str:
    """Return a path as a text."""
    if not isinstance(value, str | PathLike):
        wrong_type(name, "a path", value)
    return fspath(value)


def dtype(name: str, value: Any, kinds: str = "f") -> np.dtype[Any]:
    """Return a NumPy or TensorFlow dtype of one of NumPy's ``kinds``.

    None is refused, although NumPy reads float64. Raises ProgramError for a dtype of another kind.
    """
    try:
        result: np.dtype[Any] | None = None if value is None else np.dtype(getattr(value, "as_numpy_dtype", value))
    except (TypeError, ValueError):
        result = None
    if result is None:
        wrong_type(name, "a dtype such as numpy.float32", value)
    if result.kind not in kinds:
        wrong_value(name, f"a {'floating-point' if kinds == 'f' else 'numeric'} dtype such as numpy.float32", value)
    return result


def numbers(name: str, value: Any) -> np.ndarray[Any, Any]:
    """Return an array of numbers or booleans."""
    try:
        result = np.asarray(value)
    except ProgramTypeError:  # the value itself raised this error, with a better message
        raise
    except (TypeError, ValueError):  # rows of different lengths
        result = None
    if result is None or result.dtype.kind not in "biuf":
        wrong_type(name, "an array or a number", value)
    return result


def as_list(values: Any) -> list[Any]:
    """Return a function's result as a list; an empty list for None."""
    return list(values) if isinstance(values, tuple | list) else [] if values is None else [values]
