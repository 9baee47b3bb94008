"""Variables that functions read and change while they run, and no optimizer trains: counters, moving statistics.

A value is replaced and never changed in place, so that one that was read stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.base.near_names import did_you_mean
from ipusim.model.layers.layer import Array


class Untrained:
    """The values that untrained variables have now.

    Attributes:
        values: by name.
        changed: the names of those that have been changed through this.
    """

    def __init__(self, values: dict[str, Array], names: Collection[str] | None = None):
        """Go on with ``values``, of which only ``names`` may be asked for."""
        self.values = values
        self.changed: set[str] = set()
        self._names = names

    def copy(self) -> Untrained:
        """Return the same values, whose changes are for itself."""
        return Untrained(dict(self.values), self._names)

    def read(self, name: str, initial: Array) -> Array:
        """Return a value, which is read-only.

        Raises ModelError for a variable that was not asked for when the function was first tried, and for one asked
        for in two shapes or dtypes.
        """
        self._check(name)
        check_same(name, self.values[name], initial)
        return self.values[name]

    def write(self, name: str, value: Any) -> None:
        """Replace a value; raises ModelError as :meth:`read` does."""
        self._check(name)
        value, before = np.asarray(value), self.values[name]
        check_same(name, before, value)
        self.values[name] = frozen(value)
        self.changed.add(name)

    def _check(self, name: str) -> None:
        if name not in self.values or (self._names is not None and name not in self._names):
            raise ModelError(
                f"variable {name!r} was requested, but not in the trial of the stage on the first micro-batch: request "
                "all variables in every call"
            )


def frozen(array: Array) -> Array:
    """Return a read-only copy."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def check_same(name: str, one: Array, other: Array) -> None:
    """Refuse one variable asked for in two shapes or dtypes; raises ModelError."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        raise ModelError(
            f"variable {name!r} was requested as {one.dtype}{list(one.shape)} and as {other.dtype}{list(other.shape)}: "
            "a name stands for one variable"
        )


def check_known(variables: Mapping[str, Array], values: Mapping[str, Array]) -> None:
    """Refuse values of unknown variables, or of another shape or dtype; raises ModelError."""
    for name, value in values.items():
        if name not in variables:
            raise ModelError(f"expected a variable of the program, got {name!r}{did_you_mean(name, list(variables))}")
        check_same(name, variables[name], value)


def set_arrays(variables: Mapping[str, Array], values: Mapping[str, Array]) -> None:
    """Set arrays in place; raises ModelError as :func:`check_known` does."""
    check_known(variables, values)
    for name, value in values.items():
        variables[name][...] = value
