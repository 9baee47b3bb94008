"""What a loop's body logs for hooks on the host: collected with the loss, as a body sends to one outfeed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol


class Logs(Protocol):
    """A hook that logs what it is handed after a run."""

    def take(self, values: Mapping[str, Any]) -> None:
        """Take the values of all mini-batches of a run, by name."""


@dataclass
class Logged:
    """What one run of a body logs.

    Attributes:
        hooks: in the order in which they log.
        tensors: of each hook, by name.
    """

    hooks: list[Logs] = field(default_factory=list)
    tensors: list[dict[str, Any]] = field(default_factory=list)

    def add(self, hook: Logs, tensors: dict[str, Any]) -> None:
        """Log tensors by name for a hook."""
        self.hooks.append(hook)
        self.tensors.append(tensors)

    def sent(self) -> dict[str, Any]:
        """Return all tensors by names of their own."""
        return {
            f"{_name(number)}{name}": each for number, held in enumerate(self.tensors) for name, each in held.items()
        }

    def given(self, results: Mapping[str, Any]) -> Mapping[str, Any]:
        """Hand each hook what a run has sent for it, and return all."""
        for number, hook in enumerate(self.hooks):
            start = _name(number)
            hook.take({name.removeprefix(start): each for name, each in results.items() if name.startswith(start)})
        return results


_LOGGED: Final[ContextVar[Logged | None]] = ContextVar("logged", default=None)


def logged() -> Logged | None:
    """Return what collects for the estimator's body that is running; None where none is."""
    return _LOGGED.get()


@contextmanager
def collecting() -> Iterator[Logged]:
    """Collect what is logged in the block."""
    found = Logged()
    token = _LOGGED.set(found)
    try:
        yield found
    finally:
        _LOGGED.reset(token)


def _name(number: int) -> str:
    return f"hook {number}/"
