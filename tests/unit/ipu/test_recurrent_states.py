"""States of Graphcore's Keras LSTM and GRU: given, returned, and carried from one micro-batch to the next."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from ipusim.hardware.generations import GC200
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.keras import layers
from ipusim.ipu.pipelining_ops import pipeline
from ipusim.ipu.rnn_ops import LSTMStateTuple
from ipusim.ipu.runtime.import_names import install
from ipusim.model.functions.counting import count_several
from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES
from ipusim.pricing.products import plans

RNG = np.random.default_rng(3)
BATCH, STEPS, ELEMENTS, UNITS = 2, 8, 3, 4
X = RNG.normal(size=(BATCH, STEPS, ELEMENTS)).astype(np.float32)
KINDS = [layers.PopnnLSTM, layers.PopnnGRU]


def flat(state):
    return list(state) if isinstance(state, tuple) else [state]


@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_in_two_parts_is_the_whole(kind, sequences):
    """The second part begins with the states behind the first."""
    layer = kind(UNITS, return_sequences=sequences, return_state=True)
    inputs = tf.keras.Input(shape=(STEPS, ELEMENTS))
    model = tf.keras.Model(inputs, layer(inputs)[0])
    whole, last = layer(X)
    first, between = layer(X[:, :2])
    second, end = layer(X[:, 2:], initial_state=between)
    joined = np.concatenate([first, second], axis=1) if sequences else second
    np.testing.assert_allclose(joined, whole, rtol=1e-5)
    for mine, other in zip(flat(end), flat(last), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)
    np.testing.assert_allclose(model.predict(X, batch_size=BATCH), whole, rtol=1e-5)
    assert [tuple(np.shape(each)) for each in flat(last)] == [(BATCH, UNITS)] * (2 if kind is layers.PopnnLSTM else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_states_go_from_layer_to_layer_in_a_model(kind):
    inputs = tf.keras.Input(shape=(STEPS, ELEMENTS))
    encoded, state = kind(UNITS, return_state=True)(inputs)
    decoded = kind(UNITS, return_sequences=True)(inputs, initial_state=state)
    model = tf.keras.Model(inputs, [encoded, decoded])
    first, second = model.layers[-2:]
    y, after = first(X)
    np.testing.assert_allclose(model(X)[0], y, rtol=1e-6)
    np.testing.assert_allclose(model(X)[1], second(X, initial_state=after), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stateful_layer_goes_on_where_the_micro_batch_before_ended(kind):
    """Four micro-batches of two steps each are one sequence of eight; a reset begins anew."""
    layer = kind(UNITS, stateful=True, return_sequences=True, name="rnn")
    inputs = tf.keras.Input(shape=(2, ELEMENTS))
    tf.keras.Model(inputs, layer(inputs))
    parts = [np.ascontiguousarray(part) for part in np.split(X, 4, axis=1)]
    config, outfeed = IPUConfig(), IPUOutfeedQueue()
    config.auto_select_ipus = 2
    pipeline(
        [layer, lambda y: y * 1.0],
        gradient_accumulation_count=4,
        infeed_queue=IPUInfeedQueue(parts * 2),
        outfeed_queue=outfeed,
        config=config,
    )
    found = np.concatenate(list(outfeed.dequeue()[0]), axis=1)
    plain = kind(UNITS, return_sequences=True)
    tf.keras.Sequential([plain]).build((None, STEPS, ELEMENTS))
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(found, plain(X), rtol=1e-5)
    layer.reset_states()
    assert all(not each.numpy().any() for each in layer._carried.values())


def test_states_of_other_forms_are_refused():
    layer = layers.PopnnGRU(UNITS)
    tf.keras.Sequential([layer]).build((None, STEPS, ELEMENTS))
    with pytest.raises(ProgramError, match=r"^initial_state: expected tensors of shape \(2, 4\), got \(2, 3\)"):
        layer(X, initial_state=np.zeros((2, 3), np.float32))
    lstm = layers.PopnnLSTM(UNITS)
    tf.keras.Sequential([lstm]).build((None, STEPS, ELEMENTS))
    with pytest.raises(ProgramError, match="expecting `LSTMStateTuple`"):
        lstm(X, initial_state=[np.zeros((2, 4))] * 2)
    zeros = np.zeros((BATCH, UNITS), np.float32)
    np.testing.assert_allclose(lstm(X, initial_state=LSTMStateTuple(zeros, zeros)), lstm(X))


@pytest.mark.parametrize("kind", KINDS)
def test_partial_sums_in_half_precision_take_less_time_and_compute_the_same(kind):
    """They were taken without effect, as if partial sums were float32 whatever a stage's options say."""
    x = RNG.normal(size=(48, 2, 64)).astype(np.float16)  # NumPy has no fast products in half precision
    cycles, outputs = {}, {}
    for dtype in (np.float32, np.float16):
        layer = kind(64, partials_dtype=dtype, name="rnn")
        inputs = tf.keras.Input(shape=x.shape[1:], dtype=np.float16)
        model = tf.keras.Model(inputs, layer(inputs))
        found = count_several(lambda a, layer=layer: [layer(a)], [x], [0], [0], weights=[], itemsize=2)
        works = [*found.forward, *found.backward]
        assert {work.partials_itemsize for work in works if work.products} == {np.dtype(dtype).itemsize}
        planned = [each for work in works if work.products for each in plans(work, GC200, DEFAULT_PLANNER_RATES)]
        cycles[dtype] = sum(each.plan.cycles * each.times for each in planned)
        outputs[dtype] = model(x[:4])
        assert kind.from_config(layer.get_config()).get_config()["partials_dtype"] == np.dtype(dtype).name
    assert cycles[np.float16] < cycles[np.float32]
    np.testing.assert_array_equal(outputs[np.float16], outputs[np.float32])
    with pytest.raises(ProgramError, match="partials_dtype: expected float16 or float32, got 'float64'"):
        kind(4, partials_dtype=np.float64)


def test_the_lstm_of_the_addons_has_its_states_apart():
    with install():
        addons = import_module("ipu_tensorflow_addons.keras.layers")
        assert addons.LSTM is addons.PopnnLSTM is not layers.PopnnLSTM
        assert addons.PopnnGRU is layers.PopnnGRU
        layer = addons.PopnnLSTM(UNITS, return_state=True)
    tf.keras.Sequential([layer]).build((None, STEPS, ELEMENTS))
    _, h, c = layer(X[:, :2])
    y, *_ = layer(X[:, 2:], initial_state=(h, c))
    np.testing.assert_allclose(y, layer(X)[0], rtol=1e-5)
