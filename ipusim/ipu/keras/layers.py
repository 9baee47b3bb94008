"""Graphcore's Keras layers: the core's own, with Graphcore's arguments and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ipusim.api import layers as core_layers
from ipusim.api import models
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime.layers import run
from ipusim.ipu.runtime.pipeline_options import partials_itemsize
from ipusim.ipu.tensorflow.keras import layers
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.recurrent_layer import RecurrentLayer
from ipusim.ipu.tensorflow.rnn_cell import LSTMStateTuple

#: What Keras' weights begin with, where nothing says it.
_DEFAULTS: Final = {
    "embeddings": "uniform",
    "beta": "zeros",
    "gamma": "ones",
    "kernel": "glorot_uniform",
    "recurrent": "orthogonal",
    "bias": "zeros",
}


class Dropout(layers.Dropout):
    """Graphcore's Keras ``Dropout``: masks are drawn by the layer's place, so that ``seed`` has no effect."""

    def __init__(self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any) -> None:
        """Take the share of elements that are 0 in training; raises UnsupportedProgramError for a noise_shape."""
        super().__init__(rate, noise_shape=noise_shape, seed=seed, **kwargs)


class Embedding(layers.Embedding):
    """Graphcore's Keras ``Embedding``."""

    def __init__(self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform", **kwargs: Any) -> None:
        """Take the table's rows and columns, and how it begins."""
        super().__init__(input_dim, output_dim, **_chosen(embeddings=embeddings_initializer), **kwargs)


class GroupNormalization(layers.GroupNormalization):
    """Graphcore's Keras ``GroupNormalization`` of the last axis.

    ``channels_axis`` is -1: channels on another axis are refused.
    """

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
        _check_last("channels_axis", channels_axis)
        super().__init__(**_options(locals(), ["channels_axis"], ["beta", "gamma"]))


class InstanceNormalization(layers.InstanceNormalization):
    """Graphcore's Keras ``InstanceNormalization`` of the last axis.

    ``channels_axis`` is -1: channels on another axis are refused.
    """

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
        _check_last("channels_axis", channels_axis)
        super().__init__(**_options(locals(), ["channels_axis"], ["beta", "gamma"]))


class LayerNormalization(layers.LayerNormalization):
    """Graphcore's Keras ``LayerNormalization`` of the last axis.

    ``axis`` is -1: channels on another axis are refused.
    """

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
        _check_last("axis", axis[0] if axis in ([-1], (-1,)) else axis)
        super().__init__(**_options(locals(), ["axis"], ["beta", "gamma"]))


def _check_last(argument: str, axis: Any) -> None:
    """Refuse another axis than the last; raises UnsupportedProgramError."""
    if axis != -1:
        raise UnsupportedProgramError(f"{argument}: expected -1, the last one, got {axis!r}")


def _options(arguments: Mapping[str, Any], without: Sequence[str], weights: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a constructor for the layer below it, ``without`` some, and ``kwargs`` as they are.

    Initializers of ``weights`` are among them where they are not Keras' defaults.
    """
    options = {**arguments, **arguments.get("kwargs", {})}
    for name in ("self", "__class__", "kwargs", *without):
        options.pop(name, None)
    last = [name for name in ("center", "scale", "epsilon") if name in options]  # in messages
    options |= {name: options.pop(name) for name in last}
    initializers = {name: options.pop(f"{name}_initializer") for name in weights}
    return options | _chosen(**initializers)


def _chosen(**initializers: Any) -> dict[str, Any]:
    """Return initializers as arguments; those that are Keras' defaults are what the core's layer begins with."""
    return {
        f"{name}_initializer": value
        for name, value in initializers.items()
        if value is not None and not (isinstance(value, str) and value == _DEFAULTS[name])
    }


class _Popnn(RecurrentLayer):
    """The options of Graphcore's recurrent layers that Keras' lack: dropout of the input, drawn for each time step."""

    def _popnn(self, arguments: Mapping[str, Any]) -> None:
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported."""
        without = ["seed", "dropout_seed", "implementation"]
        options = _options(arguments, without, ["kernel", "recurrent", "bias"])
        self._partials = partials_itemsize(options.pop("partials_dtype"))
        rate = options.pop("dropout")
        self._dropout = core_layers.Dropout(rate) if rate else None
        super().__init__(**options)

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return super().get_config() | {
            "dropout": self._dropout.rate if self._dropout else 0.0,
            "partials_dtype": f"float{8 * self._partials}",
        }

    def _has_states(self, initial_state: Any) -> bool:
        """Return whether it runs as an operation, which takes states, and partial sums in half precision."""
        return super()._has_states(initial_state) or self._partials == models.PARTIALS_BYTES["half"]

    def _from_state(self, value: Any) -> Sequence[Any]:
        return (value,)

    def _with_state(self, y: Any, states: Sequence[Any]) -> Any:
        return y, states[0]

    @property
    def _draws(self) -> bool:
        """Whether it drops elements in training."""
        return self._dropout is not None

    def _dropped(self, x: Any, training: bool) -> Any:
        if self._dropout is None or not training:
            return x
        return run(self._dropout, x, {}, self.path, self._position if self.in_model else None)


class PopnnLSTM(_Popnn):
    """Graphcore's Keras ``LSTM``.

    Refused: ``kernel_regularizer``, ``recurrent_regularizer``, ``bias_regularizer``, ``activity_regularizer``,
    ``kernel_constraint``, ``recurrent_constraint``, ``bias_constraint``, ``recurrent_dropout``, ``go_backwards`` and
    ``unroll``. Without effect: ``implementation``, and ``seed`` and ``dropout_seed``, as draws are seeded by their
    place in the program.
    """

    core, kind = layers.LSTM.core, "popnn_lstm"

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
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported."""
        self._popnn(locals())

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Return the shapes of both states."""
        units: int = self._layer.units  # type: ignore[attr-defined]
        return [batch_size, units], [batch_size, units]

    def _from_state(self, value: Any) -> Sequence[Any]:
        if not isinstance(value, LSTMStateTuple):
            raise ProgramError(f"Invalid initial_state type: `{type(value)}`, expecting `LSTMStateTuple`.")
        return value.h, value.c

    def _with_state(self, y: Any, states: Sequence[Any]) -> Any:
        return y, LSTMStateTuple(states[1], states[0])


class PopnnGRU(_Popnn):
    """Graphcore's Keras ``GRU``.

    Refused: ``kernel_regularizer``, ``recurrent_regularizer``, ``bias_regularizer``, ``activity_regularizer``,
    ``kernel_constraint``, ``recurrent_constraint``, ``bias_constraint``, ``recurrent_dropout``, ``go_backwards`` and
    ``unroll``. Without effect: ``implementation``, and ``seed`` and ``dropout_seed``, as draws are seeded by their
    place in the program.
    """

    core, kind = layers.GRU.core, "popnn_gru"

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
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported."""
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
        """Return the tensors as they are.

        Without effect: a stage that is a function keeps its inputs alone, and is computed again as a whole.
        """
        return inputs
