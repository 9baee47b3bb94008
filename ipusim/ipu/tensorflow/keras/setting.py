"""A number that can be set while a program runs on, such as an optimizer's step size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ipusim.ipu import checks


class Setting:
    """A number, read anew in every weight update."""

    def __init__(self, name: str, value: Any) -> None:
        """Take what messages call it, and the number; raises ProgramTypeError for what is none."""
        self.name = name
        self._value = 0.0
        self.assign(value)

    def assign(self, value: Any) -> None:
        """Set it; raises ProgramTypeError for what is no number, ProgramError for several or one that is not finite."""
        found = checks.numbers(self.name, value)
        if found.ndim or not np.isfinite(found):
            checks.wrong_value(self.name, "a number", value)
        self._value = float(found)

    def numpy(self) -> np.float32:
        """Return it, as TensorFlow has it."""
        return np.float32(self._value)

    def __float__(self) -> float:
        """Return it as Python's number."""
        return self._value

    def __int__(self) -> int:
        """Return it as Python's whole number."""
        return int(self._value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return it as an array."""
        return np.asarray(self._value, np.float32 if dtype is None else dtype)

    def __repr__(self) -> str:
        """Say name and value."""
        return f"<{self.name}: {self._value:g}>"

    def __eq__(self, other: object) -> bool:
        """Compare the number."""
        return self._value == (other._value if isinstance(other, Setting) else other)

    __hash__ = None  # type: ignore[assignment]


def _method(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: Setting, other: Any = None) -> Any:
        values = (float(self), float(other) if isinstance(other, Setting) else other)
        return function(*(reversed(values) if reflected else values))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Setting, f"__{_name}__", _method(getattr(operator, _name)))
    setattr(Setting, f"__r{_name}__", _method(getattr(operator, _name), reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Setting, f"__{_name}__", _method(getattr(operator, _name)))
