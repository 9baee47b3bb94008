"""Several simulated hosts in one process: each runs by itself until it needs the others, then the next one does.

One of them runs at any time, in the order of their ranks, so that a run has the same result every time.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ipusim.base.errors import IpusimError, ProgramError, ProgramStateError
from ipusim.machine.one_thread import one_blas_thread
from ipusim.pricing.exchanges import HostExchange

if TYPE_CHECKING:
    from greenlet import greenlet

T = TypeVar("T")
#: What a host waits for, and what it brings.
_Waits: TypeAlias = tuple[str, Any]


@dataclass(frozen=True)
class Host:
    """One of several hosts.

    Attributes:
        rank: its number.
        count: of hosts.
        exchange: waits until every host has come to what the words name, and returns what each has brought, by rank;
            raises ProgramStateError where another has come to something else, or has ended.
        owed: what hosts have done together since its last program run, whose time is not in a Timeline yet.
    """

    rank: int
    count: int
    exchange: Callable[[str, Any], Sequence[Any]]
    owed: list[HostExchange] = field(default_factory=list)

    def settle(self) -> tuple[HostExchange, ...]:
        """Return the exchanges that are owed, and clear them."""
        settled = tuple(self.owed)
        self.owed.clear()
        return settled


_HOST: Final[ContextVar[Host | None]] = ContextVar("host", default=None)


def this_host() -> Host | None:
    """Return the host that the caller runs on; None where there is but one."""
    return _HOST.get()


def host_count() -> int:
    """Return how many hosts there are, of which the caller runs on one."""
    host = this_host()
    return 1 if host is None else host.count


def run_on(host: Host, function: Callable[[], T]) -> T:
    """Run a function on a host whose exchanges reach other processes, with a copy of the caller's context."""
    context = contextvars.copy_context()
    context.run(_HOST.set, host)
    return context.run(function)


def run_together(functions: Sequence[Callable[[], T]], turn: Callable[[int], None] = lambda _: None) -> list[T]:
    """Run each function on a host of its own, by rank, and return their results.

    Each has a copy of the caller's context; ``turn`` is called with the rank of the host that goes on next. Raises
    what a function raises, with a note of the hosts that have not ended, and ProgramStateError where one waits for
    what will not come.
    """
    from greenlet import getcurrent, greenlet  # noqa: PLC0415 - only runs of several hosts need it

    if this_host() is not None:
        raise ProgramError("expected hosts to be started from outside of them, got a host that starts others")
    parent, count = getcurrent(), len(functions)
    results: dict[int, T] = {}

    def body(rank: int) -> None:
        _HOST.set(Host(rank, count, lambda what, brought: parent.switch((what, brought))))
        results[rank] = functions[rank]()

    hosts = [greenlet(body) for _ in functions]
    for host in hosts:
        host.gr_context = contextvars.copy_context()
    answers: list[Any] = [(rank,) for rank in range(count)]
    # One BLAS thread from here on: each host asks for one by itself, but they end in another order than they begin.
    with one_blas_thread():
        try:
            while True:
                waiting: dict[int, _Waits] = {}
                for rank, host in enumerate(hosts):
                    turn(rank)
                    with _noted(rank, waiting, hosts):
                        waits = host.switch(*answers[rank])
                    if not host.dead:
                        waiting[rank] = waits
                if not waiting:
                    return [results[rank] for rank in range(count)]
                _check(waiting, count)
                answers = [([brought for _, brought in waiting.values()],)] * count
        finally:
            for rank, host in enumerate(hosts):
                if not host.dead and host:
                    turn(rank)
                    host.throw()


@contextmanager
def _noted(rank: int, waiting: Mapping[int, _Waits], hosts: Sequence[greenlet]) -> Iterator[None]:
    """Add to an error of a host's own code what the other hosts wait for."""
    try:
        yield
    except IpusimError:  # which says all that there is to say
        raise
    except (Exception, SystemExit) as error:
        if waiting:
            error.add_note(_without(waiting, rank))
        elif not all(host.dead for host in hosts):
            error.add_note(f"host {rank} has ended, and the other hosts with it")
        raise


def _check(waiting: Mapping[int, _Waits], count: int) -> None:
    """Raise ProgramStateError unless all of ``count`` hosts wait in the same operation."""
    for rank in range(count):
        if rank not in waiting:
            raise ProgramStateError(_without(waiting, rank))
    for rank, (operation, _) in waiting.items():
        if operation != waiting[0][0]:
            raise ProgramStateError(f"host 0 waits for all hosts in {waiting[0][0]}, but host {rank} in {operation}")


def _without(waiting: Mapping[int, _Waits], ended: int) -> str:
    """Return the message for the first host that waits, for one that has ended."""
    rank, (operation, _) = next(iter(waiting.items()))
    return f"host {rank} waits for all hosts in {operation}, but host {ended} has ended"
