"""Run elementwise operations in NumPy: arithmetic, comparisons, elementary functions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import special

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import in_float32
from ipusim.ipu.graph.kernels.selection import select
from ipusim.ipu.graph.registry import Kernel, kernel


def _zero(x: Array) -> Any:
    return x.dtype.type(0)


def _divide(x: Array, y: Array) -> Array:
    """Divide; a quotient of integers is rounded towards zero."""
    # NumPy gives bfloat16 the kind V
    return np.divide(x, y) if x.dtype.kind in "fcV" else _truncated_quotient(x, y)


def _truncated_quotient(x: Array, y: Array) -> Array:
    quotient = np.abs(x.astype(np.int64)) // np.abs(y.astype(np.int64))
    return np.asarray(np.where((x < 0) == (y < 0), quotient, -quotient)).astype(x.dtype)


def _floored_quotient(x: Array, y: Array) -> Array:
    """Divide and round down; NumPy's floor_divide differs for division by zero."""
    return np.floor(np.divide(x, y)) if x.dtype.kind in "fV" else np.floor_divide(x, y)


def _without_division_by_zero(x: Array, y: Array) -> Array:
    """Divide; the quotient is 0 where the divisor is 0."""
    return np.asarray(np.where(y == 0, _zero(x), np.divide(x, np.where(y == 0, x.dtype.type(1), y))))


def _zero_where_first_is(function: Kernel) -> Kernel:
    """Return a function of two arrays whose result is 0 where the first array is 0."""
    return lambda x, y: np.where(x == 0, _zero(x), function(x, y)).astype(x.dtype)


def _product_zero_where_second_is(x: Array, y: Array) -> Array:
    return np.asarray(np.where(y == 0, _zero(x), x * y))


_TWO_ARRAYS: Final[dict[str, Kernel]] = {
    "Add AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Div": _divide,
    "TruncateDiv": _truncated_quotient,
    "DivNoNan": _without_division_by_zero,
    "MulNoNan": _product_zero_where_second_is,
    "FloorDiv": _floored_quotient,
    "FloorMod": np.mod,
    "Mod TruncateMod": np.fmod,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Pow": np.power,
    "SquaredDifference": lambda x, y: np.square(x - y),
    "Atan2": np.arctan2,
    "Xdivy": _zero_where_first_is(np.divide),
    "Xlogy": _zero_where_first_is(lambda x, y: x * np.log(y)),
    "Xlog1py": _zero_where_first_is(lambda x, y: x * np.log1p(y)),
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "LeftShift": np.left_shift,
    "RightShift": np.right_shift,
    "NextAfter": np.nextafter,
    "Igamma": in_float32(special.gammainc),
    "Igammac": in_float32(special.gammaincc),
    "Zeta": in_float32(special.zeta),
}
_ONE_ARRAY: Final[dict[str, Kernel]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "Square": np.square,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "Reciprocal Inv": np.reciprocal,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log1p": np.log1p,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round Rint": np.rint,
    "Erf": in_float32(special.erf),
    "Erfc": in_float32(special.erfc),
    "Lgamma": in_float32(special.gammaln),
    "Digamma": in_float32(special.digamma),
    "Erfinv": in_float32(special.erfinv),
    "Ndtri": in_float32(special.ndtri),
    "BesselI0e": in_float32(special.i0e),
    "BesselI1e": in_float32(special.i1e),
    "LogicalNot": np.logical_not,
    "Invert": np.invert,
    "IsFinite": np.isfinite,
    "IsNan": np.isnan,
    "IsInf": np.isinf,
}
#: Gradient operations, which take the function's result and the arriving gradient.
_GRADIENTS: Final[dict[str, Kernel]] = {
    "RsqrtGrad": lambda y, grad: grad * (y.dtype.type(-0.5) * y * y * y),
    "SqrtGrad": lambda y, grad: grad * y.dtype.type(0.5) / y,
    "ReciprocalGrad InvGrad": lambda y, grad: -grad * y * y,
    "TanhGrad": lambda y, grad: grad * (1 - y * y),
}

for _functions in (_TWO_ARRAYS, _ONE_ARRAY, _GRADIENTS):
    for _types, _function in _functions.items():
        kernel(_types)(_function)


@kernel("AddN")
def _add_n(first: Any, *terms: Any) -> Any:
    total = first
    for value in terms:
        total = total + value
    return total


kernel("Cast", "DstT")(lambda dtype, x: np.asarray(x).astype(dtype))
#: Reinterprets bits as another dtype of equal size.
kernel("Bitcast", "type")(lambda dtype, x: np.asarray(x).view(dtype))
kernel("ClipByValue")(lambda x, low, high: np.minimum(np.maximum(x, low), high))


@kernel("Select")
def _select(condition: Array, x: Array, y: Array) -> Any:
    """Select elements, or whole rows if the condition has one axis."""
    rows = np.ndim(condition) == 1 and np.ndim(x) > 1
    return select(np.reshape(condition, (-1,) + (1,) * (np.ndim(x) - 1)) if rows else condition, x, y)


kernel("SelectV2")(select)
kernel("Identity Snapshot StopGradient PreventGradient EnsureShape CheckNumerics PlaceholderWithDefault")(
    lambda x, *_: x
)
kernel("IdentityN")(lambda *values: values)
