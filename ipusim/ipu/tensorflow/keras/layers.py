"""Layers in Keras' names: each is the core's own, so that it costs what it costs in a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import autograd.numpy as anp
import numpy as np
from autograd.tracer import getval

from ipusim.api import Array, Shape, functions, layers
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.import_names import major_version
from ipusim.ipu.runtime.names import statistics_group
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.tensorflow.array_functions import cast
from ipusim.ipu.tensorflow.keras.core_layer import CoreLayer
from ipusim.ipu.tensorflow.keras.recurrent_layer import RecurrentLayer


class BatchNormalization(CoreLayer):
    """Keras ``BatchNormalization`` of the last axis.

    In training it is by the statistics of each micro-batch, which its forward pass adds to the moving ones; else by
    these. By default it is training where the program trains, and where its ``trainable`` is False it never is, as in
    TensorFlow 2. What is added to the moving statistics, a few operations for each channel, takes no simulated time.
    Where IPUConfig says so, statistics are those of the micro-batches of several replicas, which meet for them. As in
    TensorFlow's fused operation, the variance of images that moves is that of their whole population, n / (n - 1) of
    the sample's (tf2xla/kernels/batch_norm_op.cc).
    """

    core, kind = layers.BatchNorm, "batch_normalization"
    _order = ("axis", "epsilon", "center", "scale")  # the momentum, which is second, is none of the core's
    _untrained = frozenset({"mean", "variance"})
    _names: ClassVar[Mapping[str, str]] = {**CoreLayer._names, "mean": "moving_mean", "variance": "moving_variance"}

    def __init__(self, axis: Any = -1, momentum: float = 0.99, *args: Any, **kwargs: Any) -> None:
        """Take the arguments in Keras' order: how much the moving statistics keep in each micro-batch comes second.

        Raises ProgramTypeError and ProgramError for a momentum that is no number from 0 to 1.
        """
        if isinstance(momentum, bool) or not isinstance(momentum, int | float):
            checks.wrong_type("momentum", "a number from 0 to 1", momentum)
        if not 0 <= momentum <= 1:
            checks.wrong_value("momentum", "a number from 0 to 1", momentum)
        super().__init__(axis, *args, **kwargs)
        self._momentum = float(momentum)

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return super().get_config() | {"momentum": self._momentum}

    def _forms(self, shape: Shape) -> dict[str, Shape]:
        return super()._forms(shape) | {"mean": shape[-1:], "variance": shape[-1:]}

    def _drawn(self, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Array]:
        result = super()._drawn(shape, dtype)
        for own, value in (("mean", 0), ("variance", 1)):
            result[own] = self._begun(own, np.full(shape[-1:], value, dtype), len(result))
        return result

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        mean, variance = variables["mean"], variables["variance"]
        training = training and self._trainable
        if training and statistics_group() > 1:
            return self._over_replicas(x, variables, statistics_group())
        if training:
            mean.assign(moving_average(mean.read_value(), x, self._momentum, np.mean))
            variance.assign(moving_average(variance.read_value(), x, self._momentum, _variance))
            return super()._applied(x, variables, training)
        return self._normalised(x, mean.read_value(), variance.read_value(), variables)

    def _over_replicas(self, x: Any, variables: Mapping[str, NamedVariable], group: int) -> Any:
        """Return ``x`` normalised by the statistics of micro-batches over each group of replicas."""
        axes, size = tuple(range(x.ndim - 1)), x.dtype.type(group)
        mean = functions.all_reduce(anp.mean(x, axis=axes), group) / size
        variance = functions.all_reduce(anp.mean((x - mean) ** 2, axis=axes), group) / size
        for statistic, result in ((variables["mean"], mean), (variables["variance"], variance)):
            statistic.assign(_mixed(statistic.read_value(), getval(result), self._momentum))
        return self._normalised(x, mean, variance, variables)

    def _normalised(self, x: Any, mean: Any, variance: Any, variables: Mapping[str, NamedVariable]) -> Any:
        epsilon = variance.dtype.type(self._layer.epsilon)  # type: ignore[attr-defined]
        scale = 1 / anp.sqrt(variance + epsilon)
        y = (x - mean) * (scale * variables["gamma"].read_value() if "gamma" in variables else scale)
        return y + variables["beta"].read_value() if "beta" in variables else y


@functions.unseen
def moving_average(before: Array, x: Array, momentum: float, statistic: Callable[..., Array]) -> Array:
    """Return a moving statistic after the micro-batch ``x``."""
    return _mixed(before, statistic(x, axis=tuple(range(x.ndim - 1))), momentum)


def _mixed(before: Array, result: Array, momentum: float) -> Array:
    moved: Array = (before * momentum + result * (1 - momentum)).astype(before.dtype)
    return moved


def _variance(x: Array, axis: tuple[int, ...]) -> Array:
    """Return the variance of each channel; of images that of the whole population."""
    count = math.prod(x.shape[:-1])
    return np.asarray(x.var(axis=axis) * (count / (count - 1) if x.ndim == 4 and count > 1 else 1))


#: Keras' orders of arguments that several layers have.
_INITIALIZERS: Final = ("kernel_initializer", "bias_initializer")
_CONVOLUTION: Final = ("filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate", "groups")
_POOLING: Final = ("pool_size", "strides", "padding", "data_format")
_RECURRENT: Final = (
    *("units", "activation", "recurrent_activation", "use_bias"),
    *("kernel_initializer", "recurrent_kernel_initializer", "bias_initializer"),
)


class Dense(CoreLayer):
    """Keras ``Dense``."""

    core, kind = layers.Dense, "dense"
    _order = ("units", "activation", "use_bias", *_INITIALIZERS)


class Flatten(CoreLayer):
    """Keras ``Flatten``."""

    core, kind = layers.Flatten, "flatten"
    _order = ("data_format",)


class Reshape(CoreLayer):
    """Keras ``Reshape``."""

    core, kind = layers.Reshape, "reshape"


class Activation(CoreLayer):
    """Keras ``Activation``."""

    core, kind = layers.ActivationLayer, "activation"


class ReLU(CoreLayer):
    """Keras ``ReLU`` without its arguments."""

    core, kind = layers.ActivationLayer, "re_lu"

    def __init__(
        self, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0, **kwargs: Any
    ) -> None:
        """Take a name; raises UnsupportedProgramError for another slope, or for limits."""
        for name, value in (("max_value", max_value), ("negative_slope", negative_slope), ("threshold", threshold)):
            if value:
                raise UnsupportedProgramError(
                    f"ReLU: {name} is simulated as none alone, got {value!r}: use LeakyReLU, or tf.clip_by_value in a "
                    "Lambda"
                )
        super().__init__("relu", **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return {name: value for name, value in super().get_config().items() if name != "activation"}


class Dropout(CoreLayer):
    """Keras ``Dropout``."""

    core, kind = layers.Dropout, "dropout"
    _order = ("rate", "noise_shape", "seed")

    def _output_of(self, x: Any, variables: Mapping[str, NamedVariable], training: bool | None) -> Any:
        """Return ``x`` as it is where a call says that it is no training."""
        return super()._output_of(x, variables, training) if training is None or training else x


class Conv2D(CoreLayer):
    """Keras ``Conv2D``."""

    core, kind = layers.Conv2D, "conv2d"
    _order = (*_CONVOLUTION, "activation", "use_bias", *_INITIALIZERS)


class Conv2DTranspose(CoreLayer):
    """Keras ``Conv2DTranspose``."""

    core, kind = layers.Conv2DTranspose, "conv2d_transpose"
    _order = (
        *("filters", "kernel_size", "strides", "padding", "output_padding", "data_format", "dilation_rate"),
        *("activation", "use_bias", *_INITIALIZERS),
    )


class Conv1D(CoreLayer):
    """Keras ``Conv1D``."""

    core, kind = layers.Conv1D, "conv1d"
    _order = (*_CONVOLUTION, "activation", "use_bias", *_INITIALIZERS)
    _axes = 1


class DepthwiseConv2D(CoreLayer):
    """Keras ``DepthwiseConv2D``."""

    core, kind = layers.DepthwiseConv2D, "depthwise_conv2d"
    _order = (
        *("kernel_size", "strides", "padding", "depth_multiplier", "data_format", "dilation_rate", "activation"),
        *("use_bias", "depthwise_kernel_initializer", "bias_initializer"),
    )

    _names: ClassVar[Mapping[str, str]] = {"W": "depthwise_kernel", "b": "bias"}


class MaxPooling2D(CoreLayer):
    """Keras ``MaxPooling2D``."""

    core, kind = layers.MaxPool2D, "max_pooling2d"
    _order = _POOLING


class AveragePooling2D(CoreLayer):
    """Keras ``AveragePooling2D``."""

    core, kind = layers.AveragePool2D, "average_pooling2d"
    _order = _POOLING


class LayerNormalization(CoreLayer):
    """Keras ``LayerNormalization`` of the last axis."""

    core, kind = layers.LayerNorm, "layer_normalization"
    _order = ("axis", "epsilon", "center", "scale")


class GroupNormalization(CoreLayer):
    """Graphcore's Keras ``GroupNormalization``."""

    core, kind = layers.GroupNorm, "group_normalization"
    _order = ("groups", "axis", "epsilon", "center", "scale")


