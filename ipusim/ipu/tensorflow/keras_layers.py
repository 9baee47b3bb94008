"""Layers in Keras' names: each is the core's own, so that it costs what it costs in a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, ClassVar, Final

import autograd.numpy as anp
import numpy as np
import numpy.typing as npt

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.layers import run
from ipusim.ipu.names import counts, program_trains, scope, unique
from ipusim.ipu.tensorflow.array_functions import reduce_max, reduce_mean, tensor
from ipusim.ipu.tensorflow.initializers import Initializer, initializer_of
from ipusim.ipu.tensorflow.nn import core_activation
from ipusim.ipu.tensorflow.nn import softmax as softmax_of
from ipusim.ipu.tensorflow.offered import offering
from ipusim.ipu.tensorflow.scoping import drawn
from ipusim.ipu.tensorflow.seeds import seed_of
from ipusim.ipu.variable import NamedVariable, asked_for
from ipusim.model.functions.counting import unseen
from ipusim.model.functions.variables import check_inside
from ipusim.model.layers import convolution, dropout, embedding, gru, layers, lstm, normalisation, pooling
from ipusim.model.layers.layer import Array, Layer, Shape

#: Keras' names of parameters.
_PARAMETERS: Final = {"W": "kernel", "U": "recurrent_kernel", "b": "bias"}
#: Arguments that change nothing that is simulated, and those that must be what they stand with.
_WITHOUT_EFFECT: Final = frozenset({"input_shape", "input_dim", "batch_input_shape", "seed", "dtype"})
_ONLY: Final[dict[str, tuple[Any, ...]]] = {
    "data_format": (None, "channels_last"),
    "dilation_rate": (1, (1, 1), [1, 1]),
    "trainable": (None, True),
    "axis": (-1, [-1]),
    "noise_shape": (None,),
    "return_state": (False,),
    "stateful": (False,),
    "unroll": (False,),
    "go_backwards": (False,),
    "recurrent_dropout": (0, 0.0),
    "mask_zero": (False,),
}


class CoreLayer:
    """A layer of the core, made with the arguments of its Keras namesake.

    Its name, where none is given, is that of its kind with a number behind it; its parameters are variables
    ``name/kernel`` and so on in the scope in which it is called first.
    """

    core: ClassVar[type]
    kind: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the layer's own arguments, initializers, and ``name``.

        Raises ProgramTypeError for an argument that there is not, UnsupportedProgramError for what is not simulated,
        ModelError for a value that the layer does not take.
        """
        own = [field.name for field in fields(self.core)]
        if len(args) > len(own):
            raise ProgramTypeError(f"{type(self).__name__}: expected at most {len(own)} arguments, got {len(args)}")
        given = dict(zip(own, args, strict=False))
        for argument in given.keys() & kwargs.keys():
            raise ProgramTypeError(f"{type(self).__name__}() got multiple values for argument {argument!r}")
        self._given_name = kwargs.pop("name", None)
        if self._given_name is not None:
            checks.text("name", self._given_name)
        self._initializers = {
            argument.removesuffix("_initializer"): initializer_of(kwargs.pop(argument))
            for argument in list(kwargs)
            if argument.endswith("_initializer") and argument.removesuffix("_initializer") in self._names().values()
        }
        self._after = None
        arguments = given | {name: value for name, value in kwargs.items() if name in own}
        self._check({name: value for name, value in kwargs.items() if name not in own})
        if "activation" in arguments:
            arguments["activation"], self._after = core_activation(arguments["activation"])
        self._layer: Layer = self.core(**{name: _fitting(name, value) for name, value in arguments.items()})
        self._key: Any = self._layer
        self._scope: str | None = None
        self._variables: dict[str, NamedVariable] = {}
        self._name = ""
        self._place = 0

    def _check(self, others: dict[str, Any]) -> None:
        for name, value in others.items():
            if name in _ONLY:
                if not any(value is each or (value == each and type(value) is type(each)) for each in _ONLY[name]):
                    raise UnsupportedProgramError(
                        f"{type(self).__name__}: {name} is simulated as {_ONLY[name][0]!r} alone, got {value!r}"
                    )
            elif name.endswith(("_regularizer", "_constraint")):
                if value is not None:
                    raise UnsupportedProgramError(f"{type(self).__name__}: {name} is not simulated, got {value!r}")
            elif name not in _WITHOUT_EFFECT:
                raise ProgramTypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")

    @property
    def name(self) -> str:
        """Its name; where none was given, that of its kind until it is called."""
        return self._given_name or self._name or self.kind

    def _names(self) -> dict[str, str]:
        """Return Keras' names of parameters by the core's."""
        return _PARAMETERS | {"gamma": "gamma", "beta": "beta"}

    def __call__(self, inputs: Any, training: bool | None = None, **_: Any) -> Any:
        """Return the layer's output for ``inputs`` (batch, ...).

        Raises ModelError outside of a stage and for an input that it does not take; ProgramError for another layer
        of its name in the program.
        """
        check_inside(self.name)
        x, layer, called = tensor(inputs), self._layer, counts()
        automatic = unique(self.kind) if self._given_name is None else self._given_name
        if self._scope is None:
            self._scope, self._name, self._place = scope().prefix, automatic, called.layers
        called.layers += 1
        full = self._scope + self._name
        if called.owners.setdefault(full, self) is not self and scope().reuse is False:
            raise ProgramError(f"The name {full!r} is used by two layers of the program: all names must be unique")
        layer.output_shape(tuple(x.shape[1:]))
        y = self._run(x, full, program_trains() if training is None else bool(training))
        return y if self._after is None else self._after(y)

    def _run(self, x: Any, full: str, training: bool) -> Any:
        """Return what the layer gives for ``x``; dropout draws where the machine says so."""
        return run(self._layer, x, self._parameters(x, full), draws_as=full)

    def _parameters(self, x: Any, full: str) -> dict[str, Any]:
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        seed = seed_of(None), self._place
        names = self._names()
        found: dict[str, Any] = {}
        for own, initial in _initial(self._key, tuple(x.shape[1:]), dtype, seed).items():
            chosen = self._initializers.get(names[own])
            value = initial
            if isinstance(chosen, Initializer):
                value = drawn(chosen, initial.shape, np.dtype(dtype), (seed_of(chosen.seed), self._place, len(found)))
            elif chosen is not None:
                value = np.asarray(chosen(initial.shape), dtype)
            found[own] = self._variable(f"{full}/{names[own]}", value).read_value()
        return found

    def _variable(self, name: str, initial: Array, trainable: bool = True) -> NamedVariable:
        """Return a variable, which is the layer's own in all programs that call it."""
        kept = self._variables.get(name)
        if kept is None or (kept.shape, kept.dtype) != (initial.shape, initial.dtype):
            kept = self._variables[name] = asked_for(
                name, np.array(initial), trainable, shares=scope().reuse is not False
            )
        return kept


