"""Programs of several simulated hosts: what they train, take from each other and owe, and values that they reduce."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ipusim.api import Array, Job, Session, machine, pricing
from ipusim.ipu.runtime.host import EvaluatedTensor, Fetch, Tensor
from ipusim.ipu.runtime.host_strategy import (
    Distribution,
    averages,
    averaging,
    distribution,
    in_scope_of,
    replicas_in_sync,
    strategy,
    variables_on_host,
)

__all__ = [
    "Distribution",
    "HostProgram",
    "UntilAverage",
    "averaged",
    "averages",
    "averaging",
    "broadcasted",
    "distribution",
    "gathered",
    "in_scope_of",
    "reduced",
    "replicas_in_sync",
    "strategy",
    "variables_on_host",
]


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
            session.set_variables(machine.broadcast_all(self.distribution.host, name, session.variables()))
        self._begins = False
        with in_scope_of(None), in_scope_of(self._strategy):
            yield

    @staticmethod
    def owed() -> tuple[pricing.HostExchange, ...]:
        """Return the hosts' exchanges since the last program run of this one."""
        host = machine.this_host()
        return () if host is None else host.settle()


def reduced(name: str, value: Any, operation: str, before: Callable[[Array], Array] = np.asarray) -> Any:
    """Return ``before`` of the value, reduced over all hosts as ``host_collectives.all_reduce`` does."""

    def of(array: Array) -> Array:
        return machine.all_reduce(machine.this_host(), name, before(array), operation)

    return _made(of, value, before)


def gathered(name: str, value: Any) -> Any:
    """Return the values of all hosts one after the other, as ``host_collectives.all_gather`` does.

    A session's tensor is tried on as many rows as this host has, times the hosts: each may have others.
    """
    host = machine.this_host()

    def example(array: Array) -> Array:
        return array if host is None else np.concatenate([array] * host.count) if array.ndim else array

    return _made(lambda array: machine.all_gather(machine.this_host(), name, array), value, example)


def broadcasted(name: str, value: Any, root: int) -> Any:
    """Return the value of the host with rank ``root``, as ``host_collectives.broadcast`` does."""
    return _made(lambda array: machine.broadcast(machine.this_host(), name, array, root), value, np.asarray)


def _made(function: Callable[[Array], Array], value: Any, example: Callable[[Array], Array]) -> Any:
    """Return what all hosts make together of a value, of a session's in each run of it."""
    if isinstance(value, Fetch):
        tried = value.example if isinstance(value, Tensor) else np.zeros((), np.float32)
        return EvaluatedTensor(lambda running: function(np.asarray(running.value(value))), example(tried), value.late)
    return function(np.asarray(value))


#: The call that runs now, if it is one that stops.
_running: contextvars.ContextVar[UntilAverage | None] = contextvars.ContextVar("running", default=None)


class UntilAverage:
    """A call that runs up to its first :func:`averaged`, and then on from there when the averages are known.

    All replicas get to that place before any goes on, and what a user's optimizer does before and
    after it is one function. So each call has a thread; it and its caller never run at the same time.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        """Prepare ``call``, which :meth:`start` begins in the caller's context."""
        context = contextvars.copy_context()
        context.run(_running.set, self)
        self._call = call
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._stopped, self._go = threading.Semaphore(0), threading.Semaphore(0)
        self._pairs: list[Any] | None = None
        self._error: BaseException | None = None

    def start(self) -> list[Any] | None:
        """Run to where gradients are averaged; returns the pairs given there, None for a call that ended before."""
        self._thread.start()
        self._wait()
        return self._pairs

    def finish(self, pairs: list[Any]) -> None:
        """Run to the end, with ``pairs`` as the averages."""
        if self._pairs is not None:
            self._pairs = pairs
            self._go.release()
            self._wait()

    def stop(self, pairs: list[Any]) -> list[Any]:
        """Hand ``pairs`` to the caller, wait, and return the averages; called by the call itself."""
        self._pairs = pairs
        self._stopped.release()
        self._go.acquire()
        return self._pairs

    def _wait(self) -> None:
        self._stopped.acquire()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # of a user's optimizer: raised again in the caller's thread
            self._error = error
        self._stopped.release()


def averaged(pairs: Iterable[Any]) -> list[Any]:
    """Return the pairs of gradient and variable with each gradient averaged over replicas, once in a weight update."""
    running, result = _running.get(), list(pairs)
    if running is None:
        return result
    _running.set(None)
    return running.stop(result)
