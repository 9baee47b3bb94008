"""Define Graphcore's recurrent Keras layers, each one operation if the simulator has the layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ipusim.api import layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.call_checks import arguments_in
from ipusim.ipu.runtime.operations import ContinuedRecurrence
from ipusim.ipu.runtime.pipeline_options import partials_itemsize
from ipusim.ipu.traced.operations import operate

tf = load()
#: Decorator that registers a class for model files, in addition to the classes of tf_keras.
SERIALIZABLE: Final = tf.keras.utils.register_keras_serializable("ipu")
_LSTM: Any = tf.keras.layers.LSTM
_GRU: Any = tf.keras.layers.GRU
LSTMStateTuple: Final = tf.compat.v1.nn.rnn_cell.LSTMStateTuple
#: Simulator's names of Keras' activations, if different.
_ACTIVATIONS: Final = {"linear": "identity"}


class _Popnn:
    """Common base of Graphcore's recurrent layers: arguments, and execution as one operation.

    Every time step draws a new dropout mask for the input. Layers with recurrent dropout, backward direction, masks, or
    an activation that the simulator lacks are computed step by step.
    """

    core: ClassVar[type[layers.LSTM | layers.GRU]]

    def __init__(
        self,
        *,
        kernel_initializer: Any,
        dropout: float,
        dropout_seed: Any,
        implementation: int,
        partials_dtype: Any,
        seed: int | None,
        **kwargs: Any,
    ) -> None:
        """Set the arguments of Graphcore's layer and of Keras' layer.

        Args:
            kernel_initializer: initializer of the input's weights.
            dropout: share of the input's elements to zero in training.
            dropout_seed: without effect: seeds depend on the place in the program.
            implementation: without effect.
            partials_dtype: dtype of the products' partial sums.
            seed: seed of the default initializer of the input's weights.
            kwargs: arguments of Keras' layer.
        """
        self._partials_itemsize = partials_itemsize(partials_dtype)
        self._dropout_rate = dropout
        if kernel_initializer == "glorot_uniform" and seed is not None:
            kernel_initializer = tf.keras.initializers.GlorotUniform(seed)
        super().__init__(kernel_initializer=kernel_initializer, **kwargs)  # type: ignore[call-arg]

    def call(self, inputs: Any, training: Any = None, initial_state: Any = None, mask: Any = None) -> Any:
        """Run the layer over the time steps.

        Args:
            inputs: (batch, time steps, elements), or (time steps, batch, elements) with ``time_major``.
            training: whether to apply dropout to the input.
            initial_state: states before the first time step; zeros by default.
            mask: mask of valid time steps.

        Returns:
            Outputs of all time steps or of the last; with ``return_state``, a list of outputs and states.
        """
        if self._dropout_rate:
            inputs = self._apply_dropout(inputs, training)
        layer = None if mask is not None or isinstance(inputs, tf.RaggedTensor) else self._simulated_layer()
        if layer is None:
            return super().call(inputs, mask=mask, training=training, initial_state=initial_state)  # type: ignore[misc]
        x, states, _ = self._process_inputs(inputs, initial_state, None)  # type: ignore[attr-defined]
        return self._run_as_one(layer, x, states)

    def _apply_dropout(self, inputs: Any, training: Any) -> Any:
        training = tf.keras.backend.learning_phase() if training is None else training

        def drop() -> Any:
            return tf.nn.dropout(inputs, self._dropout_rate)

        if tf.is_tensor(training):
            return tf.cond(tf.cast(training, tf.bool), drop, lambda: tf.identity(inputs))
        return drop() if training else inputs

    def _simulated_layer(self) -> layers.LSTM | layers.GRU | None:
        """Return the simulator's equivalent layer, or None for layers without equivalent."""
        keras_layer: Any = self
        if keras_layer.recurrent_dropout or keras_layer.go_backwards:
            return None
        names = [
            getattr(function, "__name__", "") for function in (keras_layer.activation, keras_layer.recurrent_activation)
        ]
        activations = [_ACTIVATIONS.get(name, name) for name in names]
        if not set(activations) <= set(layers.RECURRENT_ACTIVATIONS):
            return None
        options = {"reset_after": keras_layer.reset_after} if self.core is layers.GRU else {}
        core: Any = self.core
        layer: layers.LSTM | layers.GRU = core(
            keras_layer.units, *activations, keras_layer.use_bias, keras_layer.return_sequences, **options
        )
        return layer

    def _run_as_one(self, layer: layers.LSTM | layers.GRU, x: Any, states: Sequence[Any]) -> Any:
        """Run the layer as one operation of the simulator; return the results of :meth:`call`."""
        keras_layer: Any = self
        if keras_layer.time_major:
            x = tf.transpose(x, [1, 0, 2])
        weights = {"W": keras_layer.cell.kernel, "U": keras_layer.cell.recurrent_kernel}
        if keras_layer.use_bias:
            weights["b"] = keras_layer.cell.bias
        operation = ContinuedRecurrence(layer, tuple(weights), self._partials_itemsize)
        batch, steps, _ = x.shape.as_list()
        final = (x.dtype, [batch, keras_layer.units])
        outputs = (x.dtype, [batch, steps, keras_layer.units]) if keras_layer.return_sequences else final
        values = [tf.cast(tensor, x.dtype) for tensor in (*weights.values(), *states)]
        y, *final_states = operate(operation, [x, *values], [outputs, *[final] * len(states)], layer.kind)
        if keras_layer.stateful:
            pairs = zip(tf.nest.flatten(keras_layer.states), final_states, strict=True)
            keras_layer.add_update([variable.assign(tf.cast(value, variable.dtype)) for variable, value in pairs])
        if keras_layer.time_major and keras_layer.return_sequences:
            y = tf.transpose(y, [1, 0, 2])
        return [y, *final_states] if keras_layer.return_state else y

    def get_config(self) -> dict[str, Any]:
        """Return the layer's arguments."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        return {
            **{name: value for name, value in config.items() if name != "implementation"},
            "dropout": self._dropout_rate,
            "partials_dtype": f"float{8 * self._partials_itemsize}",
        }


@SERIALIZABLE
class StatesApart(_Popnn, _LSTM):  # type: ignore[misc]
    """Graphcore's LSTM with Keras' separate states: takes (h, c), and returns outputs, h and c."""

    core = layers.LSTM

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
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
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
        """Set the arguments of Keras' layer and of Graphcore's layer.

        ``dropout_seed``, ``implementation`` and ``unroll`` have no effect.
        """
        super().__init__(**arguments_in(locals()), **kwargs)

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Return the shapes of both states."""
        return [batch_size, self.units], [batch_size, self.units]


