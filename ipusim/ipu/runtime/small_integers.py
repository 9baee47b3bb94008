"""Quotients of whole numbers of 8 and 16 bits, which are float32 in TensorFlow and float64 in NumPy."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np

from ipusim.ipu.runtime.structures import mapped

_SMALL: Final = frozenset(map(np.dtype, (np.int8, np.uint8, np.int16, np.uint16)))


def truediv(x: Any, y: Any) -> Any:
    """Return the quotient of two tensors, or of one and a number, in TensorFlow's dtype."""
    result = operator.truediv(x, y)
    is_small = any(getattr(value, "dtype", None) in _SMALL for value in (x, y)) and _is_whole(x) and _is_whole(y)
    return result.astype(np.float32) if is_small else result


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (hasattr(value, "dtype") and value.dtype.kind in "iu")


class SmallIntegers(np.ndarray[Any, np.dtype[Any]]):
    """An array of whole numbers of 8 or 16 bits, of which Python's operator gives quotients as TensorFlow does."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with plain arrays."""
        arrays, others = mapped(_plain, (inputs, options))
        if ufunc is np.true_divide and method == "__call__" and not others:
            return truediv(*arrays)
        return as_tensorflow_divides(getattr(ufunc, method)(*arrays, **others))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Compute with plain arrays."""
        positional, named = mapped(_plain, (args, kwargs))
        return as_tensorflow_divides(function(*positional, **named))

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        """Return it in another dtype."""
        return as_tensorflow_divides(_plain(self).astype(*args, **kwargs))


def as_tensorflow_divides(values: Any) -> Any:
    """Return values in a structure like theirs, with those of 8 or 16 bits in arrays of that kind."""
    return mapped(_dividing, values)


def _dividing(value: Any) -> Any:
    is_small = isinstance(value, np.ndarray | np.generic) and value.dtype in _SMALL
    return np.asarray(value).view(SmallIntegers) if is_small else value


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, SmallIntegers) else value
