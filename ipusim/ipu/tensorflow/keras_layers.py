"""Layers in Keras' names: each is the core's own, so that it costs what it costs in a scenario."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial, reduce
from typing import Any, ClassVar, Final

import autograd.numpy as anp
import numpy as np
import numpy.typing as npt

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.layers import run
from ipusim.ipu.names import program_trains, scope
from ipusim.ipu.tensorflow.array_functions import reduce_max, reduce_mean, tensor
from ipusim.ipu.tensorflow.initializers import Initializer, initializer_of
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import softmax_of_layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node
from ipusim.ipu.tensorflow.keras.weight import is_trying, may_change
from ipusim.ipu.tensorflow.nn import core_activation
from ipusim.ipu.tensorflow.nn import softmax as softmax_of
from ipusim.ipu.tensorflow.offered import offering
from ipusim.ipu.tensorflow.scoping import drawn
from ipusim.ipu.tensorflow.seeds import seed_of
from ipusim.ipu.variable import NamedVariable, asked_for
from ipusim.model.functions.counting import unseen
from ipusim.model.functions.variables import check_inside
from ipusim.model.layers import convolution, dropout, embedding, gru, layers, lstm, normalisation, pooling
from ipusim.model.layers import layer as core_layer
from ipusim.model.layers.layer import Array, Shape

#: Keras' names of parameters.
_PARAMETERS: Final = {"W": "kernel", "U": "recurrent_kernel", "b": "bias"}
#: Arguments that change nothing that is simulated, and those that must be what they stand with.
_WITHOUT_EFFECT: Final = frozenset({"input_dim", "seed"})
_OF_ALL_LAYERS: Final = ("name", "trainable", "dtype", "input_shape", "batch_input_shape")
_ONLY: Final[dict[str, tuple[Any, ...]]] = {
    "data_format": (None, "channels_last"),
    "dilation_rate": (1, (1, 1), [1, 1]),
    "axis": (-1, [-1]),
    "noise_shape": (None,),
    "return_state": (False,),
    "stateful": (False,),
    "unroll": (False,),
    "go_backwards": (False,),
    "recurrent_dropout": (0, 0.0),
    "mask_zero": (False,),
}


class CoreLayer(Layer):
    """A layer of the core, made with the arguments of its Keras namesake.

    Its name, where none is given, is that of its kind with a number behind it. In a model its parameters are the
    model's weights; in a stage's function they are variables ``name/kernel`` and so on in the scope in which it is
    called first.
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
        base = {name: kwargs.pop(name) for name in _OF_ALL_LAYERS if kwargs.get(name) is not None}
        super().__init__(**base)
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
        self._layer: core_layer.Layer = self.core(**{name: _fitting(name, value) for name, value in arguments.items()})
        self._key: Any = self._layer
        self._named: dict[str, NamedVariable] = {}

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
            elif name not in _WITHOUT_EFFECT and name not in _OF_ALL_LAYERS:
                raise ProgramTypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")

    def _names(self) -> dict[str, str]:
        """Return Keras' names of parameters by the core's."""
        return _PARAMETERS | {"gamma": "gamma", "beta": "beta"}

    def build(self, input_shape: Any) -> None:
        """Make the weights; raises ModelError for an input that the layer does not take."""
        shape, dtype = tuple(input_shape[1:]), np.dtype(self._weight_dtype)
        self._layer.output_shape(shape)
        for own, axes in self._forms(shape).items():
            draw = partial(self._drawn_one, own, shape, dtype)
            self._keep(self._names()[own], axes, dtype, draw, own not in self._untrained)
        self.built = True

    #: The core's names of variables that no optimizer trains.
    _untrained: ClassVar[frozenset[str]] = frozenset()

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        own = {field.name: getattr(self._layer, field.name) for field in fields(self.core)}
        return super().get_config() | own

    def _forms(self, shape: Shape) -> dict[str, Shape]:
        """Return the shape of each variable for an input of a shape, by the core's names."""
        return self._layer.parameter_shapes(shape)

    def call(self, inputs: Any, training: bool | None = None, **_: Any) -> Any:
        """Return the layer's output for ``inputs`` (batch, ...), with its weights.

        Raises ProgramError for an input of another shape than the one that these were made for.
        """
        x, own = tensor(inputs), self._names()
        kept = {each.own_name: each for each in self._all_weights()}
        shapes = self._forms(tuple(x.shape[1:]))
        if any(kept[own[name]].shape != tuple(shape) for name, shape in shapes.items()):
            raise ProgramError(
                f'Input 0 of layer "{self.name}" is incompatible with the layer: expected the shape that its weights '
                f"{[each.shape for each in kept.values()]} were made for, received input with shape "
                f"{(None, *x.shape[1:])}"
            )
        return self._given(x, {name: kept[own[name]] for name in shapes}, training)

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        """Return the layer's output for ``inputs`` (batch, ...).

        Raises ModelError outside of a stage and for an input that it does not take; ProgramError for another layer
        of its name in the program.
        """
        if self.in_model or self.built or is_trying():
            return super()._run(inputs, *args, training=training, **kwargs)
        check_inside(self.name)
        x = tensor(inputs)
        self._layer.output_shape(tuple(x.shape[1:]))
        self._settle()
        return self._given(x, self._variables(x, self.path), training)

    def _gives(self, node: Node) -> KerasTensor:
        """Return the tensor of a call, in the shape that the layer says."""
        (given,) = node.inputs
        self._dtype = self._dtype or (given.dtype if given.dtype.kind == "f" else None)
        if not self.built:
            self.build(given.shape)
        kind = np.dtype(self._weight_dtype) if self._layer.parameter_shapes(given.sizes) else given.dtype
        return KerasTensor((None, *self._layer.output_shape(given.sizes)), kind, node)

    def _given(self, x: Any, variables: Mapping[str, NamedVariable], training: bool | None) -> Any:
        """Return what the layer gives with variables by the core's names, its activation included."""
        trains = may_change() and (program_trains() if training is None else bool(training))
        y = self._applied(x, variables, trains)
        if self._after is softmax_of:
            return softmax_of_layer(y)
        return y if self._after is None else self._after(y)

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        """Return what the core's layer gives; dropout draws where the machine says so."""
        parameters = {name: each.read_value() for name, each in variables.items() if name not in self._untrained}
        return run(self._layer, x, parameters, self.path, self._place if self.in_model else None)

    def _drawn_one(self, own: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return self._drawn(shape, dtype)[own]

    def _drawn(self, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Array]:
        """Return the initial value of each variable, by the core's names."""
        found: dict[str, Array] = {}
        for own, initial in _initial(self._key, shape, dtype, (seed_of(None), self._place)).items():
            found[own] = self._begun(own, initial, len(found))
        return found

    def _begun(self, own: str, initial: Array, number: int) -> Array:
        """Return what a variable begins with: as its initializer says, else ``initial``."""
        chosen = self._initializers.get(self._names()[own])
        if isinstance(chosen, Initializer):
            return drawn(chosen, initial.shape, initial.dtype, (seed_of(chosen.seed), self._place, number))
        return initial if chosen is None else np.asarray(chosen(initial.shape), initial.dtype)

    def _variables(self, x: Any, full: str) -> dict[str, NamedVariable]:
        """Return the variables of a layer that is in no model, which are its own in all programs that call it."""
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        found = self._drawn(tuple(x.shape[1:]), np.dtype(dtype))
        return {own: self._variable(f"{full}/{self._names()[own]}", own, value) for own, value in found.items()}

    def _variable(self, name: str, own: str, initial: Array) -> NamedVariable:
        kept = self._named.get(name)
        if kept is None or (kept.shape, kept.dtype) != (initial.shape, initial.dtype):
            kept = self._named[name] = asked_for(
                name, np.array(initial), own not in self._untrained, shares=scope().reuse is not False
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

    def __init__(self, **kwargs: Any) -> None:
        """Take a name."""
        super().__init__("relu", **kwargs)


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
    _untrained = frozenset({"mean", "variance"})

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

    def _forms(self, shape: Shape) -> dict[str, Shape]:
        return super()._forms(shape) | {"mean": shape[-1:], "variance": shape[-1:]}

    def _drawn(self, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Array]:
        found = super()._drawn(shape, dtype)
        for own, value in (("mean", 0), ("variance", 1)):
            found[own] = self._begun(own, np.full(shape[-1:], value, dtype), len(found))
        return found

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        mean, variance = variables["mean"], variables["variance"]
        if training:
            mean.assign(_moved(mean.read_value(), x, self._momentum, np.mean))
            variance.assign(_moved(variance.read_value(), x, self._momentum, _variance))
            return super()._applied(x, variables, training)
        scale = 1 / anp.sqrt(variance.read_value() + variance.dtype.type(self._epsilon))
        y = (x - mean.read_value()) * (scale * variables["gamma"].read_value() if "gamma" in variables else scale)
        return y + variables["beta"].read_value() if "beta" in variables else y


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


class _Plain(Layer):
    """A layer without weights."""

    is_plain = True


class Softmax(_Plain):
    """Keras ``Softmax``."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        """Take the axis that the sum runs over."""
        super().__init__(**kwargs)
        self._axis = axis

    def call(self, inputs: Any) -> Any:
        """Return exp(x), divided by its sum."""
        return softmax_of_layer(inputs, self._axis)


class GlobalAveragePooling2D(_Plain):
    """Keras ``GlobalAveragePooling2D``."""

    kind = "global_average_pooling2d"

    def call(self, inputs: Any) -> Any:
        """Return the mean of each channel of images (batch, height, width, channels)."""
        return reduce_mean(inputs, axis=(1, 2))


class GlobalMaxPooling2D(_Plain):
    """Keras ``GlobalMaxPooling2D``."""

    kind = "global_max_pooling2d"

    def call(self, inputs: Any) -> Any:
        """Return the largest element of each channel of images (batch, height, width, channels)."""
        return reduce_max(inputs, axis=(1, 2))


class Add(_Plain):
    """Keras ``Add``."""

    def call(self, inputs: Any) -> Any:
        """Return the sum of several tensors."""
        return reduce(operator.add, map(tensor, inputs))


class Subtract(_Plain):
    """Keras ``Subtract``."""

    def call(self, inputs: Any) -> Any:
        """Return the difference of two tensors."""
        first, second = map(tensor, inputs)
        return first - second


class Multiply(_Plain):
    """Keras ``Multiply``."""

    def call(self, inputs: Any) -> Any:
        """Return the product of several tensors, element by element."""
        return reduce(operator.mul, map(tensor, inputs))


class Average(_Plain):
    """Keras ``Average``."""

    def call(self, inputs: Any) -> Any:
        """Return the mean of several tensors, element by element."""
        return reduce(operator.add, map(tensor, inputs)) / np.float32(len(inputs))


class Concatenate(_Plain):
    """Keras ``Concatenate``."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        """Take the axis."""
        super().__init__(**kwargs)
        self._axis = axis

    def call(self, inputs: Any) -> Any:
        """Return several tensors joined."""
        return anp.concatenate([tensor(each) for each in inputs], axis=self._axis)


class Lambda(_Plain):
    """Keras ``Lambda``: a function of a tensor as a layer."""

    def __init__(self, function: Callable[..., Any], **kwargs: Any) -> None:
        """Take the function; raises ProgramTypeError for what is none."""
        if not callable(function):
            checks.wrong_type("function", "a function of a tensor", function)
        kwargs.pop("output_shape", None)
        self._arguments = dict(kwargs.pop("arguments", None) or {})
        super().__init__(**kwargs)
        self._function = function

    def call(self, inputs: Any) -> Any:
        """Return what the function gives."""
        return self._function(inputs, **self._arguments)


def add(inputs: Any, **kwargs: Any) -> Any:
    """Return the sum of several tensors, by a layer."""
    return Add(**kwargs)(inputs)


def concatenate(inputs: Any, axis: int = -1, **kwargs: Any) -> Any:
    """Return several tensors joined, by a layer."""
    return Concatenate(axis, **kwargs)(inputs)


_OFFERED: Final = (
    "Activation Add Average AveragePooling2D BatchNormalization Concatenate Conv2D Dense Dropout Embedding Flatten GRU "
    "GlobalAveragePooling2D GlobalMaxPooling2D GroupNormalization InstanceNormalization LSTM Lambda "
    "LayerNormalization MaxPooling2D Multiply ReLU Reshape Softmax Subtract add concatenate"
)
__getattr__, __dir__ = offering(
    "tf.keras.layers",
    {name: f"{__name__}:{name}" for name in _OFFERED.split()}
    | {"MaxPool2D": f"{__name__}:MaxPooling2D", "AvgPool2D": f"{__name__}:AveragePooling2D"}
    | {"Layer": "ipusim.ipu.tensorflow.keras.layer:Layer"}
    | {name: f"ipusim.ipu.tensorflow.keras.input_layer:{name}" for name in ("Input", "InputLayer")},
)
