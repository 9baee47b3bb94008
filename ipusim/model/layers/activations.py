"""Compute activations: element-wise functions with gradient and cost.

Definitions follow PopLibs (include/popnn/NonLinearityDef.hpp). gelu is the tanh approximation, also the default of
Graphcore's ``nn_ops.gelu``; ``gelu_erf`` is exact. ``hard_sigmoid`` is Keras 2's clip(0.2 x + 0.5, 0, 1), with slope
0.2 at both corners (lib/popnn/HardSigmoid.cpp, like TensorFlow).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import OneOf
from ipusim.model.layers.layer import Array
from ipusim.model.work import VectorWork

#: Factor of the argument of tanh in gelu: tanh(_GELU_SCALE * (z + _GELU_CUBIC * z^3)).
_GELU_SCALE: Final = math.sqrt(2 / math.pi)
#: Factor of the cubic term in this argument.
_GELU_CUBIC: Final = 0.044715
_erf: Any = np.frompyfunc(math.erf, 1, 1)  # NumPy has no erf


@dataclass(frozen=True)
class Activation:
    """A function of a single number.

    Attributes:
        function: takes z and the array for the result: either z or None, which stands for a new array. Returns the
            activation of z.
        pull_back: takes the saved array and the output's gradient; returns the gradient of z, a new array.
        saved_array: array that ``pull_back`` needs from the forward pass: the function's input, its output, or nothing.
        forward: vector work per element in the forward pass.
        backward: vector work per element in the backward pass.
    """

    function: Callable[[Array, Array | None], Array]
    pull_back: Callable[[Array, Array], Array]
    saved_array: Literal["nothing", "input", "output"]
    forward: VectorWork
    backward: VectorWork


def activation(name: str) -> Activation:
    """Return the activation called ``name``; raises ModelError for an unknown name."""
    if name not in ACTIVATIONS:
        raise ModelError(f"unknown activation {name!r}: expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def activate(name: str, z: Array, may_overwrite: bool = True) -> tuple[Array, Array | None]:
    """Return the activation of ``z``, and the array to save for :func:`pull_back` (None for the identity).

    With ``may_overwrite``, the result may take the place of ``z`` in memory.
    """
    rule = ACTIVATIONS[name]
    y = rule.function(z, z if may_overwrite and rule.saved_array != "input" else None)
    if rule.saved_array == "output":
        return y, y
    return y, z if rule.saved_array == "input" else None


def pull_back(name: str, saved_array: Array | None, grad: Array) -> Array:
    """Return the gradient of z from the output's gradient; the identity returns ``grad``, not a copy."""
    return grad if saved_array is None else ACTIVATIONS[name].pull_back(saved_array, grad)


def _identity(z: Array, _out: Array | None) -> Array:
    return z


def _identity_back(_array: Array, grad: Array) -> Array:
    return grad


def _relu(z: Array, out: Array | None) -> Array:
    return np.maximum(z, 0, out=out)


def _relu_back(y: Array, grad: Array) -> Array:
    result: Array = grad * (y > 0)
    return result


def _tanh_back(y: Array, grad: Array) -> Array:
    slope = np.square(y)
    np.subtract(1, slope, out=slope)
    slope *= grad
    return slope


def _sigmoid(z: Array, out: Array | None) -> Array:
    y = np.multiply(z, 0.5, out=out)  # tanh cannot overflow
    np.tanh(y, out=y)
    y += 1
    y *= 0.5
    return y


def _sigmoid_back(y: Array, grad: Array) -> Array:
    slope = 1 - y
    slope *= y
    slope *= grad
    return slope


def _hard_sigmoid(z: Array, out: Array | None) -> Array:
    """Return clip(0.2 z + 0.5, 0, 1), with values from which the backward pass can tell the slope.

    At the two corners the value is -0 or the largest number below 1, as the slope is 0.2; beyond the corners the value
    is +0 or 1, as the slope is 0.
    """
    y = np.multiply(z, 0.2, out=out)
    y += 0.5
    lower, upper = y == 0, y == 1
    np.clip(y, 0, 1, out=y)
    np.copyto(y, -0.0, where=lower)
    np.copyto(y, 1 - np.finfo(y.dtype).epsneg, where=upper)
    return y


def _hard_sigmoid_back(y: Array, grad: Array) -> Array:
    slope: Array = grad * (((y > 0) & (y < 1)) | ((y == 0) & np.signbit(y)))
    slope *= 0.2
    return slope


def _swish(z: Array, _out: Array | None) -> Array:
    y = _sigmoid(z, None)
    y *= z
    return y


def _swish_back(z: Array, grad: Array) -> Array:
    y = _sigmoid(z, None)
    slope = 1 - y
    slope *= z
    slope += 1
    slope *= y
    slope *= grad
    return slope


def _gelu_tanh(z: Array) -> tuple[Array, Array]:
    """Return z squared, and the tanh inside gelu."""
    square = np.square(z)
    t = square * _GELU_CUBIC
    t += 1
    t *= z
    t *= _GELU_SCALE
    return square, np.tanh(t, out=t)


def _gelu(z: Array, _out: Array | None) -> Array:
    _, y = _gelu_tanh(z)
    y += 1
    y *= z
    y *= 0.5
    return y


def _gelu_back(z: Array, grad: Array) -> Array:
    inner, t = _gelu_tanh(z)
    inner *= 3 * _GELU_CUBIC
    inner += 1  # slope of tanh's argument, divided by _GELU_SCALE
    slope = np.square(t)
    np.subtract(1, slope, out=slope)
    slope *= z
    slope *= 0.5 * _GELU_SCALE
    slope *= inner
    t += 1
    t *= 0.5
    slope += t
    slope *= grad
    return slope


def _normal_distribution(z: Array) -> Array:
    """Return the normal distribution function of z."""
    probability: Array = _erf(z * math.sqrt(0.5)).astype(z.dtype)
    probability += 1
    probability *= 0.5
    return probability


def _gelu_erf(z: Array, _out: Array | None) -> Array:
    y = _normal_distribution(z)
    y *= z
    return y


def _gelu_erf_back(z: Array, grad: Array) -> Array:
    slope = np.square(z)
    slope *= -0.5
    np.exp(slope, out=slope)
    slope *= 1 / math.sqrt(2 * math.pi)  # the density
    slope *= z
    slope += _normal_distribution(z)
    slope *= grad
    return slope


def _work(elementwise: int, transcendentals: int = 0) -> VectorWork:
    return VectorWork(elementwise, transcendentals=transcendentals)


#: Activations by name.
ACTIVATIONS: Final[dict[str, Activation]] = {
    "identity": Activation(_identity, _identity_back, "nothing", _work(0), _work(0)),
    "relu": Activation(_relu, _relu_back, "output", _work(1), _work(2)),
    "tanh": Activation(np.tanh, _tanh_back, "output", _work(0, 1), _work(3)),
    "sigmoid": Activation(_sigmoid, _sigmoid_back, "output", _work(0, 1), _work(3)),
    "hard_sigmoid": Activation(_hard_sigmoid, _hard_sigmoid_back, "output", _work(4), _work(5)),
    "swish": Activation(_swish, _swish_back, "input", _work(1, 1), _work(5, 1)),
    "gelu": Activation(_gelu, _gelu_back, "input", _work(8, 1), _work(16, 1)),
    "gelu_erf": Activation(_gelu_erf, _gelu_erf_back, "input", _work(4, 1), _work(9, 2)),
}
#: Name of an activation.
ActivationName = Annotated[str, OneOf(tuple(ACTIVATIONS))]
