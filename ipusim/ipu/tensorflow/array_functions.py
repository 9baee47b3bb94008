"""TensorFlow's functions of arrays, in autograd's NumPy: under a trace they are differentiated and counted.

Arguments are TensorFlow's; ``name`` is without effect everywhere. Python's own numbers become float32 and int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import vspace
from autograd.extend import defvjp, primitive
from autograd.tracer import isbox
from numpy.lib.mixins import NDArrayOperatorsMixin

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks, small_integers
from ipusim.ipu.runtime.function_body import loop_range
from ipusim.ipu.runtime.host import Tensor, captured, compute, example
from ipusim.ipu.runtime.host_functions import also_by_older_names, also_on_host
from ipusim.ipu.runtime.initializers import filled
from ipusim.ipu.runtime.narrowing import narrowed
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss, concrete, squared_errors
from ipusim.ipu.runtime.variable import plain
from ipusim.ipu.tensorflow import exact_gradients


def tensor(value: Any, argument: str = "value") -> Any:
    """Return an array, or what stands for one; Python's numbers become float32 and int32, or int64 for large ones.

    A tensor of the host is its value in the body of a loop. Raises ProgramTypeError, with the name of the ``argument``,
    for what is neither, ProgramError for a tensor of the host in a stage of a pipeline.
    """
    result = captured(concrete(plain(value)))
    if isbox(result) or isinstance(result, np.ndarray | np.generic | Tensor | NDArrayOperatorsMixin):
        return result  # the last are gradients that are not known yet
    if isinstance(result, list | tuple) and any(map(isbox, result)):
        return anp.stack([tensor(item, argument) for item in result])
    return narrowed(checks.numbers(argument, result))


def whole_numbers(argument: str, value: Any) -> Any:
    """Return an array of whole numbers, whose values are the same in a trace.

    Raises ProgramTypeError for others, and for those that depend on a variable; ProgramError for a tensor of the host
    in a stage.
    """
    result = tensor(value, argument)
    if isbox(result) or np.asarray(result).dtype.kind not in "iu":
        checks.wrong_type(argument, "whole numbers that depend on no variable", value)
    return result


def like(value: Any, other: Any) -> Any:
    """Return a number of Python's in the dtype of ``other``, and anything else as a tensor."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return np.asarray(value, other.dtype) if other.dtype.kind == "f" else tensor(value)
    return tensor(value)


@also_on_host
def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Any:
    """Return an array of ``value``, in a ``shape`` as :func:`~ipusim.ipu.runtime.initializers.filled` has it."""
    result = tensor(value)
    result = result if dtype is None else np.asarray(result, dtype)
    return result if shape is None else filled(result, shape)


def convert_to_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return ``value`` as a tensor."""
    return tensor(value) if dtype is None else cast(value, dtype)


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """Return ``x`` in another dtype."""
    kind = checks.dtype("dtype", dtype, "biuf")
    return compute(lambda value: value if value.dtype == kind else value.astype(kind), tensor(x), name="cast")


def identity(input: Any, name: str | None = None) -> Any:
    """Return the tensor as it is; of a tensor of the host another one, which may have to wait for others."""
    result = plain(input)
    return compute(plain, result, name="identity") if isinstance(result, Tensor) else result


@primitive  # type: ignore[untyped-decorator]
def _stopped(x: Any) -> Any:
    return x


defvjp(_stopped, lambda ans, x: lambda g: vspace(x).zeros())


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Return the tensor, through which no gradient goes back."""
    return _stopped(tensor(input))


def _one(called: str, function: Callable[..., Any], of: str) -> Callable[..., Any]:
    def call(x: Any, name: str | None = None) -> Any:
        return compute(function, tensor(x), name=called)

    call.__doc__ = f"Return the {of} of each element."
    return call


def _two(called: str, function: Callable[..., Any], of: str) -> Callable[..., Any]:
    def call(x: Any, y: Any, name: str | None = None) -> Any:
        left, right = (
            (tensor(x), like(y, tensor(x))) if not isinstance(x, int | float) else (like(x, tensor(y)), tensor(y))
        )
        return compute(function, left, right, name=called)

    call.__doc__ = f"Return the {of} of the elements of two tensors, spread over each other."
    return call


