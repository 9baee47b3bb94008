"""What an argument of one of Graphcore's operations changes, given another value than by default."""

import numpy as np
import pytest

from tests.traced_training import Lazily, on_ipus

pytestmark = pytest.mark.usefixtures("tf")

nn_ops, normalization_ops, rnn_ops = Lazily("nn_ops"), Lazily("normalization_ops"), Lazily("rnn_ops")
math_ops, statistics_ops = Lazily("math_ops"), Lazily("statistics_ops")
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(2, 4)).astype(np.float32)
STEPS = RNG.normal(size=(3, 2, 2)).astype(np.float32)  # time steps, batch, elements
SCORES = RNG.normal(size=(4, 2, 3)).astype(np.float32)  # time steps, batch, classes
IMAGES = RNG.normal(size=(2, 3, 3, 4)).astype(np.float32)


@pytest.fixture
def built(tf):
    """Returns what a computation returns, and the names and values of its variables, and which of these are trained."""

    def call(build):
        v1, names = tf.compat.v1, {}

        def noted():
            result = build()
            names["all"] = [each.op.name for each in v1.global_variables()]
            names["trained"] = [each.op.name for each in v1.trainable_variables()]
            return result, [each.read_value() for each in v1.global_variables()]

        result, values = on_ipus(noted)
        return result, dict(zip(names["all"], values, strict=True)), names["trained"]

    return call


@pytest.mark.parametrize("function", ["group_norm", "instance_norm", "layer_norm"])
def test_the_arguments_of_a_normalisation(tf, built, function):
    def normalised(**arguments):
        outputs, variables, trained = built(lambda: getattr(normalization_ops, function)(IMAGES, **arguments))
        return outputs, sorted(name.rpartition("/")[2] for name in variables), trained

    def constant(value):
        return tf.compat.v1.constant_initializer(value)

    plain, names, trained = normalised()
    assert (names, len(trained)) == (["beta", "gamma"], 2)
    assert plain.std() == pytest.approx(1, rel=0.1)
    assert normalised(center=False)[1] == ["gamma"]
    assert normalised(scale=False)[1] == ["beta"]
    assert normalised(epsilon=3.0)[0].std() == pytest.approx(0.5, rel=0.25)
    told, *_ = normalised(param_initializers={"gamma": constant(3.0), "beta": constant(7.0)})
    np.testing.assert_allclose(told, 3 * plain + 7, rtol=1e-4, atol=1e-4)
    assert normalised(trainable=False)[2] == []
    assert sorted(normalised(scope="mine")[2]) == ["mine/beta", "mine/gamma"]
    turned = on_ipus(lambda: getattr(normalization_ops, function)(tf.transpose(IMAGES, (0, 3, 1, 2)), channels_axis=1))
    np.testing.assert_allclose(np.transpose(turned, (0, 2, 3, 1)), plain, rtol=1e-5)


@pytest.mark.parametrize("function", ["group_norm", "instance_norm", "layer_norm"])
def test_a_normalisation_reuses_variables_of_its_scope(tf, built, function):
    def twice(reuse):
        normalise, seven = getattr(normalization_ops, function), tf.compat.v1.constant_initializer(7.0)
        first = normalise(IMAGES, param_initializers={"beta": seven}, scope="norm")
        return first, normalise(IMAGES, scope="norm", reuse=reuse)

    (first, second), variables, _ = built(lambda: twice(True))
    np.testing.assert_array_equal(first, second)
    assert first.mean() == pytest.approx(7, abs=1e-4)
    assert sorted(variables) == ["norm/beta", "norm/gamma"]
    with pytest.raises(ValueError, match="Variable norm/gamma already exists"):
        built(lambda: twice(None))


def test_groups_are_of_strided_channels_or_of_those_side_by_side():
    far = IMAGES * np.float32([1, 1, 100, 100])
    strided, beside = (
        on_ipus(lambda s=s: normalization_ops.group_norm(far, strided_channel_grouping=s)) for s in (True, False)
    )
    assert strided[..., 0].std() < 0.5 < beside[..., 0].std()


