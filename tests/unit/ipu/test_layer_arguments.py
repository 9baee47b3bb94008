"""What an argument of a layer or operation changes that no other test asks for, given another value than by default.

Which name and which argument a test stands for says ``tests/tried_names.csv``.
"""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import ipu_compiler, math_ops, nn_ops, normalization_ops, rnn_ops, statistics_ops
from ipusim.ipu import tensorflow as tf

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(2, 4)).astype(np.float32)
STEPS = RNG.normal(size=(3, 2, 2)).astype(np.float32)  # time steps, batch, elements
SCORES = RNG.normal(size=(4, 2, 3)).astype(np.float32)  # time steps, batch, classes
CTC = {"label_length": [2, 1], "blank_index": 2}
LABELS = np.int32([[0, 0], [1, 1]])


def on_ipu(function, *arrays):
    """Return what a program of one function gives for arrays."""
    program = ipu_compiler.compile(function, list(arrays))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(program)
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


# Normalisations.
FUNCTIONS = [normalization_ops.group_norm, normalization_ops.instance_norm, normalization_ops.layer_norm]
IMAGES = RNG.normal(size=(2, 3, 3, 4)).astype(np.float32)
THREE = tf.constant_initializer(3.0)


def normalised(function, **arguments):
    """Return the outputs, and the names of the variables."""
    outputs = on_ipu(lambda x: function(x, **arguments), IMAGES)
    return outputs, sorted(each.op.name.rpartition("/")[2] for each in tf.global_variables())