@lru_cache(maxsize=256)
def _initial(of: Any, shape: Shape, dtype: npt.DTypeLike, seed: tuple[int, ...]) -> dict[str, Array]:
    """Draw a layer's parameters as a scenario does, where the place is that in the network."""
    found: dict[str, Array] = of.initial_parameters(shape, np.random.default_rng(seed), dtype)
    return found


def _fitting(name: str, value: Any) -> Any:
    """Return one size for both axes as two, and lists as tuples, as the core has them."""
    if name in ("kernel_size", "strides", "pool_size") and isinstance(value, int):
        return (value, value)
    return tuple(value) if isinstance(value, list) else value.lower() if name == "padding" else value


class Dense(CoreLayer):
    """Keras ``Dense``."""

    core, kind = layers.Dense, "dense"


class Flatten(CoreLayer):
    """Keras ``Flatten``."""

    core, kind = layers.Flatten, "flatten"


class Reshape(CoreLayer):
    """Keras ``Reshape``."""

    core, kind = layers.Reshape, "reshape"


class Activation(CoreLayer):
    """Keras ``Activation``."""

    core, kind = layers.ActivationLayer, "activation"


class ReLU(CoreLayer):
    """Keras ``ReLU`` without its arguments."""

    core, kind = layers.ActivationLayer, "re_lu"

    def __init__(self, name: str | None = None) -> None:
        """Take a name."""
        super().__init__("relu", name=name)


class Dropout(CoreLayer):
    """Keras ``Dropout``."""

    core, kind = dropout.Dropout, "dropout"


class Conv2D(CoreLayer):
    """Keras ``Conv2D``."""

    core, kind = convolution.Conv2D, "conv2d"


class MaxPooling2D(CoreLayer):
    """Keras ``MaxPooling2D``."""

    core, kind = pooling.MaxPool2D, "max_pooling2d"


class AveragePooling2D(CoreLayer):
    """Keras ``AveragePooling2D``."""

    core, kind = pooling.AveragePool2D, "average_pooling2d"


