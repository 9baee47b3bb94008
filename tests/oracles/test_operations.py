"""Operations of Graphcore's API against second formulations: all alignments, SciPy, NumPy, Graphcore's own samples."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, log_softmax, logsumexp

from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.ctc import CTC
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.lstm import LSTM
from ipusim.model.work import VectorWork, Work
from tests.formulas import gru, lstm
from tests.programs import tensorflow
from tests.traced_training import Lazily, OnIpus, on_ipus, profile_of

RNG = np.random.default_rng(11)
image_ops, math_ops, nn_ops = OnIpus("image_ops"), OnIpus("math_ops"), OnIpus("nn_ops")
slicing_ops, statistics_ops, custom_ops = OnIpus("slicing_ops"), OnIpus("statistics_ops"), OnIpus("custom_ops")
rnn_ops, functions = Lazily("rnn_ops"), Lazily("nn_ops")


def alignments(log_probabilities, blank):
    """Return the log probability of each text that is read, summed over all alignments of it, one by one."""
    steps, classes = log_probabilities.shape
    found = {}
    for path in itertools.product(range(classes), repeat=steps):
        text = tuple(each for each, _ in itertools.groupby(path) if each != blank)
        found.setdefault(text, []).append(sum(log_probabilities[step, each] for step, each in enumerate(path)))
    return {text: logsumexp(each) for text, each in found.items()}


@pytest.mark.parametrize("blank", [0, 2, 3])
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_the_loss_of_sequences_is_that_of_all_alignments(blank, steps):
    scores = RNG.normal(size=(5, 4, 4))
    letters = [each for each in range(4) if each != blank]
    texts = [(), (letters[0],), (letters[1], letters[2]), (letters[1], letters[1])]
    lengths = np.array([len(text) for text in texts])
    times = np.maximum(steps, [0, 1, 2, 3])
    labels = np.array([[*text, *[9] * (3 - len(text))] for text in texts])  # what stands behind counts for nothing
    found = nn_ops.ctc_loss_v2(labels, scores, lengths, times, blank)
    logs = log_softmax(scores, axis=-1)
    right = [
        -alignments(logs[:time, at], blank)[text] for at, (text, time) in enumerate(zip(texts, times, strict=True))
    ]
    np.testing.assert_allclose(found, right, rtol=1e-12)
    of_logs = nn_ops.ctc_loss_with_log_probs(labels, logs, lengths, times, blank)
    np.testing.assert_allclose(of_logs, right, rtol=1e-12)


@pytest.mark.parametrize("blank", [-1, 0])
def test_a_search_with_room_finds_the_likeliest_texts(blank):
    scores = 2 * RNG.normal(size=(4, 3, 3))
    lengths = np.array([4, 2, 0])
    losses, sizes, labels = nn_ops.ctc_beam_search_decoder(scores, lengths, 100, 5, blank)
    logs = log_softmax(scores, axis=-1)
    for sample, steps in enumerate(lengths):
        right = sorted(alignments(logs[:steps, sample], blank % 3).items(), key=lambda each: -each[1])[:5]
        texts = [tuple(row[:size]) for row, size in zip(labels[sample], sizes[sample], strict=True)]
        assert texts[: len(right)] == [text for text, _ in right]
        np.testing.assert_allclose(losses[sample, : len(right)], [-score for _, score in right], rtol=1e-10)
        assert all(
            row[size:].tolist() == [-1] * (4 - size) for row, size in zip(labels[sample], sizes[sample], strict=True)
        )
    assert np.isinf(losses[2, 1:]).all()
    again = nn_ops.ctc_beam_search_decoder_with_log_probs(logs, lengths, 100, 5, blank)
    for one, other in zip((losses, sizes, labels), again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_a_narrow_search_keeps_as_many_beams_as_it_may():
    """The sample of Graves et al.: the best path reads as nothing, the likeliest text is a."""
    logs = np.log(np.array([[[0.4, 0.6]], [[0.4, 0.6]]]))
    losses, sizes, labels = nn_ops.ctc_beam_search_decoder_with_log_probs(logs, [2], beam_width=2)
    assert (sizes.tolist(), labels.tolist()) == ([[1]], [[[0, -1]]])
    assert losses[0, 0] == pytest.approx(-np.log(0.64))
    _, narrow, _ = nn_ops.ctc_beam_search_decoder_with_log_probs(logs, [2], beam_width=1)
    assert narrow.tolist() == [[0]]


def in_core_order(kernel, biases, elements, places, units):
    """Take Graphcore's kernel and biases apart gate by gate, in the core's order."""
    gates = [kernel[:, place * units : (place + 1) * units] for place in places]
    W, U = (np.concatenate([gate[part] for gate in gates], axis=1) for part in (slice(elements), slice(elements, None)))
    return W, U, np.concatenate([biases[place] for place in places], axis=-1)


def with_variables(build):
    """Return results of a computation, and the values of its variables in the order of their making."""
    v1 = tensorflow().compat.v1
    return on_ipus(lambda: (build(), [each.read_value() for each in v1.trainable_variables()]))


def test_recurrent_layers_are_the_formulas_of_graphcores_kernels():
    x, units = RNG.normal(size=(5, 2, 3)), 4
    first = np.swapaxes(x, 0, 1)

    def whole_and_in_two_parts():
        """The second part begins with the states behind the first."""
        layer = rnn_ops.PopnnLSTM(units, np.float64, seed=3)
        before, middle = layer(x[:2])
        return layer(x), before, *layer(x[2:], rnn_ops.LSTMStateTuple(middle.c, middle.h))

    ((outputs, state), before, after, end), variables = with_variables(whole_and_in_two_parts)
    W, U, b = in_core_order(*variables, 3, (1, 0, 2, 3), units)
    right = np.swapaxes(lstm(first, W, U, b), 0, 1)
    np.testing.assert_allclose(outputs, right, rtol=1e-12)
    np.testing.assert_array_equal(state.h, outputs[-1])
    np.testing.assert_allclose(np.concatenate([before, after]), right, rtol=1e-12)
    np.testing.assert_allclose(end.c, state.c, rtol=1e-12)
    lengths, score = np.array([5, 2]), RNG.uniform(size=(2, 5))
    mask = (np.arange(5) < lengths[:, None])[..., None]
    for kind, given, beside in (
        ("PopnnGRU", (), {}),
        ("PopnnDynamicGRU", (lengths,), {"masked": True}),
        ("PopnnAUGRU", (lengths, score), {"masked": True, "attended": True}),
    ):
        for after in (False, True):
            layer = getattr(rnn_ops, kind)
            (outputs, h), (kernel, *biases) = with_variables(
                lambda layer=layer, given=given, after=after: layer(units, np.float64, seed=3, reset_after=after)(
                    x, *given
                )
            )
            bias = np.concatenate(biases)
            if after and kind != "PopnnGRU":
                bias = np.stack([bias, bias], axis=1)
            W, U, b = in_core_order(kernel, bias, 3, (1, 0, 2), units)
            whole = np.concatenate(
                [first, *([score[..., None]] if len(given) > 1 else []), *([mask] * bool(given))], -1
            )
            right = np.swapaxes(gru(whole, W, U, b, after, **beside), 0, 1)
            np.testing.assert_allclose(outputs, right, rtol=1e-12, atol=1e-15)
            np.testing.assert_array_equal(h, outputs[-1])


@pytest.mark.parametrize(
    ("kind", "options", "beside", "core", "elements"),
    [
        ("PopnnLSTM", {}, 0, LSTM(4, return_sequences=True), 3),
        ("PopnnGRU", {}, 0, GRU(4, return_sequences=True, reset_after=False), 3),
        ("PopnnDynamicGRU", {"reset_after": True}, 1, GRU(4, return_sequences=True, masked=True), 4),
        ("PopnnAUGRU", {}, 2, AUGRU(4, return_sequences=True, reset_after=False, masked=True), 5),
    ],
)
def test_recurrent_layers_cost_what_the_cores_do(kind, options, beside, core, elements):
    def run(tf, x, lengths, scores):
        return getattr(rnn_ops, kind)(4, **options)(tf.transpose(x, [1, 0, 2]), *[lengths, scores][:beside])[0]

    x = RNG.normal(size=(2, 5, 3)).astype(np.float32)
    stage = profile_of(run, x, np.full(2, 5, np.int32), np.ones((2, 5), np.float32))
    cost = core.cost((5, elements), 2, 4)
    assert cost.forward in stage.forward
    assert cost.backward in stage.backward


def test_ctc_costs_what_the_cores_does():
    def run(tf, x, labels):
        return functions.ctc_loss_v2(labels, tf.transpose(x, [1, 0, 2]), [2, 1], [5, 4], -1)

    stage = profile_of(run, RNG.normal(size=(2, 5, 4)).astype(np.float32), np.zeros((2, 2), np.int32))
    cost = CTC(2, -1, timed=True).cost((5, 4), 2, 4)
    assert cost.forward in stage.forward
    assert cost.backward in stage.backward


@pytest.mark.parametrize("log_probabilities", [False, True])
def test_ctc_costs_what_its_states_and_outputs_come_to(log_probabilities):
    """2 samples, 5 time steps, 4 classes, 2 labels: 40 outputs and 2 * 5 * 5 states, counted from the docstring."""
    cost = CTC(2, log_probabilities=log_probabilities).cost((5, 4), 2, 4)
    # Of a state: three logarithms are summed as two and two, by a maximum, a difference, a sum, exp and log.
    summed = VectorWork(50 * (2 * 3 + 1), transcendentals=50 * 2 * 2)
    softmax = VectorWork(0) if log_probabilities else VectorWork(40, reductions=80, transcendentals=40)
    assert cost.forward == Work(
        vector=summed + softmax + VectorWork(reductions=2),
        sram_bytes=4 * (2 * 40 + 2 * 50),
        exchange_bytes=4 * (40 + 50),
        compute_sets=5 + 2 + (0 if log_probabilities else 5),
    )
    assert cost.backward == Work(
        vector=summed + VectorWork(50 + 2 * 40, reductions=50, transcendentals=50),
        sram_bytes=4 * (2 * 40 + 3 * 50),
        exchange_bytes=4 * (40 + 50),
        compute_sets=5 + 3,
    )


#: Of Graphcore's own tests of histograms: values, levels, and counts.
HISTOGRAMS = [
    ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], [0.25, 0.5, 0.75, 1.0], False, [2, 2, 3, 2, 1]),
    ([0, 0, 0, 1, 2, 5, 6, 6, 0, 10], [5, 10], False, [6, 3, 1]),
    ([0, 0, 0], [-1, 1], False, [0, 3, 0]),
    ([-0.1, 0.2, -0.3, 0.4, -0.5, 0.6, -0.7, 0.8, -0.9, 1.0], [0.25, 0.5, 0.75, 1.0], True, [2, 2, 3, 2, 1]),
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("values", "levels", "absolute", "counts"), HISTOGRAMS)
def test_histograms_are_those_of_graphcores_tests(values, levels, absolute, counts, dtype):
    given = np.array(values, dtype), np.array(levels, dtype)
    found = statistics_ops.histogram(*given, absolute)
    assert (found.dtype, found.tolist()) == (np.float32, counts)
    for _ in range(2):
        found = statistics_ops.histogram_update(found, *given, absolute)
    assert found.tolist() == [3 * count for count in counts]


def test_bins_of_one_width_are_those_of_numpy():
    values = RNG.normal(size=1000)
    levels = statistics_ops.fixed_width_bins(values, 12)
    np.testing.assert_array_equal(levels, np.linspace(values.min(), values.max(), 12))


def test_slices_are_those_of_graphcores_reference():
    src = np.repeat(np.arange(6.0), 6).reshape(6, 6)
    found = slicing_ops.sequence_slice(np.zeros((6, 6)), src, [2, 2], [2, 1], [0, 4], False)
    assert found[:, 0].tolist() == [2, 3, 0, 0, 1, 2]
    packed = slicing_ops.sequence_slice_pack(np.zeros((6, 6)), src[[2, 3, 1, 2]], [2, 2], [2, 1], False)
    assert packed[:, 0].tolist() == [0, 1, 2, 3, 0, 0]
    unpacked = slicing_ops.sequence_slice_unpack(src, [2, 2], [2, 1], 4)
    assert unpacked[:, 0].tolist() == [2, 3, 1, 2]
    kept = slicing_ops.sequence_slice(np.full((4, 2), 7), np.ones((3, 2), int), [1], [0], [2], False)
    zeroed = slicing_ops.sequence_slice(np.full((4, 2), 7), np.ones((3, 2), int), [1], [0], [2], True)
    assert (kept[:, 0].tolist(), zeroed[:, 0].tolist()) == ([7, 7, 1, 7], [0, 0, 1, 0])
    assert kept.dtype == int


def test_outside_of_computations_the_host_runs_an_operation(tf):
    from ipusim.ipu.slicing_ops import sequence_slice  # noqa: PLC0415

    rows = np.arange(6.0).reshape(6, 1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        found = session.run(sequence_slice(np.zeros((6, 1)), rows, [2, 1], [1, 4], [0, 5], False))
    assert np.ravel(found).tolist() == [1, 2, 0, 0, 0, 4]


def test_results_of_a_computation_come_in_its_structure(tf):
    from ipusim.ipu.ipu_compiler import compile  # noqa: PLC0415

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        one, two = tf.constant(1), tf.constant(2)
        structures = (lambda: {"b": two, "a": one}, lambda: (one, tf.no_op()), lambda: one * 5, tf.no_op)
        assert [session.run(compile(build)) for build in structures] == [{"b": 2, "a": 1}, (1,), (5,), None]


def test_activations_and_expressions_are_their_formulas(tf):
    x = np.linspace(-4, 4, 33)
    for name, right in {
        "swish": x / (1 + np.exp(-x)),
        "hard_sigmoid": np.clip(0.2 * x + 0.5, 0, 1),
        "gelu": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    }.items():
        found = on_ipus(lambda name=name: getattr(functions, name)(tf.constant(x)))
        np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-9)
    found = custom_ops.codelet_expression_op(lambda a, b: a * b + 1, np.float32([1, 2]), np.float32([[3], [4]]))
    np.testing.assert_array_equal(found, [[4, 7], [5, 9]])


def test_images_are_normalised_by_graphcores_formula():
    image = RNG.integers(0, 256, (2, 3, 4, 3)).astype(np.uint8)
    offsets, scales = np.array([1, 2, 3], np.float32), np.array([0.5, 0.25, 2], np.float32)
    found = image_ops.normalise_image(image, offsets, scales, 1 / 8)
    assert (found.dtype, found.shape) == (np.float16, (2, 3, 4, 4))
    right = [(image[..., c] / 8 - offsets[c]) * scales[c] for c in range(3)]
    np.testing.assert_allclose(found[..., :3], np.stack(right, -1), rtol=2e-3, atol=1e-2)
    assert not found[..., 3].any()
    of_floats = image_ops.normalise_image(image.astype(np.float32), offsets, scales, 1 / 8)
    np.testing.assert_allclose(of_floats[..., :3], np.stack(right, -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dimension", ["a_columns", "a_rows_b_columns", "b_rows"])
def test_serialized_products_are_products(dimension):
    a, b = RNG.normal(size=(2, 3, 6, 4)), RNG.normal(size=(2, 3, 4, 2))
    found = math_ops.serialized_matmul(a, b, 2, dimension)
    np.testing.assert_allclose(found, a @ b, rtol=1e-12)
    turned = math_ops.serialized_matmul(a.swapaxes(2, 3), b.swapaxes(2, 3), 2, dimension, True, True)
    np.testing.assert_allclose(turned, a @ b, rtol=1e-12)


def test_parts_of_a_product_in_half_precision_are_added_in_float32():
    """The half precision number after 2048 is 2050."""
    a, b = np.array([[2048, 1, 1]], np.float16), np.ones((3, 1), np.float16)
    found = math_ops.serialized_matmul(a, b, 3, "a_rows_b_columns")
    assert (found.dtype, np.ravel(found).tolist()) == (np.float16, [2050])


def test_sampled_losses_are_their_formulas():
    weights, biases, x = RNG.normal(size=(8, 3)), RNG.normal(size=8), RNG.normal(size=(2, 3))
    labels = np.array([[0, 1], [5, 2]])
    sampled = np.array([3, 0, 7]), np.array([[0.5, 0.25], [0.1, 0.2]]), np.array([0.3, 0.5, 0.05])
    arguments = weights, biases, labels, x, 3, 8, 2, sampled
    scores = x @ weights.T + biases
    own = np.stack([scores[row, labels[row]] for row in range(2)]) - np.log(sampled[1])
    others = scores[:, sampled[0]] - np.log(sampled[2])
    both = np.concatenate([own, others], axis=1)
    # Half of the target is each of two true classes.
    cross = -(np.log(expit(both)) * [0.5, 0.5, 0, 0, 0] + np.log(expit(-both)) * [0.5, 0.5, 1, 1, 1]).sum(axis=1)
    found = nn_ops.nce_loss(*arguments)
    np.testing.assert_allclose(found, cross, rtol=1e-6)
    found = nn_ops.sampled_softmax_loss(*arguments)
    np.testing.assert_allclose(found, -log_softmax(both, axis=1)[:, :2].mean(axis=1), rtol=1e-6)
