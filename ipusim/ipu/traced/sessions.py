"""The running session of TensorFlow, which operations of ours ask for, and runs inside of its run.

Every session of a process that imports this module tells operations which session runs them.
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

#: The session and the caller's context of each run, by the number that it hands to the operations of a graph.
_RUNS: Final[dict[int, tuple[Any, Context]]] = {}
_NUMBERS: Final = count()
#: The tensor of each graph whose value is the number of the session that runs.
_TOKENS: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
#: Options of nested runs: the caller's thread, since a session with a single thread would deadlock.
_INSIDE: Final = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
#: Error of a program that ended the last run of a session.
FAILED: Final[WeakKeyDictionary[Any, IpusimError]] = WeakKeyDictionary()
#: Held while a program reads variables, runs and assigns them: concurrent runs lose no change.
LOCK: Final = threading.RLock()


def session_token() -> Any:
    """Return the tensor of the graph that is being built whose value tells which session runs."""
    graph = tf.compat.v1.get_default_graph()
    if graph not in _TOKENS:
        with graph.as_default(), tf.control_dependencies(None):
            _TOKENS[graph] = tf.compat.v1.placeholder_with_default(tf.constant(-1, tf.int64), [], "ipusim_session")
    return _TOKENS[graph]


class RunningSession:
    """The session that runs an operation.

    Attributes:
        session: TensorFlow's session.
        context: the context of the caller of ``run``; TensorFlow runs operations in threads of its own.
    """

    def __init__(self, number: int) -> None:
        """Find the session by the value of the token."""
        self.session, self.context = _RUNS[number]

    def run(self, fetches: Sequence[Any], feeds: Mapping[Any, Any] | None = None) -> list[Any]:
        """Run nodes of the host inside of the session's run, and return the values of fetches."""
        values: list[Any] = _RUN(self.session, list(fetches), feeds, _INSIDE)
        return values


@contextmanager
def failing(running: RunningSession) -> Iterator[None]:
    """Let the session's run end with the error of ours that ends the block."""
    try:
        yield
    except IpusimError as error:
        FAILED[running.session] = error
        raise


class EagerHost:
    """The host of programs of TensorFlow 2, which have no session."""

    @property
    def session(self) -> EagerHost:
        """The key of the data of a session."""
        return self


#: The host of programs of TensorFlow 2.
EAGER: Final = EagerHost()
_RUN: Final = tf.compat.v1.Session.run


def _run_with_token(
    session: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
) -> Any:
    """Run as TensorFlow's session does, and tell the graph's operations which session it is.

    Raises:
        IpusimError: of a program, in the place of the error that TensorFlow makes of it.
    """
    token = _TOKENS.get(session.graph)
    if machine.this_host() is not None:
        options = _in_order(options)
    if token is None:
        return _RUN(session, fetches, feed_dict, options, run_metadata)
    number = next(_NUMBERS)
    _RUNS[number] = session, copy_context()
    FAILED.pop(session, None)
    try:
        return _RUN(session, fetches, {**(feed_dict or {}), token: number}, options, run_metadata)
    except tf.errors.OpError:
        if session in FAILED:
            raise FAILED.pop(session).with_traceback(None) from None
        raise
    finally:
        del _RUNS[number]


def _in_order(options: Any) -> Any:
    """Return options of a run in the caller's thread: hosts come to the collectives of a run in the same order."""
    result = tf.compat.v1.RunOptions()
    result.MergeFrom(options or _INSIDE)
    result.inter_op_thread_pool = _INSIDE.inter_op_thread_pool
    return result


tf.compat.v1.Session.run = _run_with_token