class InstanceNormalization(CoreLayer):
    """Graphcore's Keras ``InstanceNormalization``."""

    core, kind = layers.InstanceNorm, "instance_normalization"


class Embedding(CoreLayer):
    """Keras ``Embedding``, which takes numbers of other dtypes as whole ones, such as those of an Input's default."""

    core, kind = layers.Embedding, "embedding"
    _order = ("input_dim", "output_dim", "embeddings_initializer")

    _names: ClassVar[Mapping[str, str]] = {"W": "embeddings"}

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        return super()._applied(x if x.dtype.kind in "iu" else cast(x, np.int32), variables, training)


class _OfVersion(RecurrentLayer):
    """A recurrent layer with other defaults in a program for TensorFlow 1, whose Keras has them from before cuDNN."""

    _in_1: ClassVar[Mapping[str, Any]] = {"recurrent_activation": "hard_sigmoid"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the arguments; raises as CoreLayer does."""
        others = self._in_1 if major_version() == 1 else {}
        names = self._order[: len(args)]
        super().__init__(*args, **{name: value for name, value in others.items() if name not in names} | kwargs)


class LSTM(_OfVersion):
    """Keras ``LSTM``."""

    core, kind = layers.LSTM, "lstm"
    _order = (*_RECURRENT, "unit_forget_bias")


class GRU(_OfVersion):
    """Keras ``GRU``."""

    core, kind = layers.GRU, "gru"
    _order = _RECURRENT
    _in_1: ClassVar[Mapping[str, Any]] = {**_OfVersion._in_1, "reset_after": False}


_PLAIN: Final = (
    "Add Average Concatenate GlobalAveragePooling1D GlobalAveragePooling2D GlobalMaxPooling1D GlobalMaxPooling2D "
    "Lambda LeakyReLU Maximum Minimum Multiply Permute RepeatVector Rescaling Softmax Subtract add concatenate"
)
_OFFERED: Final = (
    "Activation AveragePooling2D BatchNormalization Conv1D Conv2D Conv2DTranspose Dense DepthwiseConv2D Dropout "
    "Embedding Flatten GRU GroupNormalization InstanceNormalization LSTM LayerNormalization MaxPooling2D ReLU Reshape"
)
__getattr__, __dir__ = offering(
    "tf.keras.layers",
    in_module(__name__, _OFFERED)
    | in_module("ipusim.ipu.tensorflow.keras.plain_layers", _PLAIN)
    | {"MaxPool2D": f"{__name__}:MaxPooling2D", "AvgPool2D": f"{__name__}:AveragePooling2D"}
    | {"Layer": "ipusim.ipu.tensorflow.keras.layer:Layer"}
    | in_module("ipusim.ipu.tensorflow.keras.graph", "Input InputLayer"),
)
