"""Define outlines: arrays with shape, dtype and memory layout but no data, like torch's meta tensors.

Layers accept outlines like arrays: a pass on outlines creates the outlines of the usual arrays and views, without time
and memory, and so shows which arrays a layer keeps, for models of any size. The order of axes in memory decides whether
a change of shape is a view; NumPy determines this order, on small arrays with two elements per axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import as_strided

from ipusim.model.layers.layer import Shape


class Outline(NDArrayOperatorsMixin):
    """An array without elements: operations return outlines, or 0 where NumPy returns a number.

    Unsupported operations raise TypeError or AttributeError. Assignments to elements have no effect.

    Attributes:
        base: outline that owns the memory; None for an outline with separate memory.
        span: smallest and largest possible element; None if unknown.
    """

    def __init__(
        self,
        shape: Shape,
        dtype: npt.DTypeLike,
        axes: Sequence[int] | None = None,
        span: tuple[int, int] | None = None,
    ) -> None:
        """Create separate memory, with axes in memory order ``axes``; default: the last axis is contiguous."""
        element_type = np.dtype(dtype)
        strides, stride = [0] * len(shape), element_type.itemsize
        for axis in reversed(range(len(shape)) if axes is None else axes):
            strides[axis] = stride
            stride *= shape[axis]
        self.base: Outline | None = None
        self.span = span
        self._view = _view_of_shape(tuple(shape), element_type, tuple(strides))  # only used for views, never read

    def _with_view(self, view: npt.NDArray[Any]) -> Outline:
        """Return a view of this array."""
        outline = Outline.__new__(Outline)
        outline.base, outline.span, outline._view = self if self.base is None else self.base, self.span, view
        return outline

    def __repr__(self) -> str:
        """Return shape and dtype as text."""
        return f"<Outline of {self.dtype} {self.shape}>"

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return self._view.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._view.ndim

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbouring elements, per axis."""
        return self._view.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element."""
        return self._view.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._view.size

    @property
    def nbytes(self) -> int:
        """Total bytes of the elements."""
        return self._view.nbytes

    @property
    def T(self) -> Outline:  # noqa: N802 - NumPy's name
        """Array with reversed axes."""
        return self._with_view(self._view.T)

    def __len__(self) -> int:
        """Return the size of the first axis."""
        return len(self._view)

    def __bool__(self) -> bool:
        """Refuse the conversion, since elements are unknown; raises TypeError."""
        raise TypeError("an outline has no elements")

    def __array__(self, *_: object, **__: object) -> npt.NDArray[Any]:
        """Refuse the conversion to an array with elements; raises TypeError."""
        raise TypeError("an outline has no elements")

    def __getitem__(self, key: Any) -> Any:
        """Return a view, or a new array for selection by whole numbers."""
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(index, Outline | np.ndarray | list) for index in keys):
            return self._select([index if isinstance(index, Outline) else np.asarray(index) for index in keys])
        full_key = (
            keys if any(index is Ellipsis for index in keys) else (*keys, Ellipsis)
        )  # the ellipsis keeps a single element a view
        return _number_if_scalar(self._with_view(self._view[full_key]))

    def _select(self, keys: Sequence[Any]) -> Any:
        if any(key.dtype.kind not in "iu" for key in keys):
            raise TypeError("which elements of an outline are true is not known")
        shape = np.broadcast_shapes(*(key.shape for key in keys))
        return _number_if_scalar(Outline((*shape, *self.shape[len(keys) :]), self.dtype))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore the assignment: an outline has no elements."""

    def reshape(self, *shape: Any) -> Outline:
        """Return a view in another shape, or a copy if no view exists."""
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        product = math.prod(size for size in target if size != -1)
        sizes = tuple(self.size // product if size == -1 else size for size in target)
        try:
            return self._with_view(np.reshape(self._view, sizes, copy=False))
        except ValueError:
            return Outline(sizes, self.dtype)

    def swapaxes(self, axis1: int, axis2: int) -> Outline:
        """Return a view with two axes swapped."""
        return self._with_view(self._view.swapaxes(axis1, axis2))

    def transpose(self, *axes: Any) -> Outline:
        """Return a view with axes in another order."""
        return self._with_view(self._view.transpose(*axes))

    def copy(self) -> Outline:
        """Return a separate array."""
        return Outline(self.shape, self.dtype)

    def astype(self, dtype: npt.DTypeLike, copy: bool = True) -> Outline:
        """Return an array of another type, or the same array if allowed."""
        return self if not copy and self.dtype == dtype else Outline(self.shape, dtype, _memory_order(self))

    def take(self, indices: Any, axis: int) -> Any:
        """Return the elements selected along an axis by whole numbers."""
        return _number_if_scalar(Outline((*self.shape[:axis], *indices.shape, *self.shape[axis + 1 :]), self.dtype))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return sums along axes, by default along all axes."""
        return _reduce(np.add, self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return means along axes, by default along all axes."""
        return self.sum(axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return maxima along axes, by default along all axes."""
        if axis is None and not keepdims and self.span:
            return self.span[1]
        return _reduce(np.maximum, self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return minima along axes, by default along all axes."""
        if axis is None and not keepdims and self.span:
            return self.span[0]
        return _reduce(np.minimum, self, axis, keepdims)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Return the result of an element-wise operation, a matrix product, or a reduction."""
        if method not in ("__call__", "reduce") or ufunc.nout != 1:
            return NotImplemented
        result = _try_ufunc(ufunc, method, tuple(map(_small_operand, inputs)), tuple(options.items()))
        if method == "reduce":
            shape = _reduced_shape(inputs[0].shape, options.get("axis", 0), options.get("keepdims", False))
        elif ufunc is np.matmul:
            shape = _matmul_shape(*(operand.shape for operand in inputs))
        else:
            shape = np.broadcast_shapes(*(getattr(operand, "shape", ()) for operand in inputs))
        if out is not None:
            (target,) = out
            if not isinstance(target, Outline):
                return NotImplemented
            return target
        return Outline(shape, *result) if isinstance(result, tuple) else result

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Return the outline of the result of a supported NumPy function."""
        implementation = _FUNCTIONS.get(function)
        return NotImplemented if implementation is None else implementation(*args, **kwargs)


def _reduce(ufunc: Any, array: Outline, axis: Any, keepdims: bool) -> Any:
    return ufunc.reduce(array, axis=axis, keepdims=keepdims)


def _number_if_scalar(array: Outline) -> Any:
    """Return zero for an array without axes, like NumPy returns a number."""
    return array if array.ndim else array.dtype.type(0)


def _memory_order(array: Any) -> list[int]:
    """Return the axes in memory order, largest stride first."""
    return list(_axes_by_stride(array.strides))


@lru_cache(maxsize=4096)
def _axes_by_stride(strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


@lru_cache(maxsize=4096)
def _view_of_shape(shape: Shape, dtype: np.dtype[Any], strides: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return a one-element array, viewed with the given shape and strides."""
    return as_strided(np.empty(1, dtype), shape, strides)


class _SmallArray(NamedTuple):
    """Small counterpart of an operand, with at most two elements per axis."""

    shape: Shape
    dtype: np.dtype[Any]
    axes: tuple[int, ...]

    def array(self) -> npt.NDArray[Any]:
        """Return zeros of this shape, dtype and order of axes."""
        array = np.zeros([self.shape[axis] for axis in self.axes], self.dtype)
        return array.transpose(np.argsort(self.axes)) if self.axes else array


def _small_operand(operand: Any) -> Any:
    """Return the small counterpart of an operand; for a number, return its type and the number."""
    if not isinstance(operand, Outline | np.ndarray):
        return type(operand), operand
    return _cached_small_array(operand.shape, operand.strides, operand.dtype)


@lru_cache(maxsize=4096)
def _cached_small_array(shape: Shape, strides: tuple[int, ...], dtype: np.dtype[Any]) -> _SmallArray:
    return _SmallArray(tuple(min(size, 2) for size in shape), dtype, _axes_by_stride(strides))


def _small_zeros(array: Any) -> npt.NDArray[Any]:
    """Return an array with at most two elements per axis, in the same order of axes."""
    zeros: npt.NDArray[Any] = _small_operand(array).array()
    return zeros


@lru_cache(maxsize=4096)  # equal layers repeat the same operations
def _try_ufunc(ufunc: np.ufunc, method: str, forms: tuple[Any, ...], options: tuple[tuple[str, Any], ...]) -> Any:
    """Return type and axis order of NumPy's result, or a resulting number."""
    operands = [form.array() if isinstance(form, _SmallArray) else form[1] for form in forms]
    result = getattr(ufunc, method)(*operands, **dict(options))
    return (result.dtype, tuple(_memory_order(result))) if isinstance(result, np.ndarray) and result.ndim else result


def _matmul_shape(left: Shape, right: Shape) -> Shape:
    """Return the shape of a matrix product."""
    if len(left) < 2 or len(right) < 2:
        raise TypeError("products of vectors are not outlined")
    return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])


def _reduced_shape(shape: Shape, axis: Any, keepdims: bool) -> Shape:
    """Return the shape after a reduction of ``shape`` along ``axis``, or along every axis for None."""
    count = len(shape)
    axes = range(count) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    reduced_axes = {reduced_axis % count for reduced_axis in axes}
    return tuple(
        1 if position in reduced_axes else size
        for position, size in enumerate(shape)
        if keepdims or position not in reduced_axes
    )


def _like(like: Any, dtype: npt.DTypeLike | None = None, order: str = "K", shape: Shape | None = None) -> Outline:
    is_same_rank = shape is None or len(shape) == like.ndim
    axes = _memory_order(like) if order == "K" and is_same_rank else None
    return Outline(like.shape if shape is None else shape, like.dtype if dtype is None else dtype, axes)


def _stack(arrays: Sequence[Any], axis: int = 0) -> Outline:
    first = arrays[0]
    position = axis % (first.ndim + 1)
    return Outline(
        (*first.shape[:position], len(arrays), *first.shape[position:]), np.result_type(*(a.dtype for a in arrays))
    )


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Outline:
    first = arrays[0]
    position, size = axis % first.ndim, sum(array.shape[axis] for array in arrays)
    result = np.concatenate([_small_zeros(array) for array in arrays], axis)
    return Outline((*first.shape[:position], size, *first.shape[position + 1 :]), result.dtype, _memory_order(result))


def _split_array(array: Any, sections: int, axis: int = 0) -> list[Any]:
    position, size = axis % array.ndim, array.shape[axis] // sections
    return [array[(slice(None),) * position + (slice(part * size, (part + 1) * size),)] for part in range(sections)]


def _pad(array: Any, width: Any, **_: object) -> Outline:
    shape = tuple(low + size + high for size, (low, high) in zip(array.shape, width, strict=True))
    return Outline(shape, array.dtype, _memory_order(np.pad(_small_zeros(array), 1)))


def _clip(array: Any, *_: object, out: Any = None) -> Any:
    return _like(array) if out is None else out


def _copyto(array: Any, *_: object, **__: object) -> None:
    """Copy no elements, since outlines have none."""


def _triangle(rows: int, M: int | None = None, *, dtype: npt.DTypeLike, **_: object) -> Outline:
    return Outline((rows, rows if M is None else M), dtype)


def _result_type(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*(operand.dtype if isinstance(operand, Outline) else operand for operand in operands))


#: Implementations of NumPy functions on outlines.
_FUNCTIONS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    np.zeros_like: _like,
    np.empty_like: _like,
    np.stack: _stack,
    np.concatenate: _concatenate,
    np.split: _split_array,
    np.pad: _pad,
    np.clip: _clip,
    np.copyto: _copyto,
    np.tri: _triangle,
    np.result_type: _result_type,
}
