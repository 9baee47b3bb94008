"""Layers in Keras' names: each is the core's own, so that it costs what it costs in a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.tensorflow.array_functions import cast
from ipusim.ipu.tensorflow.keras.batch_normalization import BatchNormalization
from ipusim.ipu.tensorflow.keras.core_layer import CoreLayer
from ipusim.ipu.tensorflow.keras.plain_layers import (
    Add,
    Average,
    Concatenate,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    Lambda,
    LeakyReLU,
    Maximum,
    Minimum,
    Multiply,
    Permute,
    RepeatVector,
    Rescaling,
    Softmax,
    Subtract,
    add,
    concatenate,
)
from ipusim.ipu.tensorflow.keras.recurrent_layer import RecurrentLayer
from ipusim.ipu.tensorflow.offered import found_in, offering
from ipusim.ipu.variable import NamedVariable
from ipusim.model.layers import convolution, depthwise, dropout, embedding, gru, layers, lstm, normalisation, pooling

__all__ = [
    "Add",
    "Average",
    "BatchNormalization",
    "Concatenate",
    "CoreLayer",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "Lambda",
    "LeakyReLU",
    "Maximum",
    "Minimum",
    "Multiply",
    "Permute",
    "RepeatVector",
    "Rescaling",
    "Softmax",
    "Subtract",
    "add",
    "concatenate",
]


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

    core, kind = dropout.Dropout, "dropout"
    _order = ("rate", "noise_shape", "seed")

    def _given(self, x: Any, variables: Mapping[str, NamedVariable], training: bool | None) -> Any:
        """Return ``x`` as it is where a call says that it is no training."""
        return super()._given(x, variables, training) if training is None or training else x


class Conv2D(CoreLayer):
    """Keras ``Conv2D``."""

    core, kind = convolution.Conv2D, "conv2d"
    _order = (*_CONVOLUTION, "activation", "use_bias", *_INITIALIZERS)


class Conv1D(CoreLayer):
    """Keras ``Conv1D``."""

    core, kind = convolution.Conv1D, "conv1d"
    _order = (*_CONVOLUTION, "activation", "use_bias", *_INITIALIZERS)
    _axes = 1


class DepthwiseConv2D(CoreLayer):
    """Keras ``DepthwiseConv2D``."""

    core, kind = depthwise.DepthwiseConv2D, "depthwise_conv2d"
    _order = (
        *("kernel_size", "strides", "padding", "depth_multiplier", "data_format", "dilation_rate", "activation"),
        *("use_bias", "depthwise_kernel_initializer", "bias_initializer"),
    )

    def _names(self) -> dict[str, str]:
        return {"W": "depthwise_kernel", "b": "bias"}


class MaxPooling2D(CoreLayer):
    """Keras ``MaxPooling2D``."""

    core, kind = pooling.MaxPool2D, "max_pooling2d"
    _order = _POOLING


class AveragePooling2D(CoreLayer):
    """Keras ``AveragePooling2D``."""

    core, kind = pooling.AveragePool2D, "average_pooling2d"
    _order = _POOLING


class LayerNormalization(CoreLayer):
    """Keras ``LayerNormalization`` of the last axis."""

    core, kind = normalisation.LayerNorm, "layer_normalization"
    _order = ("axis", "epsilon", "center", "scale")


class GroupNormalization(CoreLayer):
    """Graphcore's Keras ``GroupNormalization``."""

    core, kind = normalisation.GroupNorm, "group_normalization"
    _order = ("groups", "axis", "epsilon", "center", "scale")


class InstanceNormalization(CoreLayer):
    """Graphcore's Keras ``InstanceNormalization``."""

    core, kind = normalisation.InstanceNorm, "instance_normalization"


class Embedding(CoreLayer):
    """Keras ``Embedding``, which takes numbers of other dtypes as whole ones, such as those of an Input's default."""

    core, kind = embedding.Embedding, "embedding"
    _order = ("input_dim", "output_dim", "embeddings_initializer")

    def _names(self) -> dict[str, str]:
        return {"W": "embeddings"}

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        return super()._applied(x if x.dtype.kind in "iu" else cast(x, np.int32), variables, training)


class LSTM(RecurrentLayer):
    """Keras ``LSTM``."""

    core, kind = lstm.LSTM, "lstm"
    _order = (*_RECURRENT, "unit_forget_bias")


class GRU(RecurrentLayer):
    """Keras ``GRU``."""

    core, kind = gru.GRU, "gru"
    _order = _RECURRENT


_OFFERED: Final = (
    "Activation Add Average AveragePooling2D BatchNormalization Concatenate Conv1D Conv2D Dense DepthwiseConv2D "
    "Dropout Embedding Flatten GRU GlobalAveragePooling1D GlobalAveragePooling2D GlobalMaxPooling1D "
    "GlobalMaxPooling2D GroupNormalization InstanceNormalization LSTM Lambda LayerNormalization LeakyReLU "
    "MaxPooling2D Maximum Minimum Multiply Permute ReLU RepeatVector Rescaling Reshape Softmax Subtract add "
    "concatenate"
)
__getattr__, __dir__ = offering(
    "tf.keras.layers",
    found_in(__name__, _OFFERED)
    | {"MaxPool2D": f"{__name__}:MaxPooling2D", "AvgPool2D": f"{__name__}:AveragePooling2D"}
    | {"Layer": "ipusim.ipu.tensorflow.keras.layer:Layer"}
    | found_in("ipusim.ipu.tensorflow.keras.input_layer", "Input InputLayer"),
)
