"""One thread for arithmetic: the same bits on any number of cores, and no spinning over small matrices."""

from __future__ import annotations

from contextlib import AbstractContextManager

from threadpoolctl import get_cached_controller


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a block in which every BLAS that is loaded has one thread.

    Which are loaded is looked up anew when modules have been imported since: to look takes milliseconds, as long as a
    small run.
    """
    limit: AbstractContextManager[object] = get_cached_controller().limit(limits=1, user_api="blas")
    return limit
