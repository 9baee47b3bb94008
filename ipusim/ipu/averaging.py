"""A call of an optimizer's apply_gradients that stops where gradients are averaged over replicas."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from typing import Any

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
    running, found = _running.get(), list(pairs)
    if running is None:
        return found
    _running.set(None)
    return running.stop(found)
