"""Graphcore's Keras layers: the core's own, with Graphcore's arguments and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import autograd.numpy as anp
import numpy as np

from ipusim.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.layers import run
from ipusim.ipu.names import program_trains
from ipusim.ipu.operations.continued import ContinuedRecurrence
from ipusim.ipu.rnn_ops import LSTMStateTuple
from ipusim.ipu.stage_options import partials_itemsize
from ipusim.ipu.tensorflow import keras_layers
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import Node
from ipusim.ipu.tensorflow.keras.weight import is_trying, may_change
from ipusim.ipu.variable import NamedVariable, asked_for
from ipusim.model.functions.operation_call import operate
from ipusim.model.functions.variables import check_inside
from ipusim.model.layers import gru, lstm
from ipusim.model.layers.dropout import Dropout as CoreDropout
from ipusim.model.stages.stage_options import PARTIALS_BYTES

#: What Keras' weights begin with, where nothing says it.
_DEFAULTS: Final = {
    "embeddings": "uniform",
    "beta": "zeros",
    "gamma": "ones",
    "kernel": "glorot_uniform",
    "recurrent": "orthogonal",
    "bias": "zeros",
}


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
    return {
        f"{name}_initializer": value
        for name, value in initializers.items()
        if value is not None and not (isinstance(value, str) and value == _DEFAULTS[name])
    }


class _Popnn(keras_layers.CoreLayer):
    """What Graphcore's recurrent layers have in common."""

    def _popnn(self, arguments: Mapping[str, Any]) -> None:
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported."""
        given = dict(arguments)
        given |= given.pop("kwargs")
        for name in ("self", "__class__", "seed", "dropout_seed", "implementation"):
            given.pop(name, None)
        self._partials = partials_itemsize(given.pop("partials_dtype"))
        self._time_major = checks.truth("time_major", given.pop("time_major"))
        self._return_state = checks.truth("return_state", given.pop("return_state"))
        self.stateful = checks.truth("stateful", given.pop("stateful"))
        self._carried: dict[str, NamedVariable] = {}
        rate = given.pop("dropout")
        self._dropout = CoreDropout(rate) if rate else None
        named = {name: given.pop(f"{name}_initializer") for name in ("kernel", "recurrent", "bias")}
        super().__init__(**given, **_chosen(**named))

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return super().get_config() | {
            "dropout": self._dropout.rate if self._dropout else 0.0,
            "time_major": self._time_major,
            "return_state": self._return_state,
            "stateful": self.stateful,
            "partials_dtype": f"float{8 * self._partials}",
        }

    def build(self, input_shape: Any) -> None:
        """Make the weights, for inputs (batch, time steps, elements), or time steps first where these are."""
        shape = tuple(input_shape)
        if len(shape) != 3:
            checks.wrong_value("input_shape", "three axes", shape)
        super().build((None, shape[0] or 1, shape[2]) if self._time_major else shape)  # whose number weights have not

    def call(self, inputs: Any, training: bool | None = None, initial_state: Any = None, **_: Any) -> Any:
        """Return the outputs, and where they were asked for the states behind the last time step.

        Raises ProgramError for an initial state of another form.
        """
        x = self._turned(tensor(inputs))
        if not self._has_states(initial_state):
            return self._turned(super().call(x, training=training))
        return self._continued(x, self._of_model(x), initial_state, training)

    def _has_states(self, initial_state: Any) -> bool:
        """Whether it runs as an operation of Graphcore's, which takes states, and partial sums in half precision."""
        half = self._partials == PARTIALS_BYTES["half"]
        return self._return_state or self.stateful or initial_state is not None or half

    def _continued(self, x: Any, variables: Mapping[str, NamedVariable], given: Any, training: bool | None) -> Any:
        """Run from states: those given, those of the micro-batch before where the layer is stateful, else zeros."""
        layer = self._layer
        assert isinstance(layer, lstm.LSTM | gru.GRU)
        x = self._dropped(x, may_change() and (program_trains() if training is None else bool(training)))
        parameters = {name: each.read_value() for name, each in variables.items()}
        carried = self._carried_states(x) if self.stateful and not is_trying() else ()
        states = self._states(given, x) if given is not None else tuple(each.read_value() for each in carried)
        if not states:
            states = tuple(np.zeros((x.shape[0], layer.units), x.dtype) for _ in range(layer.states))
        operation = ContinuedRecurrence(layer, tuple(parameters), self._partials)
        y, *after = operate(operation, x, *parameters.values(), *states)
        for kept, state in zip(carried, after, strict=False) if may_change() else ():
            kept.assign(state)
        y = self._turned(y)
        return (y, self._as_state(after)) if self._return_state else y

    def _states(self, given: Any, x: Any) -> tuple[Any, ...]:
        """Return given states in the core's order; raises ProgramError for others."""
        shape = (x.shape[0], self._layer.units)  # type: ignore[attr-defined]
        found = self._from_state(given)
        for each in found:
            if tuple(np.shape(each)) != shape:
                checks.wrong_value("initial_state", f"tensors of shape {shape}", np.shape(each))
        return tuple(tensor(each) for each in found)

    def _carried_states(self, x: Any) -> tuple[NamedVariable, ...]:
        """Return the variables that hold the states behind the last micro-batch."""
        zeros = np.zeros((x.shape[0], self._layer.units), x.dtype)  # type: ignore[attr-defined]
        names = [f"{self.path}/state_{place}" for place in range(self._layer.states)]  # type: ignore[attr-defined]
        return tuple(self._carried.setdefault(name, asked_for(name, zeros, False)) for name in names)

    def reset_states(self) -> None:
        """Begin with zeros again."""
        for each in self._carried.values():
            each.set(np.zeros(each.shape, each.dtype))

    def _from_state(self, given: Any) -> tuple[Any, ...]:
        return (given,)

    def _as_state(self, states: Sequence[Any]) -> Any:
        return states[0]

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if self.in_model or self.built or is_trying():
            return super()._run(inputs, *args, training=training, **kwargs)
        x, given = self._turned(tensor(inputs)), (*args, kwargs.pop("initial_state", None))[0]
        if not self._has_states(given):
            return self._turned(super()._run(x, training=training, **kwargs))
        check_inside(self.name)
        self._layer.output_shape(tuple(x.shape[1:]))
        self._settle()
        return self._continued(x, self._of_program(x, self.path), given, training)

    def _gives(self, node: Node) -> Any:
        beside = len(node.args) > 1 or bool(node.kwargs.get("initial_state") is not None)
        tried = self._time_major or self._has_states(None) or beside
        return Layer._gives(self, node) if tried else super()._gives(node)

    def _turned(self, x: Any) -> Any:
        return anp.swapaxes(x, 0, 1) if self._time_major and anp.ndim(x) == 3 else x

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        return super()._applied(self._dropped(x, training), variables, training)

    def _dropped(self, x: Any, training: bool) -> Any:
        if self._dropout is None or not training:
            return x
        return run(self._dropout, x, {}, self.path, self._place if self.in_model else None)


class PopnnLSTM(_Popnn):
    """Graphcore's Keras ``LSTM``."""

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
        """Take the arguments; raises UnsupportedProgramError for what Graphcore calls unsupported."""
        self._popnn(locals())

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Return the shapes of both states."""
        units: int = self._layer.units  # type: ignore[attr-defined]
        return [batch_size, units], [batch_size, units]

    def _from_state(self, given: Any) -> tuple[Any, ...]:
        if not isinstance(given, LSTMStateTuple):
            raise ProgramError(f"Invalid initial_state type: `{type(given)}`, expecting `LSTMStateTuple`.")
        return given.h, given.c

    def _as_state(self, states: Sequence[Any]) -> Any:
        return LSTMStateTuple(states[1], states[0])


class PopnnGRU(_Popnn):
    """Graphcore's Keras ``GRU``."""

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
        """Return the tensors as they are."""
        return inputs
