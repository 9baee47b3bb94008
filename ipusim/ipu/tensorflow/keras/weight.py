"""A weight of a Keras layer: a variable whose name is that of its model and layer, drawn when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.ipu.names import in_stage
from ipusim.ipu.variable import NamedVariable
from ipusim.model.functions.variables import looking_up
from ipusim.model.layers.layer import Array, Shape


class _Where(Enum):
    """Where layers are called: in a program, on the host, or nowhere, for the shapes that they give."""

    PROGRAM = 0
    HOST = 1
    TRYING = 2


_WHERE: Final[ContextVar[_Where]] = ContextVar("layers_called", default=_Where.PROGRAM)


@contextmanager
def _at(where: _Where) -> Iterator[None]:
    token = _WHERE.set(where)
    try:
        with looking_up(lambda _, initial: initial):
            yield
    finally:
        _WHERE.reset(token)


def trying() -> Any:
    """Return a context in which all weights are zeros."""
    return _at(_Where.TRYING)


def on_host() -> Any:
    """Return a context in which weights have their values of the host."""
    return _at(_Where.HOST)


def is_trying() -> bool:
    """Tell whether layers are tried for the shapes that they give."""
    return _WHERE.get() is _Where.TRYING


def may_change() -> bool:
    """Tell whether layers may change their weights, as in a program."""
    return _WHERE.get() is _Where.PROGRAM


class Weight(NamedVariable):
    """A weight.

    Attributes:
        own_name: its name in its layer.
    """

    def __init__(
        self,
        path: Callable[[], str],
        own_name: str,
        shape: Shape,
        dtype: npt.DTypeLike,
        draw: Callable[[], Array],
        trainable: bool = True,
    ) -> None:
        """Take what says the names around it, its own, its form, and what draws its first value."""
        self._path, self._draw, self.own_name = path, draw, own_name
        self._shape, self._dtype = tuple(shape), np.dtype(dtype)
        self._initial: Array | None = None
        self._begin(trainable and self._dtype.kind == "f", in_stage=in_stage())

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that it has as a variable of a program: those of model and layer, and its own."""
        return f"{self._path()}/{self.own_name}"

    @property
    def initial(self) -> Array:  # type: ignore[override]
        """The value that it begins with."""
        if self._initial is None:
            self._initial = np.asarray(self._draw(), self.dtype)
        return self._initial

    @property
    def example(self) -> Array:  # type: ignore[override]
        """An array of its form."""
        return self.initial

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self._dtype

    def read_value(self) -> Any:
        """Return what the caller computes with."""
        if is_trying():
            return np.zeros(self.shape, self.dtype)
        return super().read_value() if may_change() else self.value_now()
