"""TensorFlow's functions that give a tensor another form, take parts of it, or join several.

Arguments are TensorFlow's; ``name`` is without effect everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive

from ipusim.ipu import checks
from ipusim.ipu.host import also_on_host
from ipusim.ipu.tensorflow.array_functions import tensor

_as_tensor = tensor


@also_on_host
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """Return the tensor in another shape."""
    return anp.reshape(_as_tensor(tensor), tuple(int(axis) for axis in shape))


@also_on_host
def transpose(a: Any, perm: Any = None, name: str | None = None) -> Any:
    """Return the tensor with its axes in another order, by default the reverse."""
    return anp.transpose(tensor(a), perm)


@also_on_host
def expand_dims(input: Any, axis: int, name: str | None = None) -> Any:
    """Return the tensor with one axis more."""
    return anp.expand_dims(tensor(input), axis)


@also_on_host
def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return the tensor without axes of one element."""
    return anp.squeeze(tensor(input), tuple(axis) if isinstance(axis, list) else axis)


@also_on_host
def concat(values: Sequence[Any], axis: int, name: str | None = None) -> Any:
    """Return tensors joined along an axis."""
    return anp.concatenate([tensor(each) for each in values], axis=axis)


@also_on_host
def stack(values: Sequence[Any], axis: int = 0, name: str | None = None) -> Any:
    """Return tensors joined along a new axis."""
    return anp.stack([tensor(each) for each in values], axis=axis)


@also_on_host
def unstack(value: Any, num: int | None = None, axis: int = 0, name: str | None = None) -> list[Any]:
    """Return the parts of a tensor along an axis."""
    return list(anp.moveaxis(tensor(value), axis, 0))


@also_on_host
def split(value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None, name: str | None = None) -> Any:
    """Return parts of equal size, or of the sizes given."""
    if isinstance(num_or_size_splits, int):
        return list(anp.split(tensor(value), num_or_size_splits, axis))
    return list(anp.split(tensor(value), list(np.cumsum(num_or_size_splits)[:-1]), axis))


@also_on_host
def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Return the tensor several times along each axis."""
    return anp.tile(tensor(input), tuple(multiples))


@also_on_host
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """Return the tensor spread to a shape."""
    x, axes = tensor(input), tuple(shape)
    return anp.broadcast_to(anp.reshape(x, (1,) * (len(axes) - x.ndim) + x.shape), axes)


@primitive  # type: ignore[untyped-decorator]
def _take(params: Any, indices: Any, axis: int) -> Any:
    return np.take(params, indices, axis)


def _untake(_: Any, params: Any, indices: Any, axis: int) -> Callable[[Any], Any]:
    def pull(grad: Any) -> Any:
        found = np.zeros(params.shape, params.dtype)
        np.add.at(
            np.moveaxis(found, axis, 0),
            indices,
            np.moveaxis(grad, range_of(axis, indices.ndim), range_of(0, indices.ndim)),
        )
        return found

    return pull


def range_of(first: int, count: int) -> list[int]:
    """Return ``count`` axes from ``first`` on."""
    return [first + place for place in np.arange(count).tolist()]


defvjp(_take, _untake)


@also_on_host
def gather(params: Any, indices: Any, axis: int = 0, name: str | None = None) -> Any:
    """Return slices along an axis by their places."""
    return _take(tensor(params), tensor(indices), axis)


@also_on_host
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Return elements of ``x`` where the condition holds, else of ``y``; raises ProgramError without both."""
    if x is None or y is None:
        checks.wrong_value("x and y", "both, as shapes must be known", (x, y))
    return anp.where(tensor(condition), tensor(x), tensor(y))


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
    """Return a row for each whole number with ``on_value`` in that place; along the last axis alone."""
    if axis not in (None, -1):
        checks.wrong_value("axis", "None or -1, the last", axis)
    return _one_hot(tensor(indices), np.arange(depth), np.asarray(on_value, dtype), np.asarray(off_value, dtype))
