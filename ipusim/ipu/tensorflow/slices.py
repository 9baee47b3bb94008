"""TensorFlow's functions that take parts of a tensor by position, or put margins around it.

Arguments are TensorFlow's; ``name`` is without effect everywhere.
"""

from __future__ import annotations

import builtins
from typing import Any, Final

import autograd.numpy as anp
import numpy as np

from ipusim.ipu import checks
from ipusim.ipu.host import also_on_host
from ipusim.ipu.tensorflow.array_functions import like, tensor, whole_numbers
from ipusim.ipu.tensorflow.shaping import gather

_MODES: Final = ("CONSTANT", "REFLECT", "SYMMETRIC")
_as_tensor = tensor


@also_on_host
def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
    """Return the tensor with margins of ``paddings`` (axes, 2) elements before and behind it along each axis.

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
            x = gather(x, np.pad(np.arange(x.shape[axis]), (before, behind), chosen.lower()), axis)  # type: ignore[call-overload]
    return x


@also_on_host
def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """Return ``size`` elements from ``begin`` on along each axis, with -1 all that are left.

    Raises ProgramError for elements that there are not.
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
    for place, (start, stop, step) in enumerate(zip(first.tolist(), last.tolist(), steps.tolist(), strict=True)):
        bit = 1 << place
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
    for place in axes.ravel().tolist():
        if not -x.ndim <= place < x.ndim:
            checks.wrong_value("axis", f"axes of a tensor of shape {x.shape}", axis)
        key[place] = builtins.slice(None, None, -1)
    return x[tuple(key)]
