"""Functions of Graphcore's ``slicing_ops``: rows of one tensor at places of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import SequenceSlice
from ipusim.ipu.tensorflow.array_functions import cast, tensor, whole_numbers


def sequence_slice(dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool) -> Any:
    """Return ``dst`` with ``num_elems[i]`` rows of ``src`` from ``src_offsets[i]`` on at ``dst_offsets[i]``.

    Other rows stay, or become zero with ``zero_unused``. Raises ProgramError for rows out of range, and tensors
    that do not fit.
    """
    counts, sources = _offsets("num_elems", num_elems), _offsets("src_offsets", src_offsets)
    places = _offsets("dst_offsets", dst_offsets)
    if not counts.size or not counts.shape == sources.shape == places.shape:
        raise ProgramError("num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.")
    return _sliced(*_of_one_type(dst, src), counts, sources, places, zero_unused)


def sequence_slice_unpack(src: Any, num_elems: Any, src_offsets: Any, total_elements: int) -> Any:
    """Return ``num_elems[i]`` rows of ``src`` from ``src_offsets[i]`` on, one slice behind another, in so many rows.

    Raises as :func:`sequence_slice` does.
    """
    counts, sources = _offsets("num_elems", num_elems), _offsets("src_offsets", src_offsets)
    if not counts.size or counts.shape != sources.shape:
        raise ProgramError("num_elems and src_offsets must have matching, nonzero shapes of rank 1.")
    value = tensor(src)
    made = np.zeros((checks.whole("total_elements", total_elements, 1), *value.shape[1:]), value.dtype)
    return _sliced(made, value, counts, sources, _behind(counts), zero_unused=True)


def sequence_slice_pack(dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool) -> Any:
    """Return ``dst`` with the rows of ``src``, slice behind slice, ``num_elems[i]`` of them at ``dst_offsets[i]``.

    Raises as :func:`sequence_slice` does.
    """
    counts, places = _offsets("num_elems", num_elems), _offsets("dst_offsets", dst_offsets)
    if not counts.size or counts.shape != places.shape:
        raise ProgramError("num_elems and dst_offsets must have matching, nonzero shapes of rank 1.")
    return _sliced(*_of_one_type(dst, src), counts, _behind(counts), places, zero_unused)


def _of_one_type(dst: Any, src: Any) -> tuple[Any, Any]:
    """Return both as tensors, a list of Python's whole numbers in the dtype of the other, as TensorFlow has them."""
    rows, value = tensor(dst, "dst"), tensor(src, "src")
    if isinstance(src, list | tuple) and value.dtype.kind == "i":
        value = cast(value, rows.dtype)
    elif isinstance(dst, list | tuple) and rows.dtype.kind == "i":
        rows = cast(rows, value.dtype)
    return rows, value


def _behind(counts: Array) -> Array:
    """Return the offsets of consecutive slices of these lengths."""
    return np.cumsum(counts) - counts


def _offsets(name: str, value: Any) -> Array:
    result: Array = whole_numbers(name, value)
    if result.ndim != 1:
        checks.wrong_type(name, "a list or rank 1 tensor of whole numbers", value)
    return result.astype(np.int64)


def _sliced(dst: Any, src: Any, counts: Array, sources: Array, places: Array, zero_unused: bool) -> Any:
    if dst.ndim < 2 or src.ndim < 2:
        checks.wrong_value("dst and src", "tensors of at least rank 2", (dst.shape, src.shape))
    if src.shape[1:] != dst.shape[1:]:
        raise ProgramError("src and dst inner shapes must match.")
    if src.dtype != dst.dtype:
        checks.wrong_value("src", f"the type of dst, {dst.dtype}", src.dtype)
    for name, offsets, rows in (("src", sources, src.shape[0]), ("dst", places, dst.shape[0])):
        outside = (offsets < 0) | (counts < 0) | (offsets + counts > rows)
        if outside.any():
            at = int(outside.argmax())
            checks.wrong_value(name, f"at least {offsets[at] + counts[at]} rows for slice {at}, from row 0 on", rows)
    (result,) = functions.operate(
        SequenceSlice(checks.truth("zero_unused", zero_unused)), dst, src, counts, sources, places
    )
    return result
