"""Run a function in worker processes on this machine, which end with the parent process.

This module imports little, so that workers start before the parent has imported the code for the work.
"""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Final, Literal, TypeVar

import joblib
from joblib.externals.loky.backend import resource_tracker as loky_tracker

#: Seconds between a worker's checks of its parent.
_WATCH_S: Final = 0.5
T = TypeVar("T")


def side_by_side(
    function: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    workers: int,
    batch_size: int | Literal["auto"] = "auto",
) -> Generator[T, None, None]:
    """Yield a function's results for every call's arguments, in order of completion.

    Args:
        function: function of a module, which workers import.
        calls: arguments per call; calls begin in this order.
        workers: number of processes; a single worker is a separate process, too.
        batch_size: calls per task of a worker; ``auto`` groups short calls.

    Raises BrokenProcessPool for a worker ended from outside.
    """
    if workers == 1:  # joblib would run the call in this process, which the call may end
        context = get_context("spawn")
        pool = ProcessPoolExecutor(1, context, initializer=_end_with_parent, initargs=(os.getpid(),))
        futures = [pool.submit(function, *arguments) for arguments in calls]
        try:
            yield from (future.result() for future in futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return
    options = {"backend": "loky", "initializer": _end_with_parent, "initargs": (os.getpid(),)}
    parallel = joblib.Parallel(workers, return_as="generator_unordered", batch_size=batch_size, **options)
    with _interrupts_blocked():
        results = parallel(joblib.delayed(function)(*arguments) for arguments in calls)
    try:
        # "yield from" would close the generator before "finally", with joblib's warning about unfinished calls.
        for result in results:  # noqa: UP028
            yield result
    finally:
        with warnings.catch_warnings(), _loky_errors_unprinted():
            warnings.simplefilter("ignore")  # about calls left unfinished by an interrupt
            results.close()


@contextmanager
def _loky_errors_unprinted() -> Iterator[None]:
    """Print no KeyError of the thread that manages loky's workers, for which the end of a pool waits.

    The thread ends with this error if it begins a call that was submitted just before the end. All workers are killed
    at that time, and the call is no longer in the thread's table.
    """
    before = threading.excepthook

    def hook(error: threading.ExceptHookArgs) -> None:
        if error.exc_type is not KeyError or error.thread is None or error.thread.name != "ExecutorManagerThread":
            before(error)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread, and in workers that it starts: only the parent answers Ctrl-C.

    Otherwise a worker interrupted in its imports prints a traceback. The start of a tracker of resources ends with
    unblocked signals, so the trackers start first.
    """
    for tracker in (multiprocessing.resource_tracker, loky_tracker):
        tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """End this worker process soon after its parent: a killed parent leaves its workers waiting forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