abs = _one("abs", anp.abs, "absolute value")
cos = _one("cos", anp.cos, "cosine")
exp = _one("exp", anp.exp, "exponential")
log = _one("log", anp.log, "logarithm")
log1p = _one("log1p", anp.log1p, "logarithm of 1 and more")
negative = _one("negative", anp.negative, "negative")
sigmoid = _one("sigmoid", lambda x: (anp.tanh(x * 0.5) + 1) * 0.5, "logistic function")
sign = _one("sign", anp.sign, "sign")
sin = _one("sin", anp.sin, "sine")
sqrt = _one("sqrt", exact_gradients.sqrt, "square root")
square = _one("square", anp.square, "square")
tanh = _one("tanh", anp.tanh, "hyperbolic tangent")
round = _one("round", anp.rint, "nearest whole number")
logical_not = _one("logical_not", anp.logical_not, "opposite")
add = _two("add", anp.add, "sum")
divide = _two("divide", small_integers.truediv, "quotient")
equal = _two("equal", anp.equal, "equality")
greater = _two("greater", anp.greater, "order")
greater_equal = _two("greater_equal", anp.greater_equal, "order")
less = _two("less", anp.less, "order")
less_equal = _two("less_equal", anp.less_equal, "order")
logical_and = _two("logical_and", anp.logical_and, "conjunction")
logical_or = _two("logical_or", anp.logical_or, "disjunction")
maximum = _two("maximum", exact_gradients.maximum, "larger")
minimum = _two("minimum", exact_gradients.minimum, "smaller")
multiply = _two("multiply", anp.multiply, "product")
not_equal = _two("not_equal", anp.not_equal, "difference")
pow = _two("pow", exact_gradients.power, "power")
subtract = _two("subtract", anp.subtract, "difference")
truediv = _two("truediv", small_integers.truediv, "quotient")


@also_on_host
def add_n(inputs: Any, name: str | None = None) -> Any:
    """Return the sum of tensors of one shape; raises ProgramError for none, and for several shapes."""
    result = [tensor(input_, "inputs") for input_ in inputs]
    if len({anp.shape(item) for item in result}) != 1:
        checks.wrong_value("inputs", "a list of at least one tensor, all of one shape", list(map(anp.shape, result)))
    return sum(result[1:], result[0])


@also_on_host
def squared_difference(x: Any, y: Any, name: str | None = None) -> Any:
    """Return (x - y)^2 for each element; the mean of it is the core's mean squared error where it can be."""
    return squared_errors(tensor(x), tensor(y))


@also_on_host
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Return the tensor with elements from one value to another; where the bounds cross, the lower one."""
    return maximum(minimum(t, clip_value_max), clip_value_min)


#: Of functions that reduce.
_by_older_names = also_by_older_names(keep_dims="keepdims", reduction_indices="axis")


@_by_older_names
def reduce_mean(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the mean over some axes, by default all; of losses of all samples it is the core's own loss."""
    is_loss = isinstance(input_tensor, PerExampleLoss) and not keepdims
    if is_loss and (axis is None or (axis == 0 and input_tensor.ndim == 1)):
        return input_tensor.mean_of_all()
    return _reduced("reduce_mean", anp.mean, input_tensor, axis, keepdims)


