"""Tensors of the host that the body of a loop uses without being given them: their values in each run of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ipusim.errors import UnsupportedProgramError
from ipusim.model.layers.layer import Array

#: What the body that is running captures; None where none is, as in a stage of a pipeline, which may capture nothing.
_CAPTURES: Final[ContextVar[Captures | None]] = ContextVar("captures", default=None)


class Captures:
    """The tensors that one body captures, each with its value."""

    def __init__(self, values: Mapping[Any, Array] | None = None) -> None:
        """Begin with none; the body is tried on ``values`` of those that it captures, by default on their examples."""
        self._tried = dict(values or {})
        self._values: dict[Any, Array] = {}
        self._running = False

    def __len__(self) -> int:
        """How many there are."""
        return len(self._values)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of their values."""
        return tuple(each.shape for each in self._values.values())

    def evaluated(self, value: Callable[[Any], Array]) -> dict[Any, Array]:
        """Return the values of a run, in which ``value`` evaluates a tensor, by tensor."""
        return {tensor: value(tensor).astype(before.dtype) for tensor, before in self._values.items()}

    def take(self, value: Callable[[Any], Array]) -> None:
        """Take the values of a run, in which ``value`` evaluates a tensor."""
        self._values = self.evaluated(value)
        self._running = True

    def value_of(self, tensor: Any) -> Array:
        """Return the value of a tensor in this run, while the body is tried an array of its form.

        Raises UnsupportedProgramError for one that the body did not capture when it was tried.
        """
        if tensor not in self._values:
            if self._running:
                raise UnsupportedProgramError(f"body: expected to capture {tensor!r} in every iteration, or in none")
            self._values[tensor] = self._tried.get(tensor, tensor.example)
        return self._values[tensor]

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Let the block use tensors of the host, by their values."""
        token = _CAPTURES.set(self)
        try:
            yield
        finally:
            _CAPTURES.reset(token)


def captures() -> Captures | None:
    """Return what the body that is running captures, None where none is."""
    return _CAPTURES.get()
