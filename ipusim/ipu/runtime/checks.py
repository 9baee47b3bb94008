"""Checks of arguments that Graphcore has no text for: each names the argument, the value and what would be right.

All raise ProgramTypeError for a value of another type than they return.
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
_SHORT.maxstring = _SHORT.maxother = 60  # characters of a value that a message quotes


def wrong_type(name: str, expected: str, value: object) -> NoReturn:
    """Raise ProgramTypeError for an argument of another type."""
    raise ProgramTypeError(f"{name}: expected {expected}, got {_SHORT.repr(value)}")


def wrong_value(name: str, expected: str, value: object) -> NoReturn:
    """Raise ProgramError for an argument out of range."""
    raise ProgramError(f"{name}: expected {expected}, got {_SHORT.repr(value)}")


def instance(name: str, value: object, kinds: type | UnionType, expected: str) -> None:
    """Check that an argument is an object of one of the ``kinds``."""
    if not isinstance(value, kinds):
        wrong_type(name, expected, value)


def function(name: str, value: object, expected: str = "a function", *, optional: bool = False) -> None:
    """Check that an argument can be called, or is None where it is ``optional``."""
    if not callable(value) and not (optional and value is None):
        wrong_type(name, expected, value)


def integer(name: str, value: object) -> int:
    """Return a whole number, which True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        wrong_type(name, "a whole number", value)
    return int(value)


def whole(name: str, value: object, least: int = 0) -> int:
    """Return a whole number from ``least`` to the largest of 32 bits; raises ProgramError for another."""
    result = integer(name, value)
    if not least <= result <= _INT32_MAX:
        wrong_value(name, f"a whole number from {least} to {_INT32_MAX}", result)
    return result


def number(name: str, value: object) -> float:
    """Return a finite number; raises ProgramError for one that is not."""
    result = _real(name, value)
    if not math.isfinite(result):
        wrong_value(name, "a finite number", value)
    return result


def not_negative(name: str, value: object) -> float:
    """Return a finite number that is not negative; raises ProgramError for another."""
    result = _real(name, value)
    if not 0 <= result < float("inf"):
        wrong_value(name, "a finite number from 0", value)
    return result


def _real(name: str, value: object) -> float:
    """Return a number, which True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        wrong_type(name, "a number", value)
    return float(value)


def truth(name: str, value: object) -> bool:
    """Return a truth value."""
    instance(name, value, bool | np.bool_, "True or False")
    return bool(value)


def three_state(name: str, value: object) -> bool | None:
    """Return a truth value, or None for the default."""
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
    """Return a dtype, NumPy's or TensorFlow's, of one of NumPy's ``kinds``; None, NumPy's float64, is none.

    Raises ProgramError for a dtype of another kind.
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
    """Return an array of real or whole numbers or truth values."""
    try:
        result = np.asarray(value)
    except ProgramTypeError:  # with a message of the value's own
        raise
    except (TypeError, ValueError):  # rows of different lengths
        result = None
    if result is None or result.dtype.kind not in "biuf":
        wrong_type(name, "an array or a number", value)
    return result


def as_results(value: Any) -> tuple[Any, ...]:
    """Return results of a function as a tuple: one value as a tuple of one, None as an empty one."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, tuple | list) else (value,)
