"""Recurrent layers of Graphcore's ``rnn_ops`` on TensorFlow's graph; inputs are (time steps, batch, elements)."""

from __future__ import annotations

from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu import rnn_ops
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.initializers import Constant
from ipusim.ipu.runtime.operations import RecurrentOperation
from ipusim.ipu.traced.operations import operate

tf = load()
_V1 = tf.compat.v1
LSTMStateTuple = _V1.nn.rnn_cell.LSTMStateTuple


class _OnGraph(rnn_ops._Popnn):
    """The tensors and variables of the layers in TensorFlow's graph."""

    def __init__(self, num_units: int, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of Graphcore's layer."""
        super().__init__(num_units, *args, **kwargs)
        self._variable_scope: Any = None
        names = dict(zip(("dtype", "partials_dtype", "seed", "weights_initializer"), args, strict=False)) | kwargs
        if names.get("weights_initializer") is None:
            self._weights = _V1.glorot_uniform_initializer(names.get("seed"))
        if not callable(self._biases) or isinstance(self._biases, Constant):
            self._biases = _V1.zeros_initializer()

    @property
    def name(self) -> str:
        """Name of the layer: as given, else the name of its variables' scope."""
        if self._variable_scope is None:
            return self._explicit_name or self.kind
        scope: str = self._variable_scope.name
        return scope.rpartition("/")[2]

    def _variables(self, elements: int) -> tuple[Any, Any]:
        """Return kernel and biases."""
        where = self._variable_scope or self._explicit_name
        reuse = None if self._variable_scope is None else True
        with _V1.variable_scope(where, self.kind, reuse=reuse, use_resource=True) as scope:
            self._variable_scope = scope
            shape = [elements + self.num_units, self.gates * self.num_units]
            return _V1.get_variable("kernel", shape, self.dtype, self._weights), self._made_biases()

    def _made_biases(self) -> Any:
        return _V1.get_variable("biases", self._bias_shape(), self.dtype, self._biases)

    def _inputs(self, inputs: Any) -> Any:
        x = tf.convert_to_tensor(inputs)
        if x.shape.rank != 3:
            raise ProgramError(f"Expecting input_shape with 3 dims, got {x.shape.rank}")
        return tf.cast(x, self.dtype)

    def _state(self, name: str, value: Any, batch: int) -> Any:
        state, expected = tf.cast(value, self.dtype), (int(batch), self.num_units)
        if tuple(state.shape.as_list()) != expected:
            checks.wrong_value(name, f"a tensor of shape {expected}", tuple(state.shape.as_list()))
        return state

    def _run(self, x: Any, beside: tuple[Any, ...], states: tuple[Any, ...]) -> tuple[Any, ...]:
        steps, batch, elements = x.shape.as_list()
        kernel, biases = self._variables(elements)
        operation = RecurrentOperation(self._layer(), bool(states), self._partials)
        final = (x.dtype, [batch, self.num_units])
        forms = [(x.dtype, [steps, batch, self.num_units]), *[final] * (2 if self.gates == 4 else 1)]
        return tuple(operate(operation, [x, kernel, biases, *beside, *states], forms, self.kind))


class PopnnLSTM(_OnGraph, rnn_ops.PopnnLSTM):
    """Graphcore's LSTM."""

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> tuple[Any, Any]:
        """Run over the time steps.

        Args:
            inputs: (time steps, batch, elements).
            initial_state: an LSTMStateTuple; zeros by default.
            training: without effect.

        Returns:
            The outputs (time steps, batch, units), and the states behind the last step.

        Raises:
            ProgramError: for an initial state that is no LSTMStateTuple, or of another shape.
        """
        if initial_state is not None and not isinstance(initial_state, LSTMStateTuple):
            raise ProgramError(f"Invalid initial_state type: `{type(initial_state)}`, expecting `LSTMStateTuple`.")
        x = self._inputs(inputs)
        states: tuple[Any, ...] = ()
        if initial_state is not None:
            named = zip("hc", (initial_state.h, initial_state.c), strict=True)
            states = tuple(self._state(f"initial_state.{name}", item, x.shape[1]) for name, item in named)
        outputs, h, c = self._run(x, (), states)
        return outputs, LSTMStateTuple(c, h)


class PopnnGRU(_OnGraph, rnn_ops.PopnnGRU):
    """Graphcore's GRU."""


class _Lengths(_OnGraph, rnn_ops.PopnnDynamicGRU):
    """A GRU on samples of different lengths."""

    def _made_biases(self) -> Any:
        gates = _V1.get_variable("bias_r_u", [2, self.num_units], self.dtype, _V1.ones_initializer())
        candidate = _V1.get_variable("bias_c", [1, self.num_units], self.dtype, _V1.zeros_initializer())
        biases = tf.concat([gates, candidate], axis=0)
        return tf.stack([biases, biases], axis=1) if self._reset_after else biases

    def _time_first(self, inputs: Any, time_major: bool) -> Any:
        x = self._inputs(inputs)
        return x if checks.truth("time_major", time_major) else tf.transpose(x, [1, 0, 2])

    def _lengths(self, value: Any, x: Any) -> Any:
        lengths = tf.convert_to_tensor(value)
        if not lengths.dtype.is_integer:
            checks.wrong_type("seq_len", "whole numbers", value)
        steps, batch, _ = x.shape.as_list()
        known = tf.get_static_value(lengths)
        outside = known is not None and (min(known, default=0) < 0 or max(known, default=0) > steps)
        if lengths.shape.as_list() != [batch] or outside:
            checks.wrong_value("seq_len", f"{batch} lengths from 0 to {steps}", value)
        return tf.cast(lengths, tf.int32)


class PopnnDynamicGRU(_Lengths):
    """Graphcore's GRU on samples of different lengths, with zeros behind the end of a sample."""


class PopnnAUGRU(_Lengths, rnn_ops.PopnnAUGRU):
    """Graphcore's GRU whose update gate attention scores scale."""

    def call(  # type: ignore[override]
        self,
        inputs: Any,
        seq_len: Any,
        attention_score: Any,
        initial_state: Any = None,
        training: bool = True,
        time_major: bool = True,
    ) -> tuple[Any, Any]:
        """Run over the time steps.

        Args:
            inputs: (time steps, batch, elements), with ``time_major=False`` (batch, time steps, elements).
            seq_len: length of each sample.
            attention_score: (batch, time steps).
            initial_state: (batch, units); zeros by default.
            training: without effect.
            time_major: whether time steps come first.

        Raises:
            ProgramError: for scores, lengths or states that do not fit.
        """
        x = self._time_first(inputs, time_major)
        steps, batch, _ = x.shape.as_list()
        score = tf.cast(attention_score, self.dtype)
        if score.shape.as_list() != [batch, steps]:
            checks.wrong_value("attention_score", f"a tensor of shape {(batch, steps)}", tuple(score.shape.as_list()))
        outputs, h = self._run(x, (score, self._lengths(seq_len, x)), self._states(initial_state, batch))
        return outputs, h
