"""A program on one of several hosts: what it takes from the others before its first run, and owes when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ipusim.ipu.distribution import Distribution, in_scope_of, strategy
from ipusim.machine.host_collectives import broadcast_all
from ipusim.machine.hosts import this_host
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.job import Job
from ipusim.runs.session import Session


class HostProgram:
    """The part of a program that knows the other hosts; on one host it does nothing.

    Attributes:
        distribution: the hosts that train together; None where the program trains alone.
    """

    def __init__(self) -> None:
        """Take the strategy that the program is built in."""
        self.distribution: Distribution | None = None
        self._strategy = strategy()
        self._begins = False

    def session(self, job: Job, *, goes_on: bool = False) -> Session:
        """Return a session of the job on this host, whose variables are the first host's when it first trains.

        One that ``goes_on`` from another has the variables of that.
        """
        self._begins = self.distribution is not None and job.plan.shape.training and not goes_on
        if self.distribution is None:
            return Session(job)
        return Session(job, self.distribution.host, own_feed=True, summed=not self.distribution.averaged)

    @contextmanager
    def running(self, session: Session) -> Iterator[None]:
        """Run the program's functions in the block as in the scope of its strategy, from the first host's variables."""
        if self._begins and self.distribution is not None and session.computes:
            name = f"the first variables of the program {session.job.name!r}"
            session.set_variables(broadcast_all(self.distribution.host, name, session.variables()))
        self._begins = False
        with in_scope_of(None), in_scope_of(self._strategy):
            yield

    @staticmethod
    def owed() -> tuple[HostExchange, ...]:
        """Return what hosts have done together since the last program run of this one."""
        host = this_host()
        return () if host is None else host.settle()
