"""autograd's process-wide state of a running function, put aside while another function runs."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from autograd.extend import Box
from autograd.tracer import trace_stack


class RunningTrace:
    """A block in which an interrupted function resumes, with the traces that it has begun.

    autograd numbers traces as they are nested, and :mod:`ipusim.model.functions.traced_array` has its arrays made while
    one runs. Of functions that run in turns, each must find both as it left them.
    """

    __slots__ = ("_inside", "_outside")

    def __init__(self) -> None:
        """Begin where the caller is."""
        self._inside = self._outside = _state()

    def __enter__(self) -> None:
        """Enter the surroundings that the function has left, and remember the caller's."""
        self._outside = _state()
        _restore(self._inside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put it aside again."""
        self._inside = _state()
        _restore(self._outside)


def _state() -> tuple[int, dict[Any, Any]]:
    return trace_stack.top, dict(Box.type_mappings)


def _restore(state: tuple[int, dict[Any, Any]]) -> None:
    trace_stack.top = state[0]
    Box.type_mappings.update(state[1])
