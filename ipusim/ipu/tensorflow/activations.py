"""Activations of ``tf.nn`` and Keras: the core's where it has them, else functions with TensorFlow's gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import autograd.numpy as anp

from ipusim.api import layers
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_functions import also_on_host
from ipusim.ipu.runtime.layers import run
from ipusim.ipu.tensorflow.array_functions import exp, tensor
from ipusim.ipu.tensorflow.nn import log_softmax, softmax


class Activation:
    """A function of each element, which is an activation of the core's layers too."""

    def __init__(self, core: str) -> None:
        """Take the core's name."""
        self.core = self.__name__ = core
        self.__doc__ = f"Return {core} of each element of a tensor."

    def __call__(self, features: Any, name: str | None = None) -> Any:
        """Return the function of each element."""
        x = tensor(features)
        if not anp.shape(x):
            return anp.reshape(self(anp.reshape(x, (1,))), ())
        return run(layers.ActivationLayer(self.core), x, {}, draws_as="")


class _Gelu(Activation):
    """TensorFlow's gelu: exact by default."""

    def __init__(self) -> None:
        super().__init__("gelu_erf")
        self.__name__ = "gelu"
        self._by_tanh = Activation("gelu")

    def __call__(  # type: ignore[override]  # TensorFlow's own argument
        self, features: Any, approximate: bool = False, name: str | None = None
    ) -> Any:
        """Return x times the share of a normal distribution below x; where ``approximate``, by tanh."""
        if checks.truth("approximate", approximate):
            return self._by_tanh(features)
        return super().__call__(features)


relu = Activation("relu")
swish = silu = Activation("swish")
gelu = _Gelu()
tanh = Activation("tanh")
logistic = Activation("sigmoid")
hard_sigmoid = Activation("hard_sigmoid")


@also_on_host
def elu(features: Any, name: str | None = None) -> Any:
    """Return x of each element where it is positive, else exp(x) - 1; its slope at 0 is 1."""
    x = tensor(features)
    return _bent(x, x.dtype.type(1))


@also_on_host
def selu(features: Any, name: str | None = None) -> Any:
    """Return a scaled elu, which keeps mean 0 and variance 1 (arXiv:1706.02515, equation 2 and appendix A1).

    Its slope at 0 is that of positive numbers.
    """
    x = tensor(features)
    scale, alpha = x.dtype.type(1.0507009873554805), x.dtype.type(1.6732632423543772)
    return scale * _bent(x, alpha)


def _bent(x: Any, alpha: Any) -> Any:
    """Return x from 0 up, and alpha * (exp(x) - 1) below, where exp is taken of numbers up to 0 alone."""
    zero = x.dtype.type(0)
    return anp.where(x >= 0, x, alpha * (anp.exp(anp.where(x >= 0, zero, x)) - 1))


@also_on_host
def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    """Return x of each element where it is positive, else alpha * x."""
    x = tensor(features)
    return anp.where(x > 0, x, x.dtype.type(alpha) * x)


@also_on_host
def relu6(features: Any, name: str | None = None) -> Any:
    """Return each element, at least 0 and at most 6; its slope at both bounds is 0."""
    x = tensor(features)
    return anp.where(x > 0, anp.where(x < 6, x, x.dtype.type(6)), x.dtype.type(0))


@also_on_host
def softplus(features: Any, name: str | None = None) -> Any:
    """Return log(1 + exp(x)) of each element."""
    x = tensor(features)
    return anp.logaddexp(x, x.dtype.type(0))


@also_on_host
def softsign(features: Any, name: str | None = None) -> Any:
    """Return x / (1 + |x|) of each element."""
    x = tensor(features)
    return x / (anp.abs(x) + 1)


def exponential(x: Any) -> Any:
    """Return exp(x) of each element."""
    return exp(x)


@also_on_host
def mish(x: Any) -> Any:
    """Return x * tanh(log(1 + exp(x))) of each element."""
    x = tensor(x)
    return x * anp.tanh(softplus(x))


def linear(x: Any) -> Any:
    """Return the tensor as it is."""
    return tensor(x)


#: Keras' names of activations.
_BY_NAME: Final[Mapping[str, Callable[[Any], Any]]] = {
    function.__name__: function
    for function in (
        *(elu, exponential, gelu, hard_sigmoid, leaky_relu, linear, log_softmax, mish, relu, relu6, selu, logistic),
        *(softmax, softplus, softsign, swish, tanh),
    )
} | {"silu": silu}


def by_name(name: str) -> Callable[[Any], Any]:
    """Return the activation that Keras has by a name; raises ProgramError for a name that it does not have."""
    if name not in _BY_NAME:
        known = sorted(_BY_NAME)
        near = did_you_mean(name, known) or "."
        raise ProgramError(f"Unknown activation function: {name}{near} Expected one of {', '.join(known)}")
    return _BY_NAME[name]


def core_activation(activation: Any) -> tuple[str, Callable[[Any], Any] | None]:
    """Return the core's name of a Keras activation, and a function to call where the core has none by that name.

    Raises ProgramError for a name that Keras does not have, ProgramTypeError for what is no activation.
    """
    function = by_name(activation) if isinstance(activation, str) else activation
    if function is None or function is linear:
        return "identity", None
    if isinstance(function, Activation):
        return function.core, None
    if not callable(function):
        checks.wrong_type("activation", "None, a name, or a function such as tf.nn.relu", activation)
    return "identity", function


def gate_activation(argument: str, activation: Any) -> str:
    """Return the core's name of an activation within a recurrent layer.

    Raises ProgramError and ProgramTypeError as :func:`core_activation` does, UnsupportedProgramError for one whose
    slope does not follow from its value, as such a layer keeps no more of it.
    """
    core, function = core_activation(activation)
    if function is not None or core not in layers.RECURRENT_ACTIVATIONS:
        names = ", ".join(sorted(map(keras_name, layers.RECURRENT_ACTIVATIONS)))
        name = getattr(activation, "__name__", activation)
        raise UnsupportedProgramError(f"{argument}: in a recurrent layer one of {names} is simulated, got {name!r}")
    return core


def keras_name(core: str) -> str:
    """Return Keras' name of an activation of the core's."""
    return {"identity": "linear", "gelu_erf": "gelu"}.get(core, core)
