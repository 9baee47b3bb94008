"""Contents of files, made in forked children where there are spare cores."""

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
#: Makes contents of files, by name.
Maker = Callable[[], dict[str, bytes]]


def side_by_side(makers: Sequence[Maker], busy: int = 0) -> dict[str, bytes]:
    """Return the files of all makers, in their order; forked children make the first of them on spare cores.

    Of these ``busy`` are not spare, as other processes of this run compute on them.

    What takes longest stands first. A child writes nothing but what it made to its parent, and ends with it. What it
    did not bring, whatever the reason, is made here, where an error is raised as if there were no children.

    Processes, as drawing holds Python's lock, and matplotlib's settings are of the whole process. A fork copies no
    Timeline, where a worker would have to import everything anew and get it as a copy.
    """
    with ExitStack() as stack:
        if gc.isenabled():  # what is made stays to its end: looking for garbage in it took a quarter of a chart's time
            give_back_memory()
            gc.disable()
            stack.callback(gc.enable)
        children = [_begun(make, stack) for make in makers[: max(_spare_cores() - busy, 0)]]
        here = [make() for make in makers[len(children) :]]
        brought = [child.brought() if child else None for child in children]
        aside = [make() if made is None else made for made, make in zip(brought, makers, strict=False)]
    return {name: content for made in (*aside, *here) for name, content in made.items()}


class Ahead(Generic[T]):
    """A forked child that prepares while this process computes the value that the child then makes files of.

    It is begun when the block is entered, and ended with it.

        with Ahead(lambda: function_that_takes_long_to_import) as ahead:
            sent = ahead.send(value_that_takes_long_to_compute)
            made = ahead.brought() if sent else None
    """

    def __init__(self, prepare: Callable[[], Callable[[T], dict[str, bytes]]]) -> None:
        """Take what the child does first, which returns what makes the contents."""
        self._prepare = prepare
        self._child: _Child | None = None
        self._pipe: BinaryIO | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Ahead[T]:
        """Begin the child where a core is for it."""
        if not _spare_cores():
            return self
        reads, writes = os.pipe()
        self._pipe = self._stack.enter_context(os.fdopen(writes, "wb"))

        def make() -> dict[str, bytes]:
            gc.disable()
            os.close(writes)  # so that it ends where this process does, without a word
            prepared = self._prepare()
            with os.fdopen(reads, "rb") as file:
                return prepared(pickle.load(file))

        self._child = _begun(make, self._stack)
        os.close(reads)
        return self

    def __exit__(self, *_: object) -> None:
        """End the child, whether it is done or not."""
        self._stack.close()

    def send(self, value: T) -> bool:
        """Send the child its value, once; return whether the child may return files."""
        if self._child is None or self._pipe is None:
            return False
        try:
            with self._pipe:
                pickle.dump(value, self._pipe, protocol=pickle.HIGHEST_PROTOCOL)
        except BrokenPipeError:
            return False
        return True

    def brought(self) -> dict[str, bytes] | None:
        """Return the child's result for the value that it was sent; None where it failed, whatever the reason."""
        return self._child.brought() if self._child else None


def give_back_memory() -> None:
    """Free garbage, and the free memory that malloc keeps: a third of what a run of 64 IPUs takes."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # of glibc alone
        trim(0)


def _spare_cores() -> int:
    """Return the cores beside this process's own; none where it cannot fork: another thread may hold a lock."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 0
    return len(os.sched_getaffinity(0)) - 1


@dataclass
class _Child:
    """A child, and the end of the pipe that it writes to."""

    process: int
    pipe: int

    def brought(self) -> dict[str, bytes] | None:
        """Return the result; None where it failed."""
        with os.fdopen(self.pipe, "rb", closefd=False) as file:
            content = file.read()
        try:
            made: dict[str, bytes] = pickle.loads(content)
        except (EOFError, pickle.UnpicklingError):
            return None
        return made

    def end(self) -> None:
        """End it, whether it is done or not, and let go of the pipe."""
        os.close(self.pipe)
        os.kill(self.process, signal.SIGKILL)  # it has nothing to clear up
        os.waitpid(self.process, 0)


def _begun(make: Maker, stack: ExitStack) -> _Child | None:
    """Return a forked child that calls ``make`` and is killed with the stack; None where no fork is possible."""
    reads, writes = os.pipe()
    try:
        with warnings.catch_warnings():
            # Of threads of BLAS, which ends them before a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
    except OSError:
        os.close(reads)
        os.close(writes)
        return None
    if not process:
        _make_and_exit(make, reads, writes)
    os.close(writes)
    child = _Child(process, reads)
    stack.callback(child.end)
    return child


def _make_and_exit(make: Maker, reads: int, writes: int) -> NoReturn:
    """Write the result to the parent and end at once, so that nothing of the parent's is cleared up."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(reads)
        with os.fdopen(writes, "wb") as file:
            pickle.dump(make(), file, protocol=pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)