def has_a_deviation(outputs, deviation):
    return abs(outputs.std() - deviation) < 0.25 * deviation


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_normalisation_learns_what_it_is_asked_to(function):
    assert normalised(function, center=False)[1] == ["gamma"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_normalisation_scales_where_it_is_asked_to(function):
    assert normalised(function, scale=False)[1] == ["beta"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_normalisation_adds_its_epsilon_to_the_variance(function):
    assert has_a_deviation(normalised(function, epsilon=3.0)[0], 0.5)
    assert has_a_deviation(normalised(function)[0], 1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_normalisations_parameters_begin_as_they_are_told_to(function):
    outputs, _ = normalised(function, param_initializers={"gamma": THREE, "beta": tf.constant_initializer(7.0)})
    assert has_a_deviation(outputs, 3)
    np.testing.assert_allclose(outputs.mean(), 7, atol=1e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_normalisation_that_does_not_train_has_constants(function):
    normalised(function, trainable=False)
    assert tf.trainable_variables() == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_normalisations_variables_are_in_its_scope(function):
    normalised(function, scope="mine")
    assert {each.op.name for each in tf.global_variables()} == {"mine/gamma", "mine/beta"}


@pytest.mark.parametrize("function", [normalization_ops.group_norm, normalization_ops.layer_norm])
def test_the_channels_of_a_normalisation_lie_along_the_axis_that_is_asked_for(function):
    outputs = on_ipu(lambda x: function(tf.transpose(x, (0, 3, 1, 2)), channels_axis=1), IMAGES)
    np.testing.assert_allclose(np.transpose(outputs, (0, 2, 3, 1)), normalised(function)[0], rtol=1e-5)


def test_groups_are_of_strided_channels_or_of_those_side_by_side():
    far = IMAGES * np.float32([1, 1, 100, 100])
    strided, beside = (
        on_ipu(lambda x, s=s: normalization_ops.group_norm(x, strided_channel_grouping=s), far) for s in (True, False)
    )
    assert strided[..., 0].std() < 0.5 < beside[..., 0].std()


# Recurrent layers.
HALF, ONES = tf.constant_initializer(0.5), tf.ones_initializer()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


POPNN = [rnn_ops.PopnnLSTM, rnn_ops.PopnnGRU, rnn_ops.PopnnDynamicGRU, rnn_ops.PopnnAUGRU]


def ran(kind, **arguments):
    """Return the outputs of a recurrent layer of one unit on ones, one step of one sample, and its variables."""
    beside = {
        rnn_ops.PopnnDynamicGRU: (np.int32([1]),),
        rnn_ops.PopnnAUGRU: (np.int32([1]), np.float32([[0.5]])),
    }.get(kind, ())
    outputs = on_ipu(lambda x: kind(1, **arguments)(x, *beside)[0], np.ones((1, 1, 1), np.float32))
    return outputs.item(), {each.op.name: each.numpy() for each in tf.global_variables()}


def after_one_step(kind, gate, candidate):
    if kind is rnn_ops.PopnnLSTM:
        return np.tanh(gate * candidate) * gate
    return (1 - gate * (0.5 if kind is rnn_ops.PopnnAUGRU else 1)) * candidate


@pytest.mark.parametrize("kind", POPNN)
def test_a_recurrent_layer_begins_as_it_is_told_to(kind):
    """A Dynamic GRU's biases begin as Graphcore's do, whatever is given."""
    outputs, variables = ran(kind, weights_initializer=HALF, bias_initializer=HALF, name="mine")
    assert set(variables["mine/kernel"].ravel()) == {0.5}
    if kind in POPNN[:2]:
        assert outputs == pytest.approx(after_one_step(kind, sigmoid(1), np.tanh(1)))


@pytest.mark.parametrize("kind", POPNN)
def test_another_activation_of_a_recurrent_layer(kind):
    gate = sigmoid(2 if kind in POPNN[2:] else 1)
    expected = np.tanh(gate) * gate if kind is rnn_ops.PopnnLSTM else after_one_step(kind, gate, 1)
    found, _ = ran(kind, weights_initializer=ONES, activation="relu")
    assert found == pytest.approx(gate * gate if kind is rnn_ops.PopnnLSTM else expected)


@pytest.mark.parametrize("kind", POPNN)
def test_another_activation_of_a_recurrent_layers_gates(kind):
    gate = np.tanh(2 if kind in POPNN[2:] else 1)
    found, _ = ran(kind, weights_initializer=ONES, recurrent_activation="tanh")
    assert found == pytest.approx(after_one_step(kind, gate, np.tanh(1)))


@pytest.mark.parametrize("kind", POPNN)
def test_a_recurrent_layers_seed_draws_its_kernel(kind):
    drawn = []
    for seed in (1, 1, 2):
        tf.reset_default_graph()
        drawn.append(ran(kind, seed=seed, name="mine")[1]["mine/kernel"].tolist())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("kind", POPNN[:2])
def test_a_recurrent_layer_is_built_and_says_the_shape_of_its_state(kind):
    layer = kind(3, name="mine")

    def built(x):
        layer.build((4, 2, 5))
        return x

    on_ipu(built, ROWS)
    assert {each.op.name: each.shape for each in tf.global_variables()}["mine/kernel"][0] == 8
    assert layer.state_shape(7) == (([7, 3], [7, 3]) if kind is rnn_ops.PopnnLSTM else [7, 3])


DECODERS = pytest.mark.parametrize(
    "decode", [nn_ops.ctc_beam_search_decoder, nn_ops.ctc_beam_search_decoder_with_log_probs]
)


# Losses and searches of labels in order, and of some classes.
@pytest.mark.parametrize(
    "loss",
    [nn_ops.ctc_loss, nn_ops.ctc_loss_v2, nn_ops.ctc_loss_with_log_probs, nn_ops.ctc_loss_with_logits],
    ids=["ctc_loss", "ctc_loss_v2", "ctc_loss_with_log_probs", "ctc_loss_with_logits"],  # of which two are aliases
)
def test_a_loss_of_labels_in_order_has_the_type_that_it_is_asked_for(loss):
    length = "data_length" if loss in (nn_ops.ctc_loss, nn_ops.ctc_loss_with_log_probs) else "logit_length"
    found = on_ipu(
        lambda x: loss(LABELS, x, **CTC, **{length: [4, 4]}, out_dtype=np.float32), SCORES.astype(np.float16)
    )
    assert found.dtype == np.float32


@DECODERS
def test_a_search_gives_so_many_paths_without_the_blank(decode):
    """One beam finds less than many do; the sure class of each step is a label, or the blank."""
    losses, lengths, labels = on_ipu(lambda x: decode(x, [4, 4], top_paths=2), SCORES)
    assert (losses.shape, lengths.shape, labels.shape) == ((2, 2), (2, 2), (2, 2, 4))


@DECODERS
def test_a_search_leaves_out_the_blank_that_is_asked_for(decode):
    sure = np.log(np.float32([0.98, 0.01, 0.01]))[None, None].repeat(4, axis=0)
    lengths = on_ipu(lambda x: decode(x, [4], blank_index=0)[1], sure)
    assert lengths.tolist() == [[0]]


@DECODERS
def test_a_search_with_one_beam_is_a_greedy_one(decode):
    """Class 0 as 0.36 + 0.24 + 0.24 over two steps beats two blanks, which are the likeliest path."""
    scores = np.log(np.float32([[0.4, 0.0001, 0.5999]]))[None].repeat(2, axis=0)
    greedy, wide = (on_ipu(lambda x, n=n: decode(x, [2], beam_width=n)[1], scores) for n in (1, 100))
    assert (greedy.tolist(), wide.tolist()) == ([[0]], [[1]])


@pytest.mark.parametrize("loss", [nn_ops.nce_loss, nn_ops.sampled_softmax_loss])
def test_a_loss_of_some_classes_takes_those_that_are_drawn_for_it(loss):
    table, biases, inputs = np.eye(3, 4, dtype=np.float32), np.zeros(3, np.float32), ROWS
    found = [
        on_ipu(
            lambda x, drawn=drawn: loss(
                table, biases, [[0], [0]], x, 1, 3, sampled_values=([drawn], np.ones((2, 1)), np.ones(1))
            ),
            inputs,
        )
        for drawn in (1, 2)
    ]
    assert found[0].tolist() != found[1].tolist()


def test_a_product_in_parts_of_a_transposed_matrix():
    a, b = RNG.normal(size=(4, 2)).astype(np.float32), RNG.normal(size=(4, 6)).astype(np.float32)
    found = on_ipu(lambda a, b: math_ops.serialized_matmul(a, b, 2, "a_rows_b_columns", transpose_a=True), a, b)
    np.testing.assert_allclose(found, a.T @ b, rtol=1e-5)


def test_gelu_is_approximate_or_exact():
    x = np.float32([1.0])
    assert on_ipu(lambda x: nn_ops.gelu(x, approximate=False), x).item() == pytest.approx(0.841344746, abs=1e-7)
    assert on_ipu(nn_ops.gelu, x).item() == pytest.approx(0.841191990, abs=1e-7)


def test_a_histogram_counts_absolute_values():
    values, levels = np.float32([-3, -1, 2]), np.float32([0])
    assert on_ipu(lambda x: statistics_ops.histogram(x, levels), values).tolist() == [2, 1]
    assert on_ipu(lambda x: statistics_ops.histogram(x, levels, absolute_of_input=True), values).tolist() == [0, 3]


def test_a_histogram_goes_on_counting_absolute_values():
    values, levels, before = np.float32([-3, -1, 2]), np.float32([0]), np.float32([10, 20])
    assert on_ipu(lambda x: statistics_ops.histogram_update(before, x, levels), values).tolist() == [12, 21]
    found = on_ipu(lambda x: statistics_ops.histogram_update(before, x, levels, absolute_of_input=True), values)
    assert found.tolist() == [10, 23]


@pytest.mark.parametrize("kind", POPNN)
def test_a_recurrent_layer_begins_with_the_state_that_it_is_given(kind):
    state = np.ones((1, 1), np.float32)
    given = rnn_ops.LSTMStateTuple(state, state) if kind is rnn_ops.PopnnLSTM else state
    beside = {2: (np.int32([1]),), 3: (np.int32([1]), np.float32([[0.5]]))}.get(POPNN.index(kind), ())

    def run(**arguments):
        tf.reset_default_graph()
        layer = kind(1, weights_initializer=ONES)
        return on_ipu(lambda x: layer(x, *beside, **arguments)[0], np.ones((1, 1, 1), np.float32)).item()

    assert run(initial_state=given) > run()


@pytest.mark.parametrize("kind", POPNN[1:])
def test_a_recurrent_layers_reset_comes_after_the_product_or_before(kind):
    state = np.float32([[1, -2]])
    beside = {2: (np.int32([1]),), 3: (np.int32([1]), np.float32([[0.5]]))}.get(POPNN.index(kind), ())

    def run(**arguments):
        tf.reset_default_graph()
        layer = kind(2, seed=1, **arguments)
        return on_ipu(lambda x: layer(x, *beside, initial_state=state)[0], np.ones((1, 1, 2), np.float32)).tolist()

    assert run(reset_after=True) != run()


def test_an_augru_takes_the_batch_first():
    layers_of = {"seq_len": np.int32([3, 3]), "attention_score": np.full((2, 3), 0.5, np.float32)}

    def run(x, **arguments):
        tf.reset_default_graph()
        layer = rnn_ops.PopnnAUGRU(2, seed=1)
        return on_ipu(lambda x: layer(x, **layers_of, **arguments)[0], x)

    batch_first = np.ascontiguousarray(np.transpose(STEPS, (1, 0, 2)))
    np.testing.assert_array_equal(run(batch_first, time_major=False), run(STEPS))


def test_a_sampled_losss_seed_draws_its_classes():
    table, biases = RNG.normal(size=(50, 4)).astype(np.float32), np.zeros(50, np.float32)
    found = [
        on_ipu(lambda x, s=s: nn_ops.sampled_softmax_loss(table, biases, [[0], [0]], x, 3, 50, seed=s), ROWS).tolist()
        for s in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
