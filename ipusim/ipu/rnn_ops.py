"""Run recurrent layers on TensorFlow's graph: Graphcore's ``rnn_ops``.

Inputs are (time steps, batch, elements). Variables are ``popnn_lstm/kernel`` and so on; the kernel holds the gates side
by side, in Graphcore's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ipusim.api import layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import arguments_in
from ipusim.ipu.runtime.operations import RecurrentOperation
from ipusim.ipu.runtime.pipeline_options import partials_itemsize
from ipusim.ipu.traced.operations import operate

tf = load()
_V1 = tf.compat.v1
LSTMStateTuple = _V1.nn.rnn_cell.LSTMStateTuple


class _Popnn:
    """Base class of recurrent layers: arguments, name, and the variables of kernel and biases.

    Attributes:
        kind: name of the operation, and of the variables' scope.
        gate_count: number of gates.
        core: class of ipusim's layer.
    """

    kind: ClassVar[str]
    gate_count: ClassVar[int]
    core: ClassVar[type[layers.LSTM | layers.GRU]]
    _options: Mapping[str, Any] = {}

    def __init__(
        self,
        num_units: int,
        dtype: Any = np.float32,
        partials_dtype: Any = np.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
    ) -> None:
        """Set the number of units, dtypes, initializers and activations.

        Raises:
            ProgramError: if the dtype is not float16, float32 or float64.
            ModelError: if the units or the activations are not possible.
        """
        self.num_units = checks.whole("num_units", num_units, 1)
        self.dtype = checks.dtype("dtype", dtype, "biufc")
        if self.dtype.kind != "f":
            raise ProgramError(f"Only support float16, float32, provided {dtype}")
        self._partials_itemsize = partials_itemsize(partials_dtype)
        self._weights_initializer = (
            _V1.glorot_uniform_initializer(seed) if weights_initializer is None else weights_initializer
        )
        self._biases_initializer = _V1.zeros_initializer() if bias_initializer is None else bias_initializer
        self._activations = activation, recurrent_activation
        # TensorFlow treats an empty name as no name.
        self._explicit_name = None if name is None else checks.text("name", name) or None
        self._variable_scope: Any = None
        self._layer()  # checks the arguments

    @property
    def name(self) -> str:
        """Name of the layer: the given name, else the name of the variables' scope."""
        if self._variable_scope is None:
            return self._explicit_name or self.kind
        scope: str = self._variable_scope.name
        return scope.rpartition("/")[2]

    def build(self, input_shape: Any) -> None:
        """Create the variables for inputs of this shape, (time steps, batch, elements).

        Raises ProgramError for a shape with another number of axes, or an unknown last axis.
        """
        axes = tuple(input_shape)
        if len(axes) != 3:
            raise ProgramError(f"Expecting input_shape with 3 dims, got {len(axes)}")
        if axes[-1] is None:
            raise ProgramError("The last dimension of the inputs to `_PopnnRNN` should be defined. Found `None`.")
        self._variables(int(axes[-1]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of ``call``."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the layer over the time steps."""
        raise NotImplementedError

    def _layer(self) -> layers.LSTM | layers.GRU:
        """Return ipusim's layer."""
        return self.core(self.num_units, *self._activations, return_sequences=True, **self._options)

    def _bias_shape(self) -> list[int]:
        return [self.gate_count, self.num_units]

    def _variables(self, elements: int) -> tuple[Any, Any]:
        """Return kernel and biases."""
        scope_or_name = self._variable_scope or self._explicit_name
        reuse = None if self._variable_scope is None else True
        with _V1.variable_scope(scope_or_name, self.kind, reuse=reuse, use_resource=True) as scope:
            self._variable_scope = scope
            shape = [elements + self.num_units, self.gate_count * self.num_units]
            return _V1.get_variable("kernel", shape, self.dtype, self._weights_initializer), self._create_biases()

    def _create_biases(self) -> Any:
        return _V1.get_variable("biases", self._bias_shape(), self.dtype, self._biases_initializer)

    def _inputs(self, inputs: Any) -> Any:
        """Return the inputs in the layer's dtype; raises ProgramError for another number of axes."""
        x = tf.convert_to_tensor(inputs)
        if x.shape.rank != 3:
            raise ProgramError(f"Expecting input_shape with 3 dims, got {x.shape.rank}")
        return tf.cast(x, self.dtype)

    def _state(self, name: str, value: Any, batch: int) -> Any:
        """Return a state in the layer's dtype; raises ProgramError for another shape."""
        state, requirement = tf.cast(value, self.dtype), (int(batch), self.num_units)
        if tuple(state.shape.as_list()) != requirement:
            checks.wrong_value(name, f"a tensor of shape {requirement}", tuple(state.shape.as_list()))
        return state

    def _run(self, x: Any, side_inputs: tuple[Any, ...], states: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add the layer's node; return outputs and final states. Side inputs are scores and lengths."""
        steps, batch, elements = x.shape.as_list()
        kernel, biases = self._variables(elements)
        operation = RecurrentOperation(self._layer(), bool(states), self._partials_itemsize)
        final = (x.dtype, [batch, self.num_units])
        forms = [(x.dtype, [steps, batch, self.num_units]), *[final] * (2 if self.gate_count == 4 else 1)]
        return tuple(operate(operation, [x, kernel, biases, *side_inputs, *states], forms, self.kind))


class PopnnLSTM(_Popnn):
    """Graphcore's LSTM."""

    kind, gate_count, core = "popnn_lstm", 4, layers.LSTM

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> tuple[Any, Any]:
        """Run the layer over the time steps.

        Args:
            inputs: (time steps, batch, elements).
            initial_state: an LSTMStateTuple; zeros by default.
            training: without effect.

        Returns:
            The outputs (time steps, batch, units), and the states after the last step.

        Raises:
            ProgramError: if initial_state is not an LSTMStateTuple or has a wrong shape.
        """
        if initial_state is not None and not isinstance(initial_state, LSTMStateTuple):
            raise ProgramError(f"Invalid initial_state type: `{type(initial_state)}`, expecting `LSTMStateTuple`.")
        x = self._inputs(inputs)
        states: tuple[Any, ...] = ()
        if initial_state is not None:
            pairs = zip("hc", (initial_state.h, initial_state.c), strict=True)
            states = tuple(self._state(f"initial_state.{name}", item, x.shape[1]) for name, item in pairs)
        outputs, h, c = self._run(x, (), states)
        return outputs, LSTMStateTuple(c, h)

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Return the shapes of c and h."""
        return [batch_size, self.num_units], [batch_size, self.num_units]


class PopnnGRU(_Popnn):
    """Graphcore's GRU."""

    kind, gate_count, core = "popnn_gru", 3, layers.GRU
    masked: ClassVar[bool] = False

    def __init__(
        self,
        num_units: int,
        dtype: Any = np.float32,
        partials_dtype: Any = np.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
        reset_after: bool = False,
    ) -> None:
        """Set the arguments of PopnnLSTM, and the reset gate's position by ``reset_after``.

        Raises:
            ProgramError: if the dtype is not float16, float32 or float64.
            ModelError: if the units or the activations are not possible.
        """
        self._reset_after = checks.truth("reset_after", reset_after)
        self._options = {"reset_after": self._reset_after, "masked": self.masked}
        arguments = arguments_in(locals())
        del arguments["reset_after"]
        super().__init__(**arguments)

    def _bias_shape(self) -> list[int]:
        return [self.gate_count, 2, self.num_units] if self._reset_after else super()._bias_shape()

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> tuple[Any, Any]:
        """Return outputs (time steps, batch, units), and the state after the last step.

        ``training`` has no effect: training and inference compute the same.

        Raises ProgramError if the initial state has another shape.
        """
        x = self._inputs(inputs)
        outputs, h = self._run(x, (), self._states(initial_state, x.shape[1]))
        return outputs, h

    def _states(self, value: Any, batch: int) -> tuple[Any, ...]:
        return () if value is None else (self._state("initial_state", value, batch),)

    def state_shape(self, batch_size: int) -> list[int]:
        """Return the state's shape."""
        return [batch_size, self.num_units]


class PopnnDynamicGRU(PopnnGRU):
    """Graphcore's GRU with a length per sample; outputs and state are zero after a sample's end.

    ``bias_initializer`` has no effect: as in Graphcore's layer, gate biases start at one and the candidate's biases at
    zero.
    """

    kind, masked = "popnn_dynamic_gru", True

    def _create_biases(self) -> Any:
        gates = _V1.get_variable("bias_r_u", [2, self.num_units], self.dtype, _V1.ones_initializer())
        candidate = _V1.get_variable("bias_c", [1, self.num_units], self.dtype, _V1.zeros_initializer())
        biases = tf.concat([gates, candidate], axis=0)
        return tf.stack([biases, biases], axis=1) if self._reset_after else biases

    def call(  # type: ignore[override]
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True, time_major: bool = True
    ) -> tuple[Any, Any]:
        """Return outputs (time steps, batch, units), and the state after the last step.

        ``training`` has no effect: training and inference compute the same.

        With ``time_major=False``, ``inputs`` are (batch, time steps, elements). ``seq_len`` holds whole numbers
        (batch,). Raises ProgramError if lengths or states do not match.
        """
        x = self._time_first(inputs, time_major)
        outputs, h = self._run(x, (self._lengths(seq_len, x),), self._states(initial_state, x.shape[1]))
        return outputs, h

    def _time_first(self, inputs: Any, time_major: bool) -> Any:
        x = self._inputs(inputs)
        return x if checks.truth("time_major", time_major) else tf.transpose(x, [1, 0, 2])

    def _lengths(self, value: Any, x: Any) -> Any:
        lengths = tf.convert_to_tensor(value)
        if not lengths.dtype.is_integer:
            checks.wrong_type("seq_len", "whole numbers", value)
        steps, batch, _ = x.shape.as_list()
        values = tf.get_static_value(lengths)
        outside = values is not None and (min(values, default=0) < 0 or max(values, default=0) > steps)
        if lengths.shape.as_list() != [batch] or outside:
            checks.wrong_value("seq_len", f"{batch} lengths from 0 to {steps}", value)
        return tf.cast(lengths, tf.int32)


class PopnnAUGRU(PopnnDynamicGRU):
    """Graphcore's GRU with attention scores that scale the update gate (see ``layers.AUGRU``).

    ``bias_initializer`` has no effect: as in Graphcore's layer, gate biases start at one and the candidate's biases at
    zero.
    """

    kind, core = "popnn_augru", layers.AUGRU

    def call(  # type: ignore[override]
        self,
        inputs: Any,
        seq_len: Any,
        attention_score: Any,
        initial_state: Any = None,
        training: bool = True,
        time_major: bool = True,
    ) -> tuple[Any, Any]:
        """Run the layer over the time steps.

        Args:
            inputs: (time steps, batch, elements), or (batch, time steps, elements) with ``time_major=False``.
            seq_len: length per sample.
            attention_score: (batch, time steps).
            initial_state: (batch, units); zeros by default.
            training: without effect.
            time_major: whether time steps come first.

        Raises:
            ProgramError: if scores, lengths or states do not match.
        """
        x = self._time_first(inputs, time_major)
        steps, batch, _ = x.shape.as_list()
        score = tf.cast(attention_score, self.dtype)
        if score.shape.as_list() != [batch, steps]:
            checks.wrong_value("attention_score", f"a tensor of shape {(batch, steps)}", tuple(score.shape.as_list()))
        outputs, h = self._run(x, (score, self._lengths(seq_len, x)), self._states(initial_state, batch))
        return outputs, h