@_by_older_names
def reduce_sum(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the sum over some axes, by default all."""
    return _reduced("reduce_sum", anp.sum, input_tensor, axis, keepdims)


@_by_older_names
def reduce_max(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the largest element over some axes, by default all."""
    return _reduced("reduce_max", anp.max, input_tensor, axis, keepdims)


@_by_older_names
def reduce_min(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the smallest element over some axes, by default all."""
    return _reduced("reduce_min", anp.min, input_tensor, axis, keepdims)


@_by_older_names
def reduce_prod(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the product over some axes, by default all."""
    return _reduced("reduce_prod", exact_gradients.prod, input_tensor, axis, keepdims)


def _reduced(called: str, function: Callable[..., Any], x: Any, axis: Any, keepdims: bool) -> Any:
    axes = tuple(axis) if isinstance(axis, list) else axis

    def reduced(value: Any) -> Any:
        result = function(value, axis=axes, keepdims=keepdims)
        return cast(result, value.dtype) if value.dtype.kind in "iu" else result

    return compute(reduced, tensor(x), name=called)


@also_on_host
def argmax(
    input: Any, axis: int | None = None, output_type: Any = np.int64, name: Any = None, dimension: int | None = None
) -> Any:
    """Return the place of the largest element along an axis, or ``dimension``, by default the first."""
    return _place(anp.argmax, input, axis if axis is not None else dimension, output_type)


@also_on_host
def argmin(
    input: Any, axis: int | None = None, output_type: Any = np.int64, name: Any = None, dimension: int | None = None
) -> Any:
    """Return the place of the smallest element along an axis, or ``dimension``, by default the first."""
    return _place(anp.argmin, input, axis if axis is not None else dimension, output_type)


def _place(function: Callable[..., Any], x: Any, axis: int | None, output_type: Any) -> Any:
    return cast(function(tensor(x), axis=0 if axis is None else axis), output_type)


@also_on_host
def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Any:
    """Return the product of matrices, or of stacks of them; the adjoint of a real matrix is the transposed one.

    Raises ProgramError for both of one matrix.
    """
    for operand, transposed, adjoint in (("a", transpose_a, adjoint_a), ("b", transpose_b, adjoint_b)):
        if transposed and adjoint:
            raise ProgramError(f"Only one of transpose_{operand} and adjoint_{operand} can be True.")
    left, right = tensor(a), tensor(b)
    left = anp.swapaxes(left, -1, -2) if transpose_a or adjoint_a else left
    right = anp.swapaxes(right, -1, -2) if transpose_b or adjoint_b else right
    return anp.dot(left, right) if left.ndim == right.ndim == 2 else anp.matmul(left, right)


@also_on_host
def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    """Return the sum of products over some axes of both."""
    return anp.tensordot(tensor(a), tensor(b), axes)


@also_on_host
def einsum(equation: str, *inputs: Any, name: str | None = None) -> Any:
    """Return the sum of products that an equation says."""
    subscripts, operands = without_repeats(equation, list(map(tensor, inputs)))
    return anp.einsum(subscripts, *operands)


@also_on_host
def zeros(shape: Any, dtype: Any = np.float32, name: str | None = None) -> Any:
    """Return zeros."""
    return np.zeros(tuple(np.atleast_1d(shape)), dtype)


@also_on_host
def ones(shape: Any, dtype: Any = np.float32, name: str | None = None) -> Any:
    """Return ones."""
    return np.ones(tuple(np.atleast_1d(shape)), dtype)


@also_on_host
def fill(dims: Any, value: Any, name: str | None = None) -> Any:
    """Return one value everywhere."""
    return constant(value, shape=dims)


@also_on_host
def eye(num_rows: int, num_columns: int | None = None, dtype: Any = np.float32, name: str | None = None) -> Any:
    """Return ones on the diagonal."""
    return np.eye(num_rows, num_columns, dtype=dtype)


def zeros_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return zeros in the tensor's shape."""
    return _of_form("zeros_like", lambda x: np.zeros(x.shape, dtype or x.dtype), input)


def ones_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return ones in the tensor's shape."""
    return _of_form("ones_like", lambda x: np.ones(x.shape, dtype or x.dtype), input)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
    """Return numbers one after the other; in a function that a strategy runs, a loop over them is one on the device."""
    result = np.arange(start) if limit is None else np.arange(start, limit, delta)
    return loop_range(result.astype(dtype) if dtype is not None else tensor(result.tolist()))


@also_on_host
def linspace(start: float, stop: float, num: int, name: str | None = None) -> Any:
    """Return numbers at equal distances, both ends among them."""
    return np.linspace(start, stop, num, dtype=np.float32)


def shape(input: Any, out_type: Any = np.int32, name: str | None = None) -> Any:
    """Return the tensor's shape."""
    return _of_form("shape", lambda x: np.asarray(x.shape, out_type), input)


def size(input: Any, out_type: Any = np.int32, name: str | None = None) -> Any:
    """Return the tensor's number of elements."""
    return _of_form("size", lambda x: np.asarray(np.prod(x.shape), out_type), input)


def _of_form(called: str, function: Callable[..., Any], value: Any) -> Any:
    """Return a function of a tensor's shape: of a tensor of the host in a session alone, unless its form is known."""
    x = tensor(value)
    return function(example(x)) if isinstance(x, Tensor) and x.has_known_form else compute(function, x, name=called)


@also_on_host
def rank(input: Any, name: str | None = None) -> Any:
    """Return the tensor's number of axes."""
    return np.asarray(tensor(input).ndim, np.int32)


def without_repeats(equation: str, operands: list[Any]) -> tuple[str, list[Any]]:
    """Return an equation of operands that name each axis once, and these: diagonals of those that name one twice.

    autograd has no gradient of others. An equation without an arrow says its result as NumPy does: the axes that are
    named once in all, in alphabetical order, behind those that have no names. Raises ProgramError for axes of one name
    that are of several sizes.
    """
    terms, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        letters = terms.replace(",", "").replace(".", "")
        once = "".join(sorted({letter for letter in letters if letters.count(letter) == 1}))
        result = ("..." if "..." in terms else "") + once
    names = terms.split(",")
    if len(names) != len(operands):
        return equation, operands
    outcome = [_diagonal(name, operand) for name, operand in zip(names, operands, strict=True)]
    return f"{','.join(name for name, _ in outcome)}->{result}", [operand for _, operand in outcome]


def _diagonal(names: str, x: Any) -> tuple[str, Any]:
    """Return names of axes without repetition, and the array with a diagonal for each name that was there twice."""
    for name in dict.fromkeys(names.replace(".", "")):
        while names.count(name) > 1:
            first, second = names.index(name), names.rindex(name)
            axes = _axis(names, first), _axis(names, second)
            if len({anp.shape(x)[axis] for axis in axes}) > 1:
                checks.wrong_value("inputs", f"axes of one size for index {name!r}", anp.shape(x))
            x = anp.moveaxis(x, axes, (-1, -2))
            x = anp.diagonal(x, axis1=-1, axis2=-2)
            names = names[:first] + names[first + 1 : second] + names[second + 1 :] + name
    return names, x


def _axis(names: str, index: int) -> int:
    """Return the axis of the letter at a place; those behind an ellipsis are counted from the end."""
    behind = "..." in names and index > names.index("...")
    return index - len(names) if behind else index
