"""The device, which one program has at a time: threads that build or run programs take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ipusim.ipu.function_body import calling
from ipusim.machine.one_thread import one_blas_thread

#: Of the process, as traces and the number of BLAS threads are; a program that runs may build another.
_DEVICE: Final = threading.RLock()


@contextmanager
def device() -> Iterator[None]:
    """Have the device, and one BLAS thread, in the block; another thread waits until it ends.

    What runs in it is no part of a function whose loop is looked for. Several BLAS threads spin longer over matrices
    of a few hundred rows than they compute.
    """
    with _DEVICE, one_blas_thread(), calling(device=False):
        yield
