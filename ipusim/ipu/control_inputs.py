"""What ``tf.control_dependencies`` says must come before all that is made in its block, in each run of a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

#: A Fetch, which knows this module (:class:`ipusim.ipu.host.Fetch`).
Fetch = Any

_INPUTS: Final[ContextVar[tuple[Fetch, ...]]] = ContextVar("control_inputs", default=())


def control_inputs() -> tuple[Fetch, ...]:
    """Return what comes before anything that is made here."""
    return _INPUTS.get()


@contextmanager
def depending_on(inputs: Sequence[Fetch] | None) -> Iterator[None]:
    """Let ``inputs`` come before what is made in the block, beside those of blocks around; None: nothing at all."""
    token = _INPUTS.set(() if inputs is None else (*_INPUTS.get(), *inputs))
    try:
        yield
    finally:
        _INPUTS.reset(token)


def is_late(value: Any) -> bool:
    """Tell whether a value is a Fetch that comes after all others of a run, or that such a one must come before."""
    return getattr(value, "late", False) or any(map(is_late, getattr(value, "control_inputs", ())))