KINDS = ["PopnnLSTM", "PopnnGRU", "PopnnDynamicGRU", "PopnnAUGRU"]
BESIDE = {"PopnnDynamicGRU": (np.int32([1]),), "PopnnAUGRU": (np.int32([1]), np.float32([[0.5]]))}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("kind", KINDS)
def test_the_arguments_of_a_recurrent_layer(tf, built, kind):
    """One unit on ones, one step of one sample; a dynamic GRU's biases begin as Graphcore's do, whatever is given."""
    lstm, dynamic = kind == "PopnnLSTM", kind in KINDS[2:]
    half, ones = tf.compat.v1.constant_initializer(0.5), tf.compat.v1.ones_initializer()

    def ran(state=None, units=1, **arguments):
        x, named = np.ones((1, 1, 1), np.float32), {} if state is None else {"initial_state": state}
        layer = getattr(rnn_ops, kind)
        outputs, variables, _ = built(lambda: layer(units, **arguments)(x, *BESIDE.get(kind, ()), **named)[0])
        return outputs.ravel().tolist(), variables

    def after_one_step(gate, candidate):
        if lstm:
            return np.tanh(gate * candidate) * gate
        return (1 - gate * (0.5 if kind == "PopnnAUGRU" else 1)) * candidate

    (found,), variables = ran(weights_initializer=half, bias_initializer=half, name="mine")
    assert set(variables["mine/kernel"].ravel()) == {0.5}
    if not dynamic:
        assert found == pytest.approx(after_one_step(sigmoid(1), np.tanh(1)))
    gate = sigmoid(2 if dynamic else 1)
    (found,), _ = ran(weights_initializer=ones, activation="relu")
    assert found == pytest.approx(gate * gate if lstm else after_one_step(gate, 1))
    gate = np.tanh(2 if dynamic else 1)
    (found,), _ = ran(weights_initializer=ones, recurrent_activation="tanh")
    assert found == pytest.approx(after_one_step(gate, np.tanh(1)))
    drawn = [ran(seed=seed, name="mine")[1]["mine/kernel"].tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    state = np.ones((1, 1), np.float32)
    given = rnn_ops.LSTMStateTuple(state, state) if lstm else state
    assert ran(given, weights_initializer=ones)[0] > ran(weights_initializer=ones)[0]
    if not lstm:
        state = np.float32([[1, -2]])
        before, behind = (ran(state, 2, seed=1, reset_after=after)[0] for after in (False, True))
        assert before != behind


def test_an_augru_takes_the_batch_first():
    beside = {"seq_len": np.int32([3, 3]), "attention_score": np.full((2, 3), 0.5, np.float32)}
    first = np.ascontiguousarray(np.transpose(STEPS, (1, 0, 2)))
    np.testing.assert_array_equal(
        on_ipus(lambda: rnn_ops.PopnnAUGRU(2, seed=1)(first, time_major=False, **beside)[0]),
        on_ipus(lambda: rnn_ops.PopnnAUGRU(2, seed=1)(STEPS, **beside)[0]),
    )


@pytest.mark.parametrize("loss", ["ctc_loss", "ctc_loss_v2", "ctc_loss_with_log_probs", "ctc_loss_with_logits"])
def test_a_loss_of_labels_in_order_has_the_type_that_it_is_asked_for(loss):
    length = "data_length" if loss in ("ctc_loss", "ctc_loss_with_log_probs") else "logit_length"
    named = {"label_length": [2, 1], "blank_index": 2, length: [4, 4], "out_dtype": np.float32}
    found = on_ipus(lambda: getattr(nn_ops, loss)(np.int32([[0, 0], [1, 1]]), SCORES.astype(np.float16), **named))
    assert found.dtype == np.float32


@pytest.mark.parametrize("name", ["ctc_beam_search_decoder", "ctc_beam_search_decoder_with_log_probs"])
def test_the_arguments_of_a_search(name):
    """Class 0 as 0.36 + 0.24 + 0.24 over two steps beats two blanks, which are the likeliest path."""

    def decode(*arguments, **named):
        return on_ipus(lambda: getattr(nn_ops, name)(*arguments, **named))

    assert [each.shape for each in decode(SCORES, [4, 4], top_paths=2)] == [(2, 2), (2, 2), (2, 2, 4)]
    sure = np.log(np.float32([0.98, 0.01, 0.01]))[None, None].repeat(4, axis=0)
    assert decode(sure, [4], blank_index=0)[1].tolist() == [[0]]
    scores = np.log(np.float32([[0.4, 0.0001, 0.5999]]))[None].repeat(2, axis=0)
    greedy, wide = (decode(scores, [2], beam_width=n)[1].tolist() for n in (1, 100))
    assert (greedy, wide) == ([[0]], [[1]])


@pytest.mark.parametrize("name", ["nce_loss", "sampled_softmax_loss"])
def test_a_loss_of_some_classes_takes_those_that_are_drawn_for_it(name):
    table, biases = np.eye(3, 4, dtype=np.float32), np.zeros(3, np.float32)
    ones = np.ones((2, 1), np.float32), np.ones(1, np.float32)
    first, second = (
        on_ipus(
            lambda drawn=drawn: getattr(nn_ops, name)(
                table, biases, [[0], [0]], ROWS, 1, 3, sampled_values=(np.int64([drawn]), *ones)
            )
        ).tolist()
        for drawn in (1, 2)
    )
    assert first != second


def test_other_arguments():
    a, b = RNG.normal(size=(4, 2)).astype(np.float32), RNG.normal(size=(4, 6)).astype(np.float32)
    found = on_ipus(lambda: math_ops.serialized_matmul(a, b, 2, "a_rows_b_columns", transpose_a=True))
    np.testing.assert_allclose(found, a.T @ b, rtol=1e-5)
    exact, near = (on_ipus(lambda n=n: nn_ops.gelu(np.float32([1.0]), approximate=n)).item() for n in (False, True))
    assert (exact, near) == (pytest.approx(0.841344746, abs=1e-7), pytest.approx(0.841191990, abs=1e-7))
    values, levels, before = np.float32([-3, -1, 2]), np.float32([0]), np.float32([10, 20])
    for absolute, counts in ((False, [2, 1]), (True, [0, 3])):
        found = on_ipus(lambda a=absolute: statistics_ops.histogram(values, levels, absolute_of_input=a))
        assert found.tolist() == counts
        found = on_ipus(lambda a=absolute: statistics_ops.histogram_update(before, values, levels, absolute_of_input=a))
        assert found.tolist() == [10 + counts[0], 20 + counts[1]]
