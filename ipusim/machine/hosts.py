"""Run a program on several simulated hosts in a single process, in turns.

A host is a greenlet that runs until it exchanges data with the others; then the next host runs. Turns follow the ranks
strictly, so that every run has the same result.
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
#: A waiting host's operation and contribution.
_Waits: TypeAlias = tuple[str, Any]


@dataclass(frozen=True)
class Host:
    """A simulated host among several.

    Attributes:
        rank: number of the host.
        count: number of hosts.
        exchange: function that waits until every host has reached the named operation, and returns the contributions
            by rank; raises ProgramStateError if another host has reached a different operation, or has ended.
        owed: exchanges since the last program run; no Timeline contains their time yet.
    """

    rank: int
    count: int
    exchange: Callable[[str, Any], Sequence[Any]]
    owed: list[HostExchange] = field(default_factory=list)

    def settle(self) -> tuple[HostExchange, ...]:
        """Return the owed exchanges, and clear the list."""
        exchanges = tuple(self.owed)
        self.owed.clear()
        return exchanges


_HOST: Final[ContextVar[Host | None]] = ContextVar("host", default=None)


def this_host() -> Host | None:
    """Return the caller's host; None for a single host."""
    return _HOST.get()


def host_count() -> int:
    """Return the number of hosts."""
    host = this_host()
    return 1 if host is None else host.count


def run_on(host: Host, function: Callable[[], T]) -> T:
    """Run a function on a host that exchanges with other processes.

    The function runs in a copy of the caller's context.
    """
    context = contextvars.copy_context()
    context.run(_HOST.set, host)
    return context.run(function)


def run_together(functions: Sequence[Callable[[], T]], turn: Callable[[int], None] = lambda _: None) -> list[T]:
    """Run every function on a separate host, by rank, and return the results.

    Every host gets a copy of the caller's context; ``turn`` is called with the rank of the host about to run. Raises
    the exception of any function, with a note about hosts that have not ended, and ProgramStateError if a host waits
    forever.
    """
    from greenlet import getcurrent, greenlet  # noqa: PLC0415 - needed only for several hosts

    if this_host() is not None:
        raise ProgramError("expected hosts started by one outer process, got a host that starts other hosts")
    parent, count = getcurrent(), len(functions)
    results: dict[int, T] = {}

    def run_rank(rank: int) -> None:
        _HOST.set(Host(rank, count, lambda operation, contribution: parent.switch((operation, contribution))))
        results[rank] = functions[rank]()

    hosts = [greenlet(run_rank) for _ in functions]
    for host in hosts:
        host.gr_context = contextvars.copy_context()
    answers: list[Any] = [(rank,) for rank in range(count)]
    # BLAS keeps a single thread until the last host ends: separate limits per host would begin and end in
    # different orders.
    with one_blas_thread():
        try:
            while True:
                waits_by_rank: dict[int, _Waits] = {}
                for rank, host in enumerate(hosts):
                    turn(rank)
                    with _add_notes(rank, waits_by_rank, hosts):
                        waits = host.switch(*answers[rank])
                    if not host.dead:
                        waits_by_rank[rank] = waits
                if not waits_by_rank:
                    return [results[rank] for rank in range(count)]
                _check(waits_by_rank, count)
                answers = [([contribution for _, contribution in waits_by_rank.values()],)] * count
        finally:
            for rank, host in enumerate(hosts):
                if not host.dead and host:
                    turn(rank)
                    host.throw()


@contextmanager
def _add_notes(rank: int, waits_by_rank: Mapping[int, _Waits], hosts: Sequence[greenlet]) -> Iterator[None]:
    """Add a note about waiting hosts to an error from a host's code."""
    try:
        yield
    except IpusimError:  # the message needs no note
        raise
    except (Exception, SystemExit) as error:
        if waits_by_rank:
            error.add_note(_message_of_end(waits_by_rank, rank))
        elif not all(host.dead for host in hosts):
            error.add_note(f"host {rank} has ended, and the other hosts with it")
        raise


def _check(waits_by_rank: Mapping[int, _Waits], count: int) -> None:
    """Raise ProgramStateError unless ``count`` hosts wait in the same operation."""
    for rank in range(count):
        if rank not in waits_by_rank:
            raise ProgramStateError(_message_of_end(waits_by_rank, rank))
    for rank, (operation, _) in waits_by_rank.items():
        if operation != waits_by_rank[0][0]:
            raise ProgramStateError(
                f"host 0 waits for all hosts in {waits_by_rank[0][0]}, but host {rank} in {operation}"
            )


def _message_of_end(waits_by_rank: Mapping[int, _Waits], ended_rank: int) -> str:
    """Return the message about the first waiting host and an ended host."""
    rank, (operation, _) = next(iter(waits_by_rank.items()))
    return f"host {rank} waits for all hosts in {operation}, but host {ended_rank} has ended"
