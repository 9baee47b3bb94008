"""Recurrent layers of Graphcore's ``rnn_ops``, on the core's LSTM and GRU; inputs are (time steps, batch, elements).

Variables are ``popnn_lstm/kernel`` and so on, with Graphcore's gates side by side in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import autograd.numpy as anp
import numpy as np

from ipusim.api import functions, layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.initializers import Constant, GlorotUniform
from ipusim.ipu.runtime.names import inside, scope, unique
from ipusim.ipu.runtime.operations import RecurrentOperation
from ipusim.ipu.runtime.pipeline_options import partials_itemsize
from ipusim.ipu.tensorflow.array_functions import cast, tensor, whole_numbers
from ipusim.ipu.tensorflow.rnn_cell import LSTMStateTuple
from ipusim.ipu.tensorflow.scoping import get_variable


class _Popnn:
    """What the layers have in common: arguments, name, and the kernel and biases as variables."""

    kind: ClassVar[str]
    gates: ClassVar[int]
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
        """Take the number of units and how they compute.

        Beside Graphcore's float16 and float32 float64 is computed too. Raises ProgramError for another dtype,
        ModelError for activations and units that cannot be.
        """
        self.num_units = checks.whole("num_units", num_units, 1)
        self.dtype = checks.dtype("dtype", dtype, "biufc")
        if self.dtype.kind != "f":
            raise ProgramError(f"Only support float16, float32, provided {dtype}")
        self._partials = partials_itemsize(partials_dtype)
        self._weights = GlorotUniform(seed=seed) if weights_initializer is None else weights_initializer
        self._biases = Constant(0.0) if bias_initializer is None else bias_initializer
        self._activations = activation, recurrent_activation
        # An empty one is none, as TensorFlow takes it.
        self._explicit_name = None if name is None else checks.text("name", name) or None
        self._scope: str | None = None
        self._layer()

    @property
    def name(self) -> str:
        """Its name; where none was given, that of its kind until it is called."""
        return self._explicit_name or (self._scope or self.kind).rstrip("/").rpartition("/")[2]

    def build(self, input_shape: Any) -> None:
        """Make the variables for inputs of this shape, (time steps, batch, elements).

        Raises ProgramError for a shape of other axes, or without elements, and ModelError outside of a stage.
        """
        axes = tuple(input_shape)
        if len(axes) != 3:
            raise ProgramError(f"Expecting input_shape with 3 dims, got {len(axes)}")
        if axes[-1] is None:
            raise ProgramError("The last dimension of the inputs to `_PopnnRNN` should be defined. Found `None`.")
        self._variables(int(axes[-1]))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what ``call`` does."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run over the time steps."""
        raise NotImplementedError

    def _layer(self) -> layers.LSTM | layers.GRU:
        """Return the core's layer."""
        return self.core(self.num_units, *self._activations, return_sequences=True, **self._options)

    def _bias_shape(self) -> list[int]:
        return [self.gates, self.num_units]

    def _variables(self, elements: int) -> tuple[Any, Any]:
        """Return kernel and biases."""
        functions.check_inside(self.name)
        called = unique(self.kind) if self._explicit_name is None else self._explicit_name
        if self._scope is None:
            self._scope = f"{scope().prefix}{called}/"
        with inside(replace(scope(), prefix=self._scope, reuse=None)):
            shape = [elements + self.num_units, self.gates * self.num_units]
            return tensor(get_variable("kernel", shape, self.dtype, self._weights)), tensor(self._made_biases())

    def _made_biases(self) -> Any:
        return get_variable("biases", self._bias_shape(), self.dtype, self._biases)

    def _inputs(self, inputs: Any) -> Any:
        x = tensor(inputs)
        if x.ndim != 3:
            raise ProgramError(f"Expecting input_shape with 3 dims, got {x.ndim}")
        return cast(x, self.dtype)

    def _state(self, name: str, value: Any, batch: int) -> Any:
        state = cast(value, self.dtype)
        if state.shape != (batch, self.num_units):
            checks.wrong_value(name, f"a tensor of shape {(batch, self.num_units)}", state.shape)
        return state

    def _run(self, x: Any, beside: tuple[Any, ...], states: tuple[Any, ...]) -> tuple[Any, ...]:
        kernel, biases = self._variables(x.shape[-1])
        operation = RecurrentOperation(self._layer(), bool(states), self._partials)
        return functions.operate(operation, x, kernel, biases, *beside, *states)