@SERIALIZABLE
class PopnnLSTM(StatesApart):
    """Graphcore's Keras ``LSTM``, with states as an LSTMStateTuple."""

    def __call__(self, inputs: Any, initial_state: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Run the layer over the time steps; see :meth:`call`.

        Raises:
            ProgramError: unless initial_state is an LSTMStateTuple.
        """
        if initial_state is not None:
            if not isinstance(initial_state, LSTMStateTuple):
                raise ProgramError(f"Invalid initial_state type: `{type(initial_state)}`, expecting `LSTMStateTuple`.")
            initial_state = [initial_state.h, initial_state.c]
        results = super().__call__(inputs, initial_state, *args, **kwargs)
        if not self.return_state:
            return results
        outputs, h, c = results
        return outputs, LSTMStateTuple(c, h)


@SERIALIZABLE
class PopnnGRU(_Popnn, _GRU):  # type: ignore[misc]
    """Graphcore's Keras ``GRU``."""

    core = layers.GRU

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
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
        """Set the arguments of Keras' layer and of Graphcore's layer.

        ``dropout_seed``, ``implementation`` and ``unroll`` have no effect.
        """
        super().__init__(**arguments_in(locals()), **kwargs)

    def state_shape(self, batch_size: int) -> list[int]:
        """Return the state's shape."""
        return [batch_size, self.units]