class BatchNormalization(CoreLayer):
    """Keras ``BatchNormalization`` of the last axis.

    In training it is by the statistics of each micro-batch, which its forward pass adds to the moving ones; else by
    these. By default it is training where the program trains. What is added to the moving statistics, a few operations
    for each channel, takes no simulated time. As in TensorFlow's fused operation, the variance of images is that of
    their whole population, n / (n - 1) of the sample's (tf2xla/kernels/batch_norm_op.cc).
    """

    core, kind = normalisation.BatchNorm, "batch_normalization"

    def __init__(self, *args: Any, momentum: float = 0.99, **kwargs: Any) -> None:
        """Take the arguments of all layers, and how much the moving statistics keep in each micro-batch.

        Raises ProgramTypeError and ProgramError for a momentum that is no number from 0 to 1.
        """
        if isinstance(momentum, bool) or not isinstance(momentum, int | float):
            checks.wrong_type("momentum", "a number from 0 to 1", momentum)
        if not 0 <= momentum <= 1:
            checks.wrong_value("momentum", "a number from 0 to 1", momentum)
        super().__init__(*args, **kwargs)
        self._momentum = float(momentum)
        assert isinstance(self._layer, normalisation.BatchNorm)
        self._epsilon = self._layer.epsilon

    def _names(self) -> dict[str, str]:
        return super()._names() | {"mean": "moving_mean", "variance": "moving_variance"}

    def _run(self, x: Any, full: str, training: bool) -> Any:
        form = x.shape[-1:], x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        mean, variance = (
            self._variable(f"{full}/{name}", self._started(name, np.full(form[0], value, form[1])), trainable=False)
            for name, value in (("moving_mean", 0), ("moving_variance", 1))
        )
        if training:
            self._move(x, mean, variance)
            return super()._run(x, full, training)
        parameters = self._parameters(x, full)
        scale = 1 / anp.sqrt(variance.read_value() + form[1].type(self._epsilon))
        y = (x - mean) * (scale * parameters["gamma"] if "gamma" in parameters else scale)
        return y + parameters["beta"] if "beta" in parameters else y

    def _started(self, name: str, value: Array) -> Array:
        """Return what a moving statistic begins with: as its initializer says, else ``value``."""
        chosen = self._initializers.get(name)
        if isinstance(chosen, Initializer):
            return drawn(chosen, value.shape, value.dtype, (seed_of(chosen.seed), self._place))
        return value if chosen is None else np.asarray(chosen(value.shape), value.dtype)

    def _move(self, x: Any, mean: NamedVariable, variance: NamedVariable) -> None:
        """Add the statistics of a micro-batch to the moving ones."""
        mean.assign(_moved(mean.read_value(), x, self._momentum, np.mean))
        variance.assign(_moved(variance.read_value(), x, self._momentum, _variance))


@unseen
def _moved(before: Array, x: Array, momentum: float, statistic: Callable[..., Array]) -> Array:
    """Return a moving statistic after the micro-batch ``x``."""
    found = statistic(x, axis=tuple(range(x.ndim - 1)))
    moved: Array = (before * momentum + found * (1 - momentum)).astype(before.dtype)
    return moved


def _variance(x: Array, axis: tuple[int, ...]) -> Array:
    """Return the variance of each channel; of images that of the whole population."""
    count = math.prod(x.shape[:-1])
    return np.asarray(x.var(axis=axis) * (count / (count - 1) if x.ndim == 4 and count > 1 else 1))


class LayerNormalization(CoreLayer):
    """Keras ``LayerNormalization`` of the last axis."""

    core, kind = normalisation.LayerNorm, "layer_normalization"


class GroupNormalization(CoreLayer):
    """Graphcore's Keras ``GroupNormalization``."""

    core, kind = normalisation.GroupNorm, "group_normalization"


class InstanceNormalization(CoreLayer):
    """Graphcore's Keras ``InstanceNormalization``."""

    core, kind = normalisation.InstanceNorm, "instance_normalization"


class Embedding(CoreLayer):
    """Keras ``Embedding``."""

    core, kind = embedding.Embedding, "embedding"

    def _names(self) -> dict[str, str]:
        return {"W": "embeddings"}


class LSTM(CoreLayer):
    """Keras ``LSTM``."""

    core, kind = lstm.LSTM, "lstm"


class GRU(CoreLayer):
    """Keras ``GRU``."""

    core, kind = gru.GRU, "gru"


class Softmax:
    """Keras ``Softmax``."""

    def __init__(self, axis: int = -1) -> None:
        """Take the axis that the sum runs over."""
        self._axis = axis

    def __call__(self, inputs: Any) -> Any:
        """Return exp(x), divided by its sum."""
        return softmax_of(inputs, self._axis)


class GlobalAveragePooling2D:
    """Keras ``GlobalAveragePooling2D``."""

    def __call__(self, inputs: Any) -> Any:
        """Return the mean of each channel of images (batch, height, width, channels)."""
        return reduce_mean(inputs, axis=(1, 2))


class GlobalMaxPooling2D:
    """Keras ``GlobalMaxPooling2D``."""

    def __call__(self, inputs: Any) -> Any:
        """Return the largest element of each channel of images (batch, height, width, channels)."""
        return reduce_max(inputs, axis=(1, 2))


class Add:
    """Keras ``Add``."""

    def __call__(self, inputs: Any) -> Any:
        """Return the sum of several tensors."""
        first, *others = map(tensor, inputs)
        for other in others:
            first = first + other
        return first


class Concatenate:
    """Keras ``Concatenate``."""

    def __init__(self, axis: int = -1) -> None:
        """Take the axis."""
        self._axis = axis

    def __call__(self, inputs: Any) -> Any:
        """Return several tensors joined."""
        return anp.concatenate([tensor(each) for each in inputs], axis=self._axis)


_OFFERED: Final = (
    "Activation Add AveragePooling2D BatchNormalization Concatenate Conv2D Dense Dropout Embedding Flatten GRU "
    "GlobalAveragePooling2D GlobalMaxPooling2D GroupNormalization InstanceNormalization LSTM LayerNormalization "
    "MaxPooling2D ReLU Reshape Softmax"
)
__getattr__, __dir__ = offering("tf.keras.layers", {name: f"{__name__}:{name}" for name in _OFFERED.split()})
