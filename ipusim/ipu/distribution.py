"""How programs that are built in the scope of a strategy train: on one of several simulated hosts, or alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from ipusim.errors import ProgramStateError
from ipusim.machine.hosts import Host, host_count, this_host


@dataclass(frozen=True)
class Distribution:
    """The hosts that train together.

    Attributes:
        host: the one that this is.
        over_links: whether gradients are summed up over the links between IPUs, and not over the hosts' network.
        averaged: whether the sum is divided by the hosts.
    """

    host: Host
    over_links: bool = False
    averaged: bool = False

    def options(self) -> dict[str, Any]:
        """Return what a request says of it."""
        return {"count": self.host.count} | ({"sum_over": "links"} if self.over_links else {})


#: The strategy of the innermost scope; None outside of any.
_STRATEGY: Final[ContextVar[Any]] = ContextVar("strategy", default=None)
_AVERAGING: Final[ContextVar[bool]] = ContextVar("averaging", default=False)


def strategy() -> Any:
    """Return the strategy whose scope the caller is in, None for none."""
    return _STRATEGY.get()


@contextmanager
def in_scope_of(found: Any) -> Iterator[None]:
    """Be in the scope of a strategy in the block, or of none; raises ProgramStateError in that of another one."""
    current = strategy()
    if current is not None and found is not None and found is not current:
        raise ProgramStateError(
            "Mixing different tf.distribute.Strategy objects: expected the scope of one strategy, got that of "
            f"{type(found).__name__} in that of {type(current).__name__}"
        )
    token = _STRATEGY.set(found)
    try:
        yield
    finally:
        _STRATEGY.reset(token)


@contextmanager
def averaging() -> Iterator[None]:
    """Let the hosts average the gradients of programs that are built in the block, where they would sum them up."""
    token = _AVERAGING.set(True)
    try:
        yield
    finally:
        _AVERAGING.reset(token)


def averages() -> bool:
    """Whether hosts average gradients in the block that the caller is in."""
    return _AVERAGING.get()


def distribution(processes: int = 0) -> Distribution | None:
    """Return how a program trains that is built here, in a configuration of so many processes; None: alone."""
    host, found = this_host(), strategy()
    if host is None or host.count == 1 or (found is None and processes < 2):
        return None
    return Distribution(host, found.over_links if found is not None else True, averages())


def variables_on_host() -> bool:
    """Whether the strategy of the scope that the caller is in places variables on the host."""
    return bool(getattr(strategy(), "variables_on_host", False))


def replicas_in_sync() -> int:
    """Return the hosts over which gradients are summed up in the scope that the caller is in."""
    return 1 if strategy() is None else host_count()
