"""Graphcore's Keras layers: the core's own, with Graphcore's arguments and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.layers import run
from ipusim.ipu.tensorflow import keras_layers
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node
from ipusim.ipu.variable import NamedVariable
from ipusim.model.layers.dropout import Dropout as CoreDropout


class Dropout(keras_layers.Dropout):
    """Graphcore's Keras ``Dropout``: masks are drawn by the layer's place, so that ``seed`` has no effect."""

    def __init__(self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any) -> None:
        """Take the share of elements that are 0 in training; raises UnsupportedProgramError for a noise_shape."""
        super().__init__(rate, noise_shape=noise_shape, seed=seed, **kwargs)


class Embedding(keras_layers.Embedding):
    """Graphcore's Keras ``Embedding``."""

    def __init__(self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform", **kwargs: Any) -> None:
        """Take the table's rows and columns, and how it begins."""
        super().__init__(input_dim, output_dim, **_chosen(embeddings=embeddings_initializer), **kwargs)


class GroupNormalization(keras_layers.GroupNormalization):
    """Graphcore's Keras ``GroupNormalization`` of the last axis."""

    def __init__(
        self,
        dtype: Any = np.float32,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        name: str | None = None,
    ) -> None:
        """Take the arguments; raises UnsupportedProgramError for channels that are not the last axis."""
        super().__init__(
            groups=groups,
            strided_channel_grouping=strided_channel_grouping,
            **_normal(dtype, channels_axis, center, scale, epsilon, trainable, name),
            **_chosen(beta=beta_initializer, gamma=gamma_initializer),
        )


class InstanceNormalization(keras_layers.InstanceNormalization):
    """Graphcore's Keras ``InstanceNormalization`` of the last axis."""

    def __init__(
        self,
        dtype: Any = np.float32,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        trainable: bool = True,
        name: str | None = None,
    ) -> None:
        """Take the arguments; raises UnsupportedProgramError for channels that are not the last axis."""
        super().__init__(
            **_normal(dtype, channels_axis, center, scale, epsilon, trainable, name),
            **_chosen(beta=beta_initializer, gamma=gamma_initializer),
        )


class LayerNormalization(keras_layers.LayerNormalization):
    """Graphcore's Keras ``LayerNormalization`` of the last axis."""

    def __init__(
        self,
        dtype: Any = np.float32,
        axis: Any = -1,
        epsilon: float = 0.001,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the arguments; raises UnsupportedProgramError for another axis."""
        super().__init__(
            **_normal(dtype, axis[0] if axis in ([-1], (-1,)) else axis, center, scale, epsilon, trainable, name),
            **_chosen(beta=beta_initializer, gamma=gamma_initializer),
            **kwargs,
        )


def _normal(
    dtype: Any, axis: Any, center: bool, scale: bool, epsilon: float, trainable: bool, name: str | None
) -> dict[str, Any]:
    """Return the arguments that normalisations have in common; raises UnsupportedProgramError for another axis."""
    if axis != -1:
        raise UnsupportedProgramError(f"channels_axis: expected -1, the last one, got {axis!r}")
    return {
        "dtype": dtype,
        "center": center,
        "scale": scale,
        "epsilon": epsilon,
        "trainable": trainable,
        "name": name,
    }


def _chosen(**initializers: Any) -> dict[str, Any]:
    """Return initializers as arguments; those that are Keras' defaults are what the core's layer begins with."""
    usual = ("uniform", "zeros", "ones", "glorot_uniform", "orthogonal", None)
    return {
        f"{name}_initializer": value
        for name, value in initializers.items()
        if not (value is None or (isinstance(value, str) and value in usual and _is_default(name, value)))
    }


def _is_default(name: str, value: str) -> bool:
    """Tell whether the core's layer begins that way by itself."""
    defaults = {
        "embeddings": "uniform",
        "beta": "zeros",
        "gamma": "ones",
        "kernel": "glorot_uniform",
        "recurrent": "orthogonal",
        "bias": "zeros",
    }
    return defaults[name] == value


class _Popnn(keras_layers.CoreLayer):
    """What Graphcore's recurrent layers have in common."""

    def _popnn(self, arguments: Mapping[str, Any]) -> None:
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported, and for states."""
        given = dict(arguments)
        given |= given.pop("kwargs")
        for name in ("self", "__class__", "seed", "dropout_seed", "implementation", "partials_dtype"):
            given.pop(name, None)
        self._time_major = checks.truth("time_major", given.pop("time_major"))
        rate = given.pop("dropout")
        self._dropout = CoreDropout(rate) if rate else None
        named = {name: given.pop(f"{name}_initializer") for name in ("kernel", "recurrent", "bias")}
        chosen = _chosen(**named)
        if "recurrent_initializer" in chosen:
            chosen["recurrent_kernel_initializer"] = chosen.pop("recurrent_initializer")
        super().__init__(**given, **chosen)

    def build(self, input_shape: Any) -> None:
        """Make the weights, for inputs (batch, time steps, elements), or time steps first where these are."""
        shape = tuple(input_shape)
        if len(shape) != 3:
            checks.wrong_value("input_shape", "three axes", shape)
        super().build((shape[1], shape[0], shape[2]) if self._time_major else shape)

    def call(self, inputs: Any, training: bool | None = None, initial_state: Any = None, **_: Any) -> Any:
        """Return the outputs; raises UnsupportedProgramError for an initial state."""
        if initial_state is not None:
            raise UnsupportedProgramError(
                f"{type(self).__name__}: initial_state is simulated as None alone: see ipu.rnn_ops"
            )
        return self._turned(super().call(self._turned(tensor(inputs)), training=training))

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if self._time_major and not (self.in_model or self.built):
            return self._turned(super()._run(self._turned(tensor(inputs)), *args, training=training, **kwargs))
        return super()._run(inputs, *args, training=training, **kwargs)

    def _gives(self, node: Node) -> KerasTensor:
        if not self._time_major:
            return super()._gives(node)
        raise UnsupportedProgramError(
            f"{type(self).__name__}: time_major is simulated as False alone in a model, whose batch is the first axis"
        )

    def _turned(self, x: Any) -> Any:
        return anp.swapaxes(x, 0, 1) if self._time_major and anp.ndim(x) == 3 else x

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        if self._dropout is not None and training:
            x = run(self._dropout, x, {}, self.path, self._place if self.in_model else None)
        return super()._applied(x, variables, training)


class PopnnLSTM(_Popnn):
    """Graphcore's Keras ``LSTM``; whether partial sums are of half precision has no effect here."""

    core, kind = keras_layers.LSTM.core, "popnn_lstm"

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: None = None,
        recurrent_regularizer: None = None,
        bias_regularizer: None = None,
        activity_regularizer: None = None,
        kernel_constraint: None = None,
        recurrent_constraint: None = None,
        bias_constraint: None = None,
        dropout: float = 0.0,
        dropout_seed: Any = None,
        recurrent_dropout: float = 0.0,
        implementation: int = 1,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        partials_dtype: Any = np.float32,
        seed: int | None = None,
        time_major: bool = False,
        **kwargs: Any,
    ) -> None:
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported, and for states."""
        self._popnn(locals())

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Return the shapes of both states."""
        units: int = self._layer.units  # type: ignore[attr-defined]
        return [batch_size, units], [batch_size, units]


class PopnnGRU(_Popnn):
    """Graphcore's Keras ``GRU``; whether partial sums are of half precision has no effect here."""

    core, kind = keras_layers.GRU.core, "popnn_gru"

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: None = None,
        recurrent_regularizer: None = None,
        bias_regularizer: None = None,
        activity_regularizer: None = None,
        kernel_constraint: None = None,
        recurrent_constraint: None = None,
        bias_constraint: None = None,
        dropout: float = 0.0,
        dropout_seed: Any = None,
        recurrent_dropout: float = 0.0,
        implementation: int = 1,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        reset_after: bool = True,
        seed: int | None = None,
        partials_dtype: Any = np.float32,
        time_major: bool = False,
        **kwargs: Any,
    ) -> None:
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported, and for states."""
        self._popnn(locals())

    def state_shape(self, batch_size: int) -> list[int]:
        """Return the shape of the state."""
        return [batch_size, self._layer.units]  # type: ignore[attr-defined]


LSTM, GRU = PopnnLSTM, PopnnGRU


class RecomputationCheckpoint(Layer):
    """Graphcore's layer that keeps its input under recomputation: without effect, as a stage keeps its own alone."""

    is_plain = True

    def __init__(self, **kwargs: Any) -> None:
        """Take a name."""
        super().__init__(**kwargs)

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Return the tensors as they are."""
        return inputs
