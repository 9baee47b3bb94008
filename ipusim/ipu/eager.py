"""A result on the host as TensorFlow 2 gives it: an array that says its value by ``numpy()`` too."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.model.layers.layer import Array


class EagerArray(np.ndarray[Any, Any]):
    """An array, with what TensorFlow's tensors have beside.

    What is computed of it and of Python's numbers is another one; of it and any other array a plain array.
    """

    def numpy(self) -> Any:
        """Return the value: a plain array, or the number of an array without axes."""
        return np.asarray(self)[()]

    def __repr__(self) -> str:
        """Say what a plain array says."""
        return repr(np.asarray(self))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Compute on plain arrays."""
        if out is not None:
            options["out"] = tuple(map(_plain, out))
        found = getattr(ufunc, method)(*map(_plain, inputs), **options)
        same = all(isinstance(each, EagerArray | int | float) and not isinstance(each, np.generic) for each in inputs)
        if out is not None:
            return out[0] if len(out) == 1 else out
        return eager(found) if same and isinstance(found, np.ndarray | np.generic) else found


def eager(value: Any) -> EagerArray:
    """Return an array, or a number of NumPy's, as such a result, which shares its memory."""
    return np.asarray(value).view(EagerArray)


def _plain(value: Any) -> Array | Any:
    return np.asarray(value) if isinstance(value, EagerArray) else value
