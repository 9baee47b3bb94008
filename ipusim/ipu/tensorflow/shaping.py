"""TensorFlow's functions that give a tensor another form, take parts of it, or join several; and shapes.

Arguments are TensorFlow's; ``name`` is without effect everywhere.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Final

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_functions import also_by_older_names, also_on_host
from ipusim.ipu.tensorflow.array_functions import like, tensor, whole_numbers

_as_tensor = tensor


@also_on_host
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """Return the tensor in another shape."""
    return anp.reshape(_as_tensor(tensor), tuple(int(axis) for axis in shape))


@also_on_host
def transpose(a: Any, perm: Any = None, name: str | None = None) -> Any:
    """Return the tensor with its axes in another order, by default the reverse."""
    return anp.transpose(tensor(a), perm)


@also_by_older_names(dim="axis")
@also_on_host
def expand_dims(input: Any, axis: int, name: str | None = None) -> Any:
    """Return the tensor with one axis more."""
    return anp.expand_dims(tensor(input), axis)


@also_by_older_names(squeeze_dims="axis")
@also_on_host
def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return the tensor without axes of one element."""
    return anp.squeeze(tensor(input), tuple(axis) if isinstance(axis, list) else axis)


@also_on_host
def concat(values: Sequence[Any], axis: int, name: str | None = None) -> Any:
    """Return tensors joined along an axis."""
    return anp.concatenate([tensor(value) for value in values], axis=axis)


@also_on_host
def stack(values: Sequence[Any], axis: int = 0, name: str | None = None) -> Any:
    """Return tensors joined along a new axis."""
    return anp.stack([tensor(value) for value in values], axis=axis)


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str | None = None) -> list[Any]:
    """Return the parts of a tensor along an axis.

    Raises ProgramError for an axis that it does not have, for another number of parts than ``num``, and without that
    for an axis that is as long as what a session is fed.
    """
    known = getattr(value, "shape", ())
    if num is None and None in known and -len(known) <= axis < len(known) and known[axis] is None:
        raise ProgramError(f"Cannot infer num from shape {known}")
    result: list[Any] = _unstack(value, num, axis)
    return result


@also_on_host
def _unstack(value: Any, num: int | None, axis: int) -> list[Any]:
    x = tensor(value)
    if not -x.ndim <= axis < x.ndim:
        raise ProgramError(f"axis = {axis} not in [{-x.ndim}, {x.ndim})")
    parts = list(anp.moveaxis(x, axis, 0))
    if num is not None and len(parts) != num:
        raise ProgramError(f"Input shape axis {axis} must equal {num}, got shape {list(x.shape)}")
    return parts


@also_on_host
def split(value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None, name: str | None = None) -> Any:
    """Return parts of equal size, or of the sizes given, of which -1 is what the others leave.

    Raises ProgramError for sizes, or a number of parts, that do not make up the axis.
    """
    x, sizes = tensor(value), whole_numbers("num_or_size_splits", num_or_size_splits)
    length = x.shape[axis]
    if not sizes.ndim:
        parts = int(sizes)
        if parts < 1 or length % parts:
            checks.wrong_value("num_or_size_splits", f"a number that divides {length}, the size of axis {axis}", parts)
        sizes = np.full(parts, length // parts)
    rest = length - int(sizes[sizes != -1].sum())
    unsaid = int((sizes == -1).sum())
    if sizes.ndim != 1 or (sizes < -1).any() or unsaid > 1 or rest < 0 or (rest and not unsaid):
        checks.wrong_value(
            "num_or_size_splits", f"sizes that make up {length}, of axis {axis}; one may be -1", num_or_size_splits
        )
    ends = np.cumsum(np.where(sizes == -1, rest, sizes)).tolist()
    before = (builtins.slice(None),) * (axis % x.ndim)
    return [x[(*before, builtins.slice(begin, end))] for begin, end in zip([0, *ends], ends, strict=False)]


@also_on_host
def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Return the tensor several times along each axis; raises ProgramError for other numbers than one for each."""
    x, times = tensor(input), whole_numbers("multiples", multiples)
    if times.shape != (x.ndim,):
        raise ProgramError(f"Expected multiples argument to be a vector of length {x.ndim} but got length {times.size}")
    if (times < 0).any():
        axis = int(np.argmax(times < 0))
        raise ProgramError(f"Expected multiples[{axis}] >= 0, but got {times[axis]}")
    return anp.tile(x, tuple(times.tolist()))


@also_on_host
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """Return the tensor spread to a shape."""
    x, axes = tensor(input), tuple(shape)
    return anp.broadcast_to(anp.reshape(x, (1,) * (len(axes) - x.ndim) + x.shape), axes)


@primitive  # type: ignore[untyped-decorator]
def _take(params: Any, indices: Any, axis: int) -> Any:
    return np.take(params, indices, axis)


@primitive  # type: ignore[untyped-decorator]
def _added_at(grad: Any, shape: Any, indices: Any, axis: int) -> Any:
    """Return zeros of a shape, to which slices along an axis are added at their places."""
    result = np.zeros(shape, grad.dtype)
    places = range(axis, axis + np.ndim(indices))
    np.add.at(np.moveaxis(result, axis, 0), indices, np.moveaxis(grad, places, range(len(places))))
    return result


defvjp(_take, lambda _, params, indices, axis: lambda grad: _added_at(grad, np.shape(params), indices, axis))
defvjp(_added_at, lambda _, grad, shape, indices, axis: lambda summed: _take(summed, indices, axis))


@also_on_host
def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Any:
    """Return slices along an axis, by default the first, by their places; ``validate_indices`` is without effect.

    Raises ProgramError for places that the axis does not have, and for batch dimensions, which are not simulated.
    """
    x, places, along = tensor(params), tensor(indices), 0 if axis is None else axis
    if batch_dims != 0:
        checks.wrong_value("batch_dims", "0", batch_dims)
    known = np.asarray(getval(places))
    if not -x.ndim <= along < x.ndim:
        checks.wrong_value("axis", f"an axis of a tensor of shape {x.shape}", axis)
    if known.dtype.kind in "iu" and known.size and not 0 <= known.min() <= known.max() < x.shape[along]:
        checks.wrong_value("indices", f"places from 0 to {x.shape[along] - 1}", indices)
    return _take(x, places, along % x.ndim)


@also_on_host
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Return elements of ``x`` where the condition holds, else of ``y``; raises ProgramError without both."""
    if x is None or y is None:
        checks.wrong_value("x and y", "both, as shapes must be known", (x, y))
    left = like(x, tensor(y))
    return anp.where(tensor(condition), left, like(y, left))


@primitive  # type: ignore[untyped-decorator]
def _one_hot(indices: Any, places: Any, on: Any, off: Any) -> Any:
    return np.where(indices[..., None] == places, on, off)


@also_on_host
def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = 1.0,
    off_value: Any = 0.0,
    axis: int | None = None,
    dtype: Any = np.float32,
    name: str | None = None,
) -> Any:
    """Return a row for each whole number with ``on_value`` at its index; along the last axis only."""
    if axis not in (None, -1):
        checks.wrong_value("axis", "None or -1, the last", axis)
    return _one_hot(tensor(indices), np.arange(depth), np.asarray(on_value, dtype), np.asarray(off_value, dtype))


