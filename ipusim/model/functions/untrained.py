"""Hold variables that functions read and change without an optimizer: counters, moving statistics.

Functions replace values and never change them in place, so a value read earlier stays valid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.base.near_names import did_you_mean
from ipusim.model.layers.layer import Array


class Untrained:
    """Current values of the untrained variables.

    Attributes:
        values: arrays by name.
    """

    def __init__(self, values: dict[str, Array], names: Collection[str] | None = None):
        """Start from ``values``; only ``names`` may be requested, by default all of them."""
        self.values = values
        self._names = names

    def copy(self) -> Untrained:
        """Return an independent copy of the values."""
        return Untrained(dict(self.values), self._names)

    def read(self, name: str, initial: Array) -> Array:
        """Return the current value of a variable, read-only; ``initial`` has the requested shape and dtype.

        Raises ModelError for a variable absent from the function's first call, which tries its stage, and for a
        variable requested with two shapes or dtypes.
        """
        self._check(name)
        check_same(name, self.values[name], initial)
        return self.values[name]

    def write(self, name: str, value: Any) -> None:
        """Replace a value; raises ModelError like :meth:`read`."""
        self._check(name)
        value, old_value = np.asarray(value), self.values[name]
        check_same(name, old_value, value)
        self.values[name] = read_only_copy(value)

    def _check(self, name: str) -> None:
        if name not in self.values or (self._names is not None and name not in self._names):
            raise ModelError(
                f"variable {name!r} was requested, but not in the trial of the stage on the first micro-batch: request "
                "all variables in every call"
            )


def read_only_copy(array: Array) -> Array:
    """Return a read-only copy."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def check_same(name: str, first: Array, second: Array) -> None:
    """Refuse a variable requested with two shapes or dtypes; raises ModelError."""
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        raise ModelError(
            f"variable {name!r} was requested as {first.dtype}{list(first.shape)} and as "
            f"{second.dtype}{list(second.shape)}: a name stands for one variable"
        )


def check_known(variables: Mapping[str, Array], values: Mapping[str, Array]) -> None:
    """Refuse values of unknown variables, or of another shape or dtype; raises ModelError."""
    for name, value in values.items():
        if name not in variables:
            raise ModelError(f"expected a variable of the program, got {name!r}{did_you_mean(name, list(variables))}")
        check_same(name, variables[name], value)


def set_arrays(variables: Mapping[str, Array], values: Mapping[str, Array]) -> None:
    """Set the contents of arrays before a run; raises ModelError like :func:`check_known`."""
    check_known(variables, values)
    for name, value in values.items():
        variables[name][...] = value
