"""Worker processes of this machine, which leave with the process that began them.

Little is imported here, so that workers begin to start before their parent has imported what they work with.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from threading import Thread
from typing import Any, Final, Literal, TypeVar

import joblib

#: Seconds after which a worker looks for its parent again.
_WATCH_S: Final = 0.5
T = TypeVar("T")


def side_by_side(
    function: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    workers: int,
    batch_size: int | Literal["auto"] = "auto",
) -> Generator[T, None, None]:
    """Yield a function's results for the arguments of each call, in the order in which the calls end.

    Args:
        function: one of a module, which workers import.
        calls: the arguments of each; the first ones begin first.
        workers: the number of processes; one, too, is another process than this.
        batch_size: calls that a worker takes at once; ``auto`` takes more of short ones.

    Raises BrokenProcessPool for a worker that is ended from outside.
    """
    if workers == 1:  # joblib would call the function in this process, which a call may end
        context = get_context("spawn")
        pool = ProcessPoolExecutor(1, context, initializer=_leave_with, initargs=(os.getpid(),))
        futures = [pool.submit(function, *arguments) for arguments in calls]
        try:
            yield from (future.result() for future in futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return
    options = {"backend": "loky", "initializer": _leave_with, "initargs": (os.getpid(),)}
    parallel = joblib.Parallel(workers, return_as="generator_unordered", batch_size=batch_size, **options)
    ended = parallel(joblib.delayed(function)(*arguments) for arguments in calls)
    try:
        # "yield from" would close it before "finally" does, with joblib's warning of calls that are left undone.
        for result in ended:  # noqa: UP028
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of calls that an interrupt leaves undone
            ended.close()


def _leave_with(parent: int) -> None:
    """End this worker process soon after its parent: one that was killed ends no workers, which would wait."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(0)

    Thread(target=watch, daemon=True).start()
