"""Copy row slices between tensors: Graphcore's ``slicing_ops``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import SequenceSlice
from ipusim.ipu.traced.operations import operate

tf = load()


def sequence_slice(dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool) -> Any:
    """Copy slices of ``src`` into ``dst``.

    Args:
        dst: tensor of at least two axes.
        src: tensor to slice, with the inner axes of ``dst``.
        num_elems: number of rows per slice.
        src_offsets: first row of each slice in ``src``.
        dst_offsets: first row of each slice in the result.
        zero_unused: whether remaining rows become zero; otherwise they keep the values of ``dst``.

    Raises:
        ProgramError: if shapes or types do not match.
    """
    counts, sources = _whole_numbers("num_elems", num_elems), _whole_numbers("src_offsets", src_offsets)
    targets = _whole_numbers("dst_offsets", dst_offsets)
    if not _have_one_shape(counts, sources, targets):
        raise ProgramError("num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.")
    return _copy_slices(dst, src, counts, sources, targets, zero_unused)


def sequence_slice_unpack(src: Any, num_elems: Any, src_offsets: Any, total_elements: int) -> Any:
    """Concatenate slices of ``src``.

    Args:
        src: tensor to slice.
        num_elems: number of rows per slice.
        src_offsets: first row of each slice in ``src``.
        total_elements: the result's number of rows.

    Raises:
        ProgramError: if shapes or types do not match.
    """
    counts, sources = _whole_numbers("num_elems", num_elems), _whole_numbers("src_offsets", src_offsets)
    if not _have_one_shape(counts, sources):
        raise ProgramError("num_elems and src_offsets must have matching, nonzero shapes of rank 1.")
    value = tf.convert_to_tensor(src)
    dst = tf.zeros([checks.whole("total_elements", total_elements, 1), *value.shape.as_list()[1:]], value.dtype)
    return _copy_slices(dst, value, counts, sources, _consecutive_offsets(counts), zero_unused=True)


def sequence_slice_pack(dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool) -> Any:
    """Copy consecutive slices of ``src`` to given rows of ``dst``.

    Args:
        dst: tensor of at least two axes.
        src: tensor with the slices one after another.
        num_elems: number of rows per slice.
        dst_offsets: first row of each slice in the result.
        zero_unused: whether remaining rows become zero; otherwise they keep the values of ``dst``.

    Raises:
        ProgramError: if shapes or types do not match.
    """
    counts, targets = _whole_numbers("num_elems", num_elems), _whole_numbers("dst_offsets", dst_offsets)
    if not _have_one_shape(counts, targets):
        raise ProgramError("num_elems and dst_offsets must have matching, nonzero shapes of rank 1.")
    return _copy_slices(dst, src, counts, _consecutive_offsets(counts), targets, zero_unused)


def _whole_numbers(name: str, value: Any) -> Any:
    """Return a vector of whole numbers as int64; raises ProgramTypeError for another value."""
    result = tf.convert_to_tensor(value)
    if result.dtype.is_floating or result.shape.rank != 1:
        checks.wrong_type(name, "a list or rank 1 tensor of whole numbers", value)
    return tf.cast(result, tf.int64)


def _have_one_shape(*tensors: Any) -> bool:
    """Tell whether vectors have the same length, at least 1."""
    shapes = {tuple(tensor.shape.as_list()) for tensor in tensors}
    return len(shapes) == 1 and all(len(shape) == 1 and shape[0] for shape in shapes)


def _consecutive_offsets(counts: Any) -> Any:
    """Return the offsets of consecutive slices from their lengths."""
    return tf.cumsum(counts, exclusive=True)


def _copy_slices(dst: Any, src: Any, counts: Any, sources: Any, targets: Any, zero_unused: bool) -> Any:
    """Add the operation that copies slices; raises ProgramError if tensors do not match."""
    rows = tf.convert_to_tensor(dst)
    value = tf.convert_to_tensor(src, dtype=None if hasattr(src, "dtype") else rows.dtype)
    if min(rows.shape.rank, value.shape.rank) < 2:
        checks.wrong_value("dst and src", "tensors of at least rank 2", (rows.shape.as_list(), value.shape.as_list()))
    if value.shape.as_list()[1:] != rows.shape.as_list()[1:]:
        raise ProgramError("src and dst inner shapes must match.")
    if value.dtype != rows.dtype:
        checks.wrong_value("src", f"the type of dst, {rows.dtype.name}", value.dtype.name)
    operation = _CheckedSlice(checks.truth("zero_unused", zero_unused))
    (result,) = operate(
        operation, [rows, value, counts, sources, targets], [(rows.dtype, rows.shape)], "sequence_slice"
    )
    return result


class _CheckedSlice(SequenceSlice):
    """Slice copy with a check of row numbers."""

    def forward(self, *arrays: Any) -> Any:
        """Return the result; raises ProgramError for rows out of range."""
        dst, src, counts, sources, targets = arrays
        for name, offsets, rows in (("src", sources, src.shape[0]), ("dst", targets, dst.shape[0])):
            outside = (offsets < 0) | (counts < 0) | (offsets + counts > rows)
            if outside.any():
                number = int(np.argmax(outside))
                raise ProgramError(
                    f"{name}: expected slice {number} inside its {rows} rows, got {counts[number]} rows from row "
                    f"{offsets[number]} on"
                )
        return super().forward(*arrays)
