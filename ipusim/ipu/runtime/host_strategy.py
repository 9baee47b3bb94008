"""Track the multi-host strategy of programs: which hosts sum gradients, and how."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from ipusim.api import machine
from ipusim.base.errors import ProgramStateError
from ipusim.ipu.runtime.context import Scoped


@dataclass(frozen=True)
class Distribution:
    """Hosts that train together.

    Attributes:
        host: host of this process.
        over_links: whether gradients are summed over links between IPUs, rather than over the hosts' network.
        averaged: whether the sum is divided by the number of hosts.
    """

    host: machine.Host
    over_links: bool = False
    averaged: bool = False

    def options(self) -> dict[str, Any]:
        """Return the request's host options."""
        return {"count": self.host.count} | ({"sum_over": "links"} if self.over_links else {})


#: Strategy of the innermost scope; None outside scopes.
strategy: Final[Scoped[Any]] = Scoped("strategy", None)
#: Whether hosts average gradients, rather than sum, in programs built in this context.
averages: Final = Scoped("averages", default=False)


def in_scope_of(entered: Any) -> AbstractContextManager[Any]:
    """Enter a strategy's scope; None leaves all scopes.

    Raises ProgramStateError inside the scope of another strategy.
    """
    current = strategy()
    if current is not None and entered is not None and entered is not current:
        raise ProgramStateError(
            "Mixing different tf.distribute.Strategy objects: expected the scope of one strategy, got the "
            f"scope of {type(entered).__name__} inside the scope of {type(current).__name__}"
        )
    return strategy.set_to(entered)


def distribution() -> Distribution | None:
    """Return the distribution over hosts for programs built here; None for a single host."""
    host, current = machine.this_host(), strategy()
    if host is None or host.count == 1 or current is None:
        return None
    return Distribution(host, current.over_links, averages())


def variables_on_host() -> bool:
    """Tell whether the current strategy places variables on the host."""
    return bool(getattr(strategy(), "variables_on_host", False))


def replicas_in_sync() -> int:
    """Return the number of hosts that sum gradients in the current scope."""
    return 1 if strategy() is None else machine.host_count()
