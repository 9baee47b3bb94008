"""The session of an estimator: variables from a checkpoint, runs with hooks, and what comes before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from contextvars import Context
from typing import Any

from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.tensorflow.session import Session
from ipusim.ipu.tensorflow.session_run_hook import (
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    run_with_hooks,
)


def runs(
    fetches: Any,
    hooks: Sequence[SessionRunHook],
    restore: Callable[[Session], object],
    between: Callable[[], object] = lambda: None,
    agreed: Callable[[bool], bool] = bool,
) -> Iterator[Any]:
    """Run ``fetches`` until a hook asks to stop; yield their values after each run.

    Whether to stop is ``agreed`` on with others.

    In TensorFlow's order: hooks begin; ``restore`` gives variables their values; hooks see the session; in each run
    they are asked, what they ask for runs, ``between`` is called, and they look on; in the end they are told, unless
    something has failed or nobody asks for a further run.
    """
    for hook in hooks:
        hook.begin()
    with closing(Session()) as session:
        restore(session)
        for hook in hooks:
            hook.after_create_session(session, None)
        stop = False
        while not stop:
            values, asked = run_with_hooks(session, fetches, hooks, between)
            stop = agreed(asked)
            yield values
        for hook in hooks:
            hook.end(session)


class StartInfeed(SessionRunHook):
    """Initializes an infeed queue."""

    def __init__(self, infeed: IPUInfeedQueue) -> None:
        """Take the queue."""
        self._infeed = infeed

    def after_create_session(self, session: Any, coord: object) -> None:
        """Initialize it."""
        session.run(self._infeed.initializer)


class StopAfterRuns(SessionRunHook):
    """Stops after so many runs."""

    def __init__(self, count: int) -> None:
        """Take how many."""
        self._left = count

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Count, and ask to stop."""
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


def inside(context: Context, iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield what an iterator yields in a context of its own."""
    end = object()
    while (found := context.run(next, iterator, end)) is not end:
        yield found
