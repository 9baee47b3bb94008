"""Offer names of earlier NumPy releases, for programs of Graphcore's TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

#: Names removed in NumPy 1.24, 2.0 and 2.4, with the replacements of the release notes.
_EARLIER_NAMES: Final[dict[str, Any]] = {
    **{kind.__name__: kind for kind in (int, float, complex, object, str)},
    **dict.fromkeys(("Inf", "Infinity", "infty", "PINF"), np.inf),
    "NINF": -np.inf,
    "NaN": np.nan,
    "float_": np.float64,
    "complex_": np.complex128,
    "string_": np.bytes_,
    "unicode_": np.str_,
    "alltrue": np.all,
    "asfarray": lambda a, dtype=np.float64: np.asarray(a, dtype),
    "cumproduct": np.cumprod,
    "in1d": lambda ar1, ar2, **options: np.isin(np.ravel(ar1), ar2, **options),
    "mat": np.asmatrix,
    "product": np.prod,
    "round_": np.round,
    "row_stack": np.vstack,
    "sometrue": np.any,
    "trapz": np.trapezoid,
}


@contextmanager
def earlier_numpy_names() -> Iterator[None]:
    """Add names of earlier releases, missing from the installed NumPy, in the block."""
    added = {name: value for name, value in _EARLIER_NAMES.items() if name not in vars(np)}
    vars(np).update(added)
    try:
        yield
    finally:
        for name in added:
            delattr(np, name)