_MODES: Final = ("CONSTANT", "REFLECT", "SYMMETRIC")


@also_on_host
def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
    """Return the tensor padded by ``paddings`` (axes, 2) elements before and after it along each axis.

    They are ``constant_values``, or the tensor mirrored at its edge, with the edge itself in the mode SYMMETRIC.
    Raises ProgramError for margins that are negative, of other axes, or larger than what is mirrored.
    """
    x, margins = _as_tensor(tensor), whole_numbers("paddings", paddings)
    if margins.shape != (x.ndim, 2) or (margins < 0).any():
        checks.wrong_value("paddings", f"two numbers from 0 on for each of the {x.ndim} axes", paddings)
    chosen = checks.text("mode", mode).upper()
    if chosen not in _MODES:
        checks.wrong_value("mode", ", ".join(_MODES), mode)
    if chosen == "CONSTANT":
        return anp.pad(x, margins.tolist(), "constant", constant_values=like(constant_values, x))
    for axis, (before, behind) in enumerate(margins.tolist()):
        most = x.shape[axis] - (chosen == "REFLECT")
        if max(before, behind) > most:
            checks.wrong_value("paddings", f"at most {most} along axis {axis} in the mode {chosen}", paddings)
        if before or behind:
            x = gather(x, np.pad(np.arange(x.shape[axis]), (before, behind), chosen.lower()), axis=axis)  # type: ignore[call-overload]
    return x


@also_on_host
def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """Return ``size`` elements from ``begin`` on along each axis, with -1 all that are left.

    Raises ProgramError for elements out of range.
    """
    x, first, count = tensor(input_), whole_numbers("begin", begin), whole_numbers("size", size)
    if first.shape != (x.ndim,) or count.shape != (x.ndim,):
        checks.wrong_value("begin and size", f"a number for each of the {x.ndim} axes", (begin, size))
    end = np.where(count == -1, x.shape, first + count)
    if ((first < 0) | (count < -1) | (end > x.shape) | (first > end)).any():
        checks.wrong_value("begin and size", f"elements of a tensor of shape {x.shape}", (begin, size))
    return x[tuple(builtins.slice(int(a), int(b)) for a, b in zip(first, end, strict=True))]


@also_on_host
def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: None = None,
    name: str | None = None,
) -> Any:
    """Return what ``input_[begin:end:strides, ...]`` is; bit i of a mask is about entry i of these.

    Without a begin or an end, as ``...``, as a new axis, or as one element whose axis goes. Raises ProgramError for
    entries of different numbers, a stride of 0, and a ``var`` to assign to, which is not simulated.
    """
    if var is not None:
        checks.wrong_value("var", "None: assign a whole variable instead", var)
    first, last = whole_numbers("begin", begin), whole_numbers("end", end)
    steps = np.ones_like(first) if strides is None else whole_numbers("strides", strides)
    if first.ndim != 1 or not first.shape == last.shape == steps.shape or not steps.all():
        checks.wrong_value("begin, end and strides", "as many numbers each, strides not 0", (begin, end, strides))
    key: list[Any] = []
    for entry, (start, stop, step) in enumerate(zip(first.tolist(), last.tolist(), steps.tolist(), strict=True)):
        bit = 1 << entry
        if ellipsis_mask & bit:
            key.append(Ellipsis)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(start)
        else:
            key.append(builtins.slice(None if begin_mask & bit else start, None if end_mask & bit else stop, step))
    return tensor(input_)[tuple(key)]


@also_on_host
def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """Return the tensor with its elements in reverse order along the axes of a list."""
    x, axes = _as_tensor(tensor), whole_numbers("axis", axis)
    key: list[Any] = [builtins.slice(None)] * x.ndim
    for index in axes.ravel().tolist():
        if not -x.ndim <= index < x.ndim:
            checks.wrong_value("axis", f"axes of a tensor of shape {x.shape}", axis)
        key[index] = builtins.slice(None, None, -1)
    return x[tuple(key)]
