"""Cells of ``tf.nn.rnn_cell`` and ``tf.nn.dynamic_rnn``, by their formulas, which TensorFlow 2.15.1 agrees with."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu import loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from tests.effort import sampled

UNITS, BATCH, STEPS, ELEMENTS = 3, 2, 4, 5
X = np.sin(np.arange(STEPS * BATCH * ELEMENTS, dtype=np.float32)).reshape(STEPS, BATCH, ELEMENTS)
LENGTHS = np.array([2, 4], np.int32)
CELLS = tf.nn.rnn_cell.BasicRNNCell, tf.nn.rnn_cell.GRUCell, tf.nn.rnn_cell.BasicLSTMCell


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def stepped(kind, weights, x, state):
    """Return the outputs and the next state of one step, by TensorFlow 1's formulas."""
    if kind is tf.nn.rnn_cell.BasicRNNCell:
        kernel, bias = weights
        h = np.tanh(np.concatenate([x, state], 1) @ kernel + bias)
        return h, h
    if kind is tf.nn.rnn_cell.GRUCell:
        gates, gate_bias, candidate, bias = weights
        r, u = np.split(sigmoid(np.concatenate([x, state], 1) @ gates + gate_bias), 2, 1)
        h = u * state + (1 - u) * np.tanh(np.concatenate([x, r * state], 1) @ candidate + bias)
        return h, h
    kernel, bias = weights
    c, h = state
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, 1)
    c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    h = np.tanh(c) * sigmoid(o)
    return h, (c, h)


def run(kind, time_major=True, lengths=None):
    """Return outputs, last state and variables of one iteration, and those after a step of gradient descent."""
    queue, data = IPUOutfeedQueue(), X if time_major else X.swapaxes(0, 1)

    def body(x):
        outputs, state = tf.nn.dynamic_rnn(kind(UNITS), x, lengths, dtype=tf.float32, time_major=time_major)
        enqueued = queue.enqueue({"outputs": outputs, "state": tf.stack(state) if isinstance(state, tuple) else state})
        return enqueued, tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(outputs * outputs))

    program = loops.repeat(1, body, [], IPUInfeedQueue(tf.data.Dataset.from_tensors(data)))
    sent = {name: np.asarray(array)[0] for name, array in queue.dequeue().items()}
    before = {
        name: array
        for stage in program._layout.functions.traced.stages
        for name, array in stage.stage.variables.items()
    }
    return sent["outputs"] if time_major else sent["outputs"].swapaxes(0, 1), sent["state"], before, program.variables


def chosen(runs, after, before):
    if isinstance(after, tuple):
        return tuple(np.where(runs, *pair) for pair in zip(after, before, strict=True))
    return np.where(runs, after, before)


def by_formula(kind, weights, lengths=None):
    state = np.zeros((BATCH, UNITS))
    state = (state, state) if kind is tf.nn.rnn_cell.BasicLSTMCell else state
    outputs = []
    for step in range(STEPS):
        output, after = stepped(kind, weights, X[step], state)
        runs = np.ones((BATCH, 1), bool) if lengths is None else (step < lengths)[:, None]
        outputs.append(np.where(runs, output, 0))
        state = chosen(runs, after, state)
    return np.stack(outputs), np.stack(state) if isinstance(state, tuple) else state


@sampled(2)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_outputs_states_and_gradients_are_those_of_the_formulas(kind, time_major, lengths):
    outputs, state, before, after = run(kind, time_major, lengths)
    weights = [array.astype(np.float64) for array in before.values()]
    expected, last = by_formula(kind, weights, lengths)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-6)
    for place, (name, array) in enumerate(before.items()):
        for index in np.ndindex(array.shape):
            sums = []
            for step in (1e-5, -1e-5):
                moved = [each.copy() for each in weights]
                moved[place][index] += step
                sums.append(np.sum(by_formula(kind, moved, lengths)[0] ** 2))
            slope = (sums[0] - sums[1]) / 2e-5
            assert array[index] - after[name][index] == pytest.approx(slope, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (CELLS[0], ["rnn/basic_rnn_cell/kernel", "rnn/basic_rnn_cell/bias"]),
        (
            CELLS[1],
            [f"rnn/gru_cell/{part}/{name}" for part in ("gates", "candidate") for name in ("kernel", "bias")],
        ),
        (CELLS[2], ["rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"]),
    ],
)
def test_variables_have_tensorflows_names_and_first_values(kind, names):
    _, _, before, _ = run(kind)
    assert list(before) == names
    assert {name: set(array) for name, array in before.items() if name.endswith("bias")} == {
        name: {1.0 if "gates" in name else 0.0} for name in names if name.endswith("bias")
    }


@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (lambda: CELLS[0](0), ProgramError, "num_units: expected a whole number from 1"),
        (lambda: CELLS[0](3, activation="tanh"), ProgramTypeError, "activation: expected a function"),
        (lambda: CELLS[2](3, state_is_tuple=False), ProgramError, "state_is_tuple: expected True"),
        (lambda: tf.nn.dynamic_rnn(CELLS[0](3), X), ProgramError, "If there is no initial_state, you must give a dty"),
        (
            lambda: tf.nn.dynamic_rnn(CELLS[0](3), X[0], dtype=tf.float32),
            ProgramError,
            "inputs: expected a tensor of t",
        ),
        (lambda: CELLS[0](3)(X, X), ProgramError, "inputs: expected a tensor of two axes"),
    ],
)
def test_what_is_no_cell_is_refused(action, kind, text):
    with pytest.raises(kind, match=text):
        action()
