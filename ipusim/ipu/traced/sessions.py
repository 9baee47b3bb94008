"""Find TensorFlow's running session, and run host nodes inside the session's run.

An import of this module extends TensorFlow's Session: operations can ask for the session that runs them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from ipusim.api import machine
from ipusim.base.errors import IpusimError
from ipusim.ipu.graph.tensorflow_import import load

tf = load()

#: Session and caller's context per run, by the number handed to the graph's operations.
_RUNS: Final[dict[int, tuple[Any, Context]]] = {}
#: Numbers of session runs.
_RUN_NUMBERS: Final = count()
#: Tensor per graph that holds the number of the session's run.
_TOKENS: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
#: Options for nested runs: use the caller's thread, since sessions with a single thread would deadlock.
_NESTED_OPTIONS: Final = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
#: Error of the program that ended a session's last run.
FAILURES: Final[WeakKeyDictionary[Any, IpusimError]] = WeakKeyDictionary()
#: Lock held while a program reads variables, runs and assigns, so that concurrent runs lose no change.
LOCK: Final = threading.RLock()


def session_token() -> Any:
    """Return the current graph's tensor that identifies the running session."""
    graph = tf.compat.v1.get_default_graph()
    if graph not in _TOKENS:
        with graph.as_default(), tf.control_dependencies(None):
            _TOKENS[graph] = tf.compat.v1.placeholder_with_default(tf.constant(-1, tf.int64), [], "ipusim_session")
    return _TOKENS[graph]


class RunningSession:
    """The session running an operation.

    Attributes:
        session: TensorFlow's session.
        context: context of the caller of ``run``; TensorFlow runs operations in separate threads.
    """

    def __init__(self, number: int) -> None:
        """Find the session by the number of its run."""
        self.session, self.context = _RUNS[number]

    def run(self, fetches: Sequence[Any], feeds: Mapping[Any, Any] | None = None) -> list[Any]:
        """Run host nodes inside the session's run, and return the fetched values."""
        values: list[Any] = _RUN(self.session, list(fetches), feeds, _NESTED_OPTIONS)
        return values


@contextmanager
def failing(host: RunningSession) -> Iterator[None]:
    """Make the session's run raise the IpusimError that the block raises."""
    try:
        yield
    except IpusimError as error:
        FAILURES[host.session] = error
        raise


class EagerHost:
    """Host of TensorFlow 2 programs, which have no session."""

    @property
    def session(self) -> EagerHost:
        """Key of the host's data, in place of a session."""
        return self


#: Host of TensorFlow 2 programs.
EAGER: Final = EagerHost()
#: TensorFlow's own method.
_RUN: Final = tf.compat.v1.Session.run


def _run_with_token(
    session: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
) -> Any:
    """Run TensorFlow's session, and feed the run's number to the graph's operations.

    Raises:
        IpusimError: if the program failed; this error replaces TensorFlow's error about the operation.
    """
    token = _TOKENS.get(session.graph)
    if machine.this_host() is not None:
        options = _in_caller_thread(options)
    if token is None:
        return _RUN(session, fetches, feed_dict, options, run_metadata)
    number = next(_RUN_NUMBERS)
    _RUNS[number] = session, copy_context()
    FAILURES.pop(session, None)
    try:
        return _RUN(session, fetches, {**(feed_dict or {}), token: number}, options, run_metadata)
    except tf.errors.OpError:
        if session in FAILURES:
            raise FAILURES.pop(session).with_traceback(None) from None
        raise
    finally:
        del _RUNS[number]


def _in_caller_thread(options: Any) -> Any:
    """Return run options for the caller's thread.

    One thread runs operations in a fixed order, so every host calls collectives in this order.
    """
    result = tf.compat.v1.RunOptions()
    result.MergeFrom(options or _NESTED_OPTIONS)
    result.inter_op_thread_pool = _NESTED_OPTIONS.inter_op_thread_pool
    return result


tf.compat.v1.Session.run = _run_with_token
