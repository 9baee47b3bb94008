"""Limit BLAS to a single thread, which gives equal bits on any number of cores."""

from __future__ import annotations

from contextlib import AbstractContextManager

from threadpoolctl import get_cached_controller


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context manager that limits every loaded BLAS to a single thread.

    The list of loaded libraries is renewed only after new imports: the search takes milliseconds, as long as a
    small run.
    """
    limit: AbstractContextManager[object] = get_cached_controller().limit(limits=1, user_api="blas")
    return limit
