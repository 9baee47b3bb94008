"""Contents of files, made side by side where there are cores."""

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
from typing import NoReturn

#: Makes contents of files, by name.
Maker = Callable[[], dict[str, bytes]]


def side_by_side(makers: Sequence[Maker]) -> dict[str, bytes]:
    """Return what all makers make, in their order, of which a forked child makes each of the first that cores are for.

    What takes longest stands first. A child writes nothing but what it made to its parent, and ends with it. What it
    did not bring, whatever the reason, is made here, where an error is raised as if there were no children.

    Processes, as drawing holds Python's lock, and matplotlib's settings are of the whole process. A fork copies no
    Timeline, where a worker would have to import everything anew and get it as a copy.
    """
    _give_back_memory()
    with ExitStack() as stack:
        if gc.isenabled():  # what is made stays to its end: looking for garbage in it took a quarter of a chart's time
            gc.disable()
            stack.callback(gc.enable)
        children = [_begun(make, stack) for make in makers[: _spare_cores()]]
        here = [make() for make in makers[len(children) :]]
        brought = [child.brought() if child else None for child in children]
        aside = [make() if made is None else made for made, make in zip(brought, makers, strict=False)]
    return {name: content for made in (*aside, *here) for name, content in made.items()}


def _give_back_memory() -> None:
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
        """Return what it made; None where it failed."""
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
    """Return a child that makes something, and is ended with the stack; None where there can be none."""
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
    """Write what is made to the parent and end at once, so that nothing of the parent's is cleared up."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(reads)
        with os.fdopen(writes, "wb") as file:
            pickle.dump(make(), file, protocol=pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)
