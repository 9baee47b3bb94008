"""The strategy of several hosts that programs are built under: which hosts sum up gradients, and how."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from ipusim.api import machine
from ipusim.base.errors import ProgramStateError
from ipusim.ipu.runtime.context import Scoped


@dataclass(frozen=True)
class Distribution:
    """The hosts that train together.

    Attributes:
        host: this process's host.
        over_links: whether gradients are summed up over the links between IPUs, and not over the hosts' network.
        averaged: whether the sum is divided by the hosts.
    """

    host: machine.Host
    over_links: bool = False
    averaged: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options of a request for it."""
        return {"count": self.host.count} | ({"sum_over": "links"} if self.over_links else {})


#: The strategy of the innermost scope; None outside of any.
strategy: Final[Scoped[Any]] = Scoped("strategy", None)
#: Whether hosts average gradients in programs that are built here, instead of summing them.
averages: Final = Scoped("averages", default=False)


def in_scope_of(result: Any) -> AbstractContextManager[Any]:
    """Enter the scope of a strategy, or of none, for the block; raises ProgramStateError in another one's."""
    current = strategy()
    if current is not None and result is not None and result is not current:
        raise ProgramStateError(
            "Mixing different tf.distribute.Strategy objects: expected the scope of one strategy, got that of "
            f"{type(result).__name__} in that of {type(current).__name__}"
        )
    return strategy.set_to(result)


def distribution() -> Distribution | None:
    """Return how a program built here is distributed over hosts; None for a single one."""
    host, result = machine.this_host(), strategy()
    if host is None or host.count == 1 or result is None:
        return None
    return Distribution(host, result.over_links, averages())


def variables_on_host() -> bool:
    """Tell whether the strategy of the scope places variables on the host."""
    return bool(getattr(strategy(), "variables_on_host", False))


def replicas_in_sync() -> int:
    """Return the hosts over which gradients are summed up in the scope that the caller is in."""
    return 1 if strategy() is None else machine.host_count()
