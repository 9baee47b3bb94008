"""Make file contents in forked children on spare cores."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Generic, NoReturn, TypeVar

T = TypeVar("T")
#: Function that makes file contents by name.
Maker = Callable[[], dict[str, bytes]]


def side_by_side(makers: Sequence[Maker], busy: int = 0) -> dict[str, bytes]:
    """Return the files of ``makers`` in order; forked children run the first makers on spare cores.

    ``busy`` cores are in use by other processes of this run.

    The slowest makers should be first. A child only sends its files to the parent, and ends with it. If a child fails
    for any reason, its maker runs here, where errors are raised as without children.

    Forked processes replace threads, since drawing holds Python's lock, and matplotlib's settings are global. A fork
    copies no Timeline; a worker process would repeat all imports and receive a copy.
    """
    with ExitStack() as stack:
        if gc.isenabled():  # few objects die here: garbage collection took a quarter of a chart's time
            give_back_memory()
            gc.disable()
            stack.callback(gc.enable)
        children = [_fork_child(make, stack) for make in makers[: max(_spare_cores() - busy, 0)]]
        last_results = [make() for make in makers[len(children) :]]
        child_results = [child.results() if child else None for child in children]
        children_files = [
            make() if result is None else result for result, make in zip(child_results, makers, strict=False)
        ]
    return {name: content for result in (*children_files, *last_results) for name, content in result.items()}


class Ahead(Generic[T]):
    """Forked child that prepares while this process computes the child's input.

    The child begins on entering the block, and ends on leaving.

        with Ahead(lambda: function_that_takes_long_to_import) as ahead:
            sent = ahead.send(value_that_takes_long_to_compute)
            made = ahead.results() if sent else None
    """

    def __init__(self, prepare: Callable[[], Callable[[T], dict[str, bytes]]]) -> None:
        """Store ``prepare``, the child's first work, which returns the function that makes files."""
        self._prepare = prepare
        self._child: _Child | None = None
        self._pipe: BinaryIO | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Ahead[T]:
        """Begin the child if a core is spare."""
        if not _spare_cores():
            return self
        read_end, write_end = os.pipe()
        self._pipe = self._stack.enter_context(os.fdopen(write_end, "wb"))

        def make() -> dict[str, bytes]:
            gc.disable()
            os.close(write_end)  # the pipe then ends with the parent, and ends the child quietly
            finish = self._prepare()
            with os.fdopen(read_end, "rb") as file:
                return finish(pickle.load(file))

        self._child = _fork_child(make, self._stack)
        os.close(read_end)
        return self

    def __exit__(self, *_: object) -> None:
        """End the child, finished or not."""
        self._stack.close()

    def send(self, value: T) -> bool:
        """Send the value to the child, once; return whether files may follow."""
        if self._child is None or self._pipe is None:
            return False
        try:
            with self._pipe:
                pickle.dump(value, self._pipe, protocol=pickle.HIGHEST_PROTOCOL)
        except BrokenPipeError:
            return False
        return True

    def results(self) -> dict[str, bytes] | None:
        """Return the child's files for the sent value; None on any failure."""
        return self._child.results() if self._child else None


def give_back_memory() -> None:
    """Collect garbage, and return malloc's free memory: a third of the memory of a run with 64 IPUs."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc only
        trim(0)


def _spare_cores() -> int:
    """Return the number of further cores; 0 without a safe fork, since threads may hold locks."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 0
    return len(os.sched_getaffinity(0)) - 1


@dataclass
class _Child:
    """Child process, and the pipe for its result."""

    process: int
    pipe: int

    def results(self) -> dict[str, bytes] | None:
        """Return the result; None on failure."""
        with os.fdopen(self.pipe, "rb", closefd=False) as file:
            content = file.read()
        try:
            result: dict[str, bytes] = pickle.loads(content)
        except (EOFError, pickle.UnpicklingError):
            return None
        return result

    def end(self) -> None:
        """Kill the child, finished or not, and close the pipe."""
        os.close(self.pipe)
        os.kill(self.process, signal.SIGKILL)  # the child has no cleanup
        os.waitpid(self.process, 0)


def _fork_child(make: Maker, stack: ExitStack) -> _Child | None:
    """Fork a child that calls ``make`` and is killed with the stack; None without a fork."""
    read_end, write_end = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of BLAS threads, but BLAS ends its threads before a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        return None
    if not process:
        _make_and_exit(make, read_end, write_end)
    os.close(write_end)
    child = _Child(process, read_end)
    stack.callback(child.end)
    return child


def _make_and_exit(make: Maker, read_end: int, write_end: int) -> NoReturn:
    """Send the result to the parent and exit at once, without the parent's cleanup."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(read_end)
        with os.fdopen(write_end, "wb") as file:
            pickle.dump(make(), file, protocol=pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)
