"""Add weight gradients to accumulators by a single BLAS call, without an intermediate array."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ipusim.model.layers.layer import Array


@cache
def _gemm(dtype: np.dtype[Any]) -> Callable[..., Array] | None:
    """Return SciPy's matrix product for a dtype; None for a dtype unknown to BLAS."""
    blas = _blas()
    routines: dict[str, Callable[..., Array]] = {"float32": blas.sgemm, "float64": blas.dgemm}
    return routines.get(dtype.name)


def _blas() -> ModuleType:
    """Return SciPy's BLAS wrapper, if possible without the surrounding package.

    The wrapper takes 15 ms to import. ``scipy.linalg.blas`` offers the same functions, but imports SciPy's whole linear
    algebra and much of NumPy, in 0.15 s.
    """
    import scipy  # noqa: PLC0415 - only a run with arithmetic pays for it

    spec = PathFinder.find_spec("scipy.linalg._fblas", [str(Path(scipy.__path__[0], "linalg"))])
    if spec is None or spec.loader is None:
        return import_module("scipy.linalg.blas")
    wrapper = module_from_spec(spec)
    spec.loader.exec_module(wrapper)
    return wrapper


def load_blas() -> None:
    """Load SciPy's BLAS with its thread pool: a thread limit only holds for libraries loaded earlier."""
    _gemm(np.dtype(np.float32))


def add_product(total: Array, left: Array, right: Array) -> None:
    """Add ``left.T @ right`` to ``total`` in place.

    ``left`` is (rows, m), ``right`` (rows, n) and ``total`` (m, n), C-contiguous. BLAS adds to ``total`` while the
    product is in registers. Measured on 784 x 256 weights and 32 rows: 145 us, compared with 221 us for a product and a
    sum.
    """
    gemm = _gemm(total.dtype) if left.dtype == right.dtype == total.dtype else None
    if gemm is None or not total.flags.c_contiguous:
        np.add(total, left.T @ right, out=total, casting="same_kind")
        return
    # BLAS stores by columns, like the transposes of NumPy's arrays: total.T = right.T @ left + total.T.
    gemm(1.0, right.T, left.T, 1.0, total.T, trans_b=1, overwrite_c=1)
