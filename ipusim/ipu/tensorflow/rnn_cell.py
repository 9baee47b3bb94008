"""``tf.nn.rnn_cell`` and ``tf.nn.dynamic_rnn`` of TensorFlow 1: cells, and what calls one for each time step.

Each step is operations of its own, as TensorFlow has them; PopLibs' own layers are in :mod:`ipusim.ipu.rnn_ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.initializers import Constant
from ipusim.ipu.runtime.names import Scope, unique
from ipusim.ipu.runtime.names import scope as around
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.structures import mapped
from ipusim.ipu.tensorflow.activations import logistic, tanh
from ipusim.ipu.tensorflow.array_functions import matmul, tensor
from ipusim.ipu.tensorflow.scoping import AUTO_REUSE, VariableScope, get_variable, variable_scope
from ipusim.ipu.tensorflow.shaping import concat, split, stack, where


class LSTMStateTuple(NamedTuple):
    """TensorFlow's state of an LSTM, each part (batch, units)."""

    c: Any
    h: Any


class RNNCell:
    """A cell: from the inputs of one time step and its state to outputs and the next state.

    Its variables are made when it is first called, in the scope around under its name.
    """

    kind = "rnn_cell"

    def __init__(
        self,
        num_units: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        """Take the units, the activation, tanh by default, and a name; ``reuse`` shares the variables of that name.

        Raises ProgramTypeError and ProgramError for what is none.
        """
        self.num_units = checks.whole("num_units", num_units, 1)
        self._activation = tanh if activation is None else activation
        if not callable(self._activation):
            checks.wrong_type("activation", "a function", activation)
        self._reuse, self._name = reuse, name
        self._dtype = None if dtype is None else checks.dtype("dtype", dtype, "f")
        self._prefix: str | None = None

    @property
    def state_size(self) -> Any:
        """The elements of a state."""
        return self.num_units

    @property
    def output_size(self) -> int:
        """The elements of the outputs."""
        return self.num_units

    def zero_state(self, batch_size: int, dtype: Any) -> Any:
        """Return a state of zeros."""
        kind = checks.dtype("dtype", dtype, "f")
        return mapped(lambda size: np.zeros((batch_size, size), kind), self.state_size)

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the outputs and the next state; raises ProgramError unless inputs have batch and elements as axes."""
        x = tensor(inputs)
        if x.ndim != 2:
            checks.wrong_value("inputs", "a tensor of two axes, batch and elements", x.shape)
        was_called = self._prefix is not None
        if self._prefix is None:
            self._prefix = f"{around().prefix}{unique(self.kind) if self._name is None else self._name}"
        with variable_scope(
            VariableScope(Scope(f"{self._prefix}/")), reuse=AUTO_REUSE if was_called or self._reuse else None
        ):
            return self._step(x, state)

    def _step(self, x: Any, state: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def _product(self, x: Any, state: Any, gates: int = 1, bias: float = 0.0, name: str = "") -> Any:
        """Return the product of inputs and state with the kernel of so many ``gates``, and its bias added."""
        both, units, kind = concat([x, state], 1), gates * self.num_units, self._dtype or x.dtype
        kernel = get_variable(f"{name}kernel", [both.shape[-1], units], kind)
        return matmul(both, kernel) + get_variable(f"{name}bias", [units], kind, Constant(bias))


class BasicRNNCell(RNNCell):
    """The plain cell: its outputs, which are its next state, are the activation of the product."""

    kind = "basic_rnn_cell"

    def _step(self, x: Any, state: Any) -> tuple[Any, Any]:
        output = self._activation(self._product(x, state))
        return output, output


class GRUCell(RNNCell):
    """A gated recurrent unit, whose reset gate comes before the matrix product."""

    kind = "gru_cell"

    def _step(self, x: Any, state: Any) -> tuple[Any, Any]:
        reset, update = split(logistic(self._product(x, state, 2, 1.0, "gates/")), 2, axis=1)
        candidate = self._activation(self._product(x, reset * state, name="candidate/"))
        output = update * state + (1 - update) * candidate
        return output, output


class BasicLSTMCell(RNNCell):
    """A long short-term memory, without peepholes, whose state is a tuple of c and h."""

    kind = "basic_lstm_cell"

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        """Take what a cell takes, and what is added to the forget gate; raises as a cell does."""
        super().__init__(num_units, activation, reuse, name, dtype)
        self._forget_bias = checks.number("forget_bias", forget_bias)
        if not checks.truth("state_is_tuple", state_is_tuple):
            raise ProgramError("state_is_tuple: expected True, as TensorFlow's own warning asks for, got False")

    @property
    def state_size(self) -> Any:
        """The elements of c and h."""
        return LSTMStateTuple(self.num_units, self.num_units)

    def _step(self, x: Any, state: Any) -> tuple[Any, Any]:
        c, h = state
        i, j, f, o = split(self._product(x, h, 4), 4, axis=1)
        c = c * logistic(f + np.asarray(self._forget_bias, x.dtype)) + logistic(i) * self._activation(j)
        h = self._activation(c) * logistic(o)
        return h, LSTMStateTuple(c, h)


def dynamic_rnn(
    cell: RNNCell,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
) -> tuple[Any, Any]:
    """Return the outputs of a cell in all time steps, and its last state.

    Args:
        cell: the cell.
        inputs: (batch, time steps, elements), or with ``time_major`` (time steps, batch, elements), as the outputs.
        sequence_length: the time steps of each sample, behind which outputs are zero and the state stays; all by
            default.
        initial_state: the state before the first step; zeros of ``dtype`` by default.
        dtype: of the state where none is given.
        parallel_iterations, swap_memory: of TensorFlow's own loops; without effect.
        time_major: whether time comes first.
        scope: the name of the scope of the variables; rnn by default.

    Raises ProgramError and ProgramTypeError for what does not go together.
    """
    x = tensor(inputs)
    if x.ndim != 3:
        checks.wrong_value("inputs", "a tensor of three axes, batch, time steps and elements", x.shape)
    axis = 0 if checks.truth("time_major", time_major) else 1
    batch, steps = x.shape[1 - axis], x.shape[axis]
    if initial_state is None and dtype is None:
        raise ProgramError("If there is no initial_state, you must give a dtype.")
    state = cell.zero_state(batch, dtype) if initial_state is None else initial_state
    outputs: list[Any] = []
    with variable_scope(scope or "rnn"):
        for step in range(steps):
            output, after = cell(x[step] if axis == 0 else x[:, step], state)
            if sequence_length is not None:
                runs = np.asarray(step < tensor(sequence_length))[:, None]
                output = where(runs, output, output * 0)
                after = _chosen(runs, after, state)
            outputs.append(output)
            state = after
    return stack(outputs, axis), state


def _chosen(runs: Any, after: Any, before: Any) -> Any:
    """Return the state of samples that still run, and of the others the one before."""
    if isinstance(after, LSTMStateTuple):
        return LSTMStateTuple(*(where(runs, new, old) for new, old in zip(after, before, strict=True)))
    return where(runs, after, before)


__getattr__, __dir__ = offering(
    "tf.nn.rnn_cell",
    in_module(__name__, "BasicLSTMCell BasicRNNCell GRUCell LSTMStateTuple RNNCell"),
)