class PopnnLSTM(_Popnn):
    """Graphcore's LSTM."""

    kind, gates, core = "popnn_lstm", 4, layers.LSTM

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> tuple[Any, LSTMStateTuple]:
        """Return outputs (time steps, batch, units), and the states after the last step.

        ``training`` has no effect: the layer computes the same in training and in inference.

        Raises ProgramError for an initial state that is no LSTMStateTuple, or of another shape.
        """
        x = self._inputs(inputs)
        if initial_state is not None and not isinstance(initial_state, LSTMStateTuple):
            raise ProgramError(f"Invalid initial_state type: `{type(initial_state)}`, expecting `LSTMStateTuple`.")
        states: tuple[Any, ...] = ()
        if initial_state is not None:
            named = zip("hc", (initial_state.h, initial_state.c), strict=True)
            states = tuple(self._state(f"initial_state.{name}", item, x.shape[1]) for name, item in named)
        outputs, h, c = self._run(x, (), states)
        return outputs, LSTMStateTuple(c, h)

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Return the shapes of c and h."""
        return [batch_size, self.num_units], [batch_size, self.num_units]


class PopnnGRU(_Popnn):
    """Graphcore's GRU."""

    kind, gates, core = "popnn_gru", 3, layers.GRU
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
        """Take what an LSTM does, and whether the reset gate comes after the matrix product; raises as that does."""
        self._reset_after = checks.truth("reset_after", reset_after)
        self._options = {"reset_after": self._reset_after, "masked": self.masked}
        super().__init__(
            num_units,
            dtype,
            partials_dtype,
            seed,
            weights_initializer,
            bias_initializer,
            activation,
            recurrent_activation,
            name,
        )

    def _bias_shape(self) -> list[int]:
        return [self.gates, 2, self.num_units] if self._reset_after else super()._bias_shape()

    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> tuple[Any, Any]:
        """Return outputs (time steps, batch, units), and the state after the last step.

        ``training`` has no effect: the layer computes the same in training and in inference.

        Raises ProgramError for an initial state of another shape.
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
    """Graphcore's GRU on samples of a length of their own each; behind its end outputs and state are zero.

    ``bias_initializer`` has no effect: biases of the gates begin at one and those of the candidate at zero, as
    Graphcore's do.
    """

    kind, masked = "popnn_dynamic_gru", True

    def _made_biases(self) -> Any:
        """Return ones for reset and update gate, and zeros for the candidate, as Graphcore's begin."""
        gates = get_variable("bias_r_u", [2, self.num_units], self.dtype, Constant(1.0))
        candidate = get_variable("bias_c", [1, self.num_units], self.dtype, Constant(0.0))
        biases = anp.concatenate([gates, candidate], axis=0)
        both = anp.expand_dims(biases, 1)
        return anp.concatenate([both, both], axis=1) if self._reset_after else biases

    def call(  # type: ignore[override]
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True, time_major: bool = True
    ) -> tuple[Any, Any]:
        """Return outputs (time steps, batch, units), and the state of the last cell.

        ``training`` has no effect: the layer computes the same in training and in inference.

        ``inputs`` are (batch, time steps, elements) with ``time_major=False``, ``seq_len`` (batch,) whole numbers.
        Raises ProgramError for lengths or states that do not fit.
        """
        x = self._time_first(inputs, time_major)
        outputs, h = self._run(x, (self._lengths(seq_len, x),), self._states(initial_state, x.shape[1]))
        return outputs, h

    def _time_first(self, inputs: Any, time_major: bool) -> Any:
        x = self._inputs(inputs)
        return x if checks.truth("time_major", time_major) else anp.transpose(x, (1, 0, 2))

    def _lengths(self, value: Any, x: Any) -> Any:
        lengths = whole_numbers("seq_len", value)
        if lengths.shape != (x.shape[1],) or lengths.min(initial=0) < 0 or lengths.max(initial=0) > x.shape[0]:
            checks.wrong_value("seq_len", f"{x.shape[1]} lengths from 0 to {x.shape[0]}", lengths)
        return lengths


class PopnnAUGRU(PopnnDynamicGRU):
    """Graphcore's GRU whose update gate attention scores scale (see the core's AUGRU).

    ``bias_initializer`` has no effect: biases of the gates begin at one and those of the candidate at zero, as
    Graphcore's do.
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
        """Return outputs (time steps, batch, units), and the state of the last cell.

        ``training`` has no effect: the layer computes the same in training and in inference.

        ``attention_score`` is (batch, time steps), as Graphcore's reference has it. Raises ProgramError for scores,
        lengths or states that do not fit.
        """
        x = self._time_first(inputs, time_major)
        score = cast(attention_score, self.dtype)
        if score.shape != (x.shape[1], x.shape[0]):
            checks.wrong_value("attention_score", f"a tensor of shape {(x.shape[1], x.shape[0])}", score.shape)
        states = self._states(initial_state, x.shape[1])
        outputs, h = self._run(x, (score, self._lengths(seq_len, x)), states)
        return outputs, h
