"""Gradients of Graphcore's operations on simulated IPUs, by finite differences: of each input and each variable.

What there is to call is found in the modules, so that a new name is checked, or named here as one that no gradient goes
back through.
"""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from tests.effort import sampled
from tests.programs import hosted_names

RNG = np.random.default_rng(7)


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


X, STEPS, IMAGES, SCORES = drawn(3, 4), drawn(2, 3, 2), drawn(2, 4, 4, 2), drawn(4, 2, 3)
STATE = drawn(2, 3, 2)  # two states of three samples of two units
IDS = np.array([[0, 2], [1, 1], [4, 0]])
LABELS, TRUE = np.array([[0, 0], [1, -1]]), np.array([[0, 1], [2, 2], [5, 3]])
LOG = {"label_length": np.array([2, 1]), "blank_index": 2}
SLICES = [2, 1], [1, 0]
NCE = drawn(6, 4), drawn(6)
SAMPLED = np.array([0, 3, 5]), np.full((3, 2), 0.4, np.float32), np.full(3, 0.7, np.float32)
USERS = """
import numpy as np

def Twice(x, y, attributes):
    assert attributes == "there"
    return np.sin(x) * y, x.sum(axis=0)

def Twice_grad(gradients, outputs, inputs, attributes):
    first, second = gradients
    x, y = inputs
    return [first * np.cos(x) * y + second, first * np.sin(x)]

def Apart(x, y, attributes):
    return np.exp(x * y)

def Apart_grad(place, gradients, outputs, inputs, attributes):
    return gradients[0] * outputs[0] * inputs[1 - place]

def Ahead(x, attributes):
    return 2 * x
"""


def recurrent(kind, *args, **options):
    """A call of one of Graphcore's recurrent layers, on inputs and given states."""

    def call(i, x, *rest):
        outputs, state = getattr(i.rnn_ops, kind)(2, **options)(x, *args, *rest)
        return [outputs, *(state if isinstance(state, tuple) else [state])]

    return call


def of_keras(kind, *args, **options):
    """A call of one of Graphcore's layers for Keras."""
    return lambda i, x: getattr(i.layers, kind)(*args, **options)(x)


def lstm_of_keras(i, x, h, c):
    y, state = i.layers.PopnnLSTM(2, return_state=True)(x, initial_state=i.rnn_ops.LSTMStateTuple(c, h))
    return [y, *state]


def users_operation(operation, name, **options):
    def call(i, x, y):
        outs = {"output_types": [np.float32] * 2, "output_shapes": [(3, 4), (4,)]}
        if name == "Apart":
            outs = {"output_types": [np.float32], "output_shapes": [(3, 4)]}
        return getattr(i.custom_ops, operation)([x, y], i.users, outs=outs, op_name=name, **options)

    return call


def both(i, x, kernel):
    return [i.tf.nn.conv2d(x, kernel, 1, "SAME"), i.tf.nn.conv2d(2 * x, kernel[:1], 2, "VALID")]


#: A use of each name from which gradients go back: a function of the modules and of tensors, and the arrays.
CASES = {
    "custom_ops.cpu_user_operation": (users_operation("cpu_user_operation", "Twice", attributes="there"), X, X[::-1]),
    "custom_ops.precompiled_user_op": (
        users_operation("precompiled_user_op", "Apart", separate_gradients=True),
        X,
        X[::-1],
    ),
    "embedding_ops.embedding_lookup": (lambda i, t: i.embedding_ops.embedding_lookup(t, IDS), drawn(5, 2)),
    "embedding_ops.embedding_lookup in parts": (
        lambda i, t: i.embedding_ops.embedding_lookup(t, IDS, serialization_factor=3),
        drawn(6, 2),
    ),
    "image_ops.normalise_image": (
        lambda i, x, offsets, scales: i.image_ops.normalise_image(x, offsets, scales, 0.5),
        drawn(2, 2, 2, 3),
        drawn(3),
        drawn(3),
    ),
    "math_ops.serialized_matmul": (
        lambda i, a, b: i.math_ops.serialized_matmul(a, b, 2, "a_rows_b_columns"),
        X,
        drawn(4, 3),
    ),
    "math_ops.serialized_matmul of stacks": (
        lambda i, a, b: i.math_ops.serialized_matmul(a, b, 3, "a_columns", transpose_b=True),
        STEPS,
        drawn(2, 4, 2),
    ),
    "nn_ops.ctc_loss": (lambda i, x: i.nn_ops.ctc_loss(LABELS, x, data_length=np.array([4, 2]), **LOG), SCORES),
    "nn_ops.ctc_loss_v2": (lambda i, x: i.nn_ops.ctc_loss_v2(LABELS, x, logit_length=np.array([3, 4]), **LOG), SCORES),
    "nn_ops.ctc_loss_with_log_probs": (
        lambda i, x: i.nn_ops.ctc_loss_with_log_probs(LABELS, x, data_length=np.array([4, 4]), **LOG),
        SCORES,
    ),
    "nn_ops.ctc_loss_with_logits": (
        lambda i, x: i.nn_ops.ctc_loss_with_logits(LABELS, x, logit_length=np.array([4, 1]), **LOG),
        SCORES,
    ),
    "nn_ops.gelu": (lambda i, x: i.nn_ops.gelu(x), X),
    "nn_ops.gelu exactly": (lambda i, x: i.nn_ops.gelu(x, approximate=False), X),
    "nn_ops.hard_sigmoid": (lambda i, x: i.nn_ops.hard_sigmoid(x), X),
    "nn_ops.multi_conv": (
        lambda i, x, y: i.nn_ops.multi_conv(options={"perConvReservedTiles": "50"})(lambda x, y: both(i, x, y))(x, y),
        IMAGES,
        drawn(3, 3, 2, 2),
    ),
    "nn_ops.nce_loss": (
        lambda i, w, b, x: i.nn_ops.nce_loss(w, b, TRUE, x, 3, 6, num_true=2, sampled_values=SAMPLED),
        *NCE,
        X,
    ),
    "nn_ops.sampled_softmax_loss": (
        lambda i, w, b, x: i.nn_ops.sampled_softmax_loss([w[:2], w[2:]], b, TRUE, x, 3, 6, num_true=2, seed=3),
        *NCE,
        X,
    ),
    "nn_ops.swish": (lambda i, x: i.nn_ops.swish(x), X),
    "normalization_ops.group_norm": (lambda i, x: i.normalization_ops.group_norm(x, groups=2), IMAGES),
    "normalization_ops.group_norm of other channels": (
        lambda i, x: i.normalization_ops.group_norm(x, 2, channels_axis=1),
        IMAGES,
    ),
    "normalization_ops.instance_norm": (lambda i, x: i.normalization_ops.instance_norm(x), IMAGES),
    "normalization_ops.instance_norm of constants": (
        lambda i, x: i.normalization_ops.instance_norm(x, channels_axis=-2, trainable=False),
        IMAGES,
    ),
    "normalization_ops.layer_norm": (lambda i, x: i.normalization_ops.layer_norm(x), X),
    "rand_ops.dropout": (lambda i, x: i.rand_ops.dropout(x, 0.4, seed=[1, 2]), X),
    "rand_ops.dropout of rows": (lambda i, x: i.rand_ops.dropout(x, 0.4, noise_shape=[3, 1], seed=[1, 2]), X),
    "rnn_ops.PopnnLSTM": (recurrent("PopnnLSTM"), STEPS),
    "rnn_ops.PopnnLSTM from states": (
        lambda i, x, h, c: recurrent("PopnnLSTM", i.rnn_ops.LSTMStateTuple(c, h))(i, x),
        STEPS,
        *STATE,
    ),
    "rnn_ops.PopnnGRU": (recurrent("PopnnGRU", activation="sigmoid"), STEPS),
    "rnn_ops.PopnnGRU from a state": (recurrent("PopnnGRU", reset_after=True), STEPS, STATE[0]),
    "rnn_ops.PopnnDynamicGRU": (recurrent("PopnnDynamicGRU", np.array([2, 1, 0])), STEPS, STATE[0]),
    "rnn_ops.PopnnDynamicGRU with the batch first": (
        lambda i, x: i.rnn_ops.PopnnDynamicGRU(2, reset_after=True)(x, np.array([3, 1]), time_major=False)[0],
        STEPS,
    ),
    "rnn_ops.PopnnAUGRU": (
        recurrent("PopnnAUGRU", np.array([2, 1, 2])),
        STEPS,
        RNG.uniform(size=(3, 2)).astype(np.float32),
        STATE[0],
    ),
    "slicing_ops.sequence_slice": (
        lambda i, dst, src: i.slicing_ops.sequence_slice(dst, src, *SLICES, [0, 2], False),
        drawn(4, 2),
        drawn(3, 2),
    ),
    "slicing_ops.sequence_slice over itself": (
        lambda i, dst, src: i.slicing_ops.sequence_slice(dst, src, *SLICES, [0, 1], True),
        drawn(4, 2),
        drawn(3, 2),
    ),
    "slicing_ops.sequence_slice_pack": (
        lambda i, dst, src: i.slicing_ops.sequence_slice_pack(dst, src, [2, 1], [1, 3], False),
        drawn(4, 2),
        drawn(3, 2),
    ),
    "slicing_ops.sequence_slice_unpack": (
        lambda i, src: i.slicing_ops.sequence_slice_unpack(src, *SLICES, 4),
        drawn(3, 2),
    ),
    "layers.PopnnLSTM": (of_keras("PopnnLSTM", 2, return_sequences=True, go_backwards=True), STEPS),
    "layers.PopnnLSTM from states": (lstm_of_keras, STEPS.swapaxes(0, 1), *STATE),
    "layers.PopnnGRU": (of_keras("PopnnGRU", 2, recurrent_dropout=0.0, return_sequences=True), STEPS),
    "layers.PopnnGRU backwards": (of_keras("PopnnGRU", 2, go_backwards=True, kernel_regularizer="l2"), STEPS),
    "layers.GroupNormalization": (of_keras("GroupNormalization", 2), IMAGES),
    "layers.InstanceNormalization": (of_keras("InstanceNormalization"), IMAGES),
    "layers.LayerNormalization": (of_keras("LayerNormalization"), X),
}
#: Names that no gradient goes back through, or that are no functions of tensors.
WITHOUT_GRADIENT = {
    *("nn_ops.ctc_beam_search_decoder", "nn_ops.ctc_beam_search_decoder_with_log_probs"),
    *("statistics_ops.fixed_width_bins", "statistics_ops.histogram", "statistics_ops.histogram_update"),
    *("functional_ops.function", "functional_ops.outlined_function"),  # return what they are given
    *("internal_ops.print_tensor", "internal_ops.get_current_iteration_counter", "custom_ops.codelet_expression_op"),
}
#: Tables on the host, which keep their gradients to themselves: tests/unit/ipu/test_host_embedding.py.
OF_HOST = ("HostEmbedding", "HostEmbeddingOptimizerSpec", "HostEmbeddingSGDGAOptimizerSpec", "create_host_embedding")
ELSEWHERE = {f"embedding_ops.{name}" for name in OF_HOST}
MODULES = ("custom_ops", "embedding_ops", "functional_ops", "image_ops", "internal_ops", "math_ops", "nn_ops")
MODULES = (*MODULES, "normalization_ops", "rand_ops", "rnn_ops", "slicing_ops", "statistics_ops")


@pytest.fixture(scope="module")
def i(tmp_path_factory):
    """Graphcore's modules, TensorFlow, and a file of user operations."""
    path = tmp_path_factory.mktemp("users") / "users.py"
    path.write_text(USERS)
    with hosted_names() as names:
        modules = {name: import_module(f"ipusim.ipu.{name}") for name in MODULES}
        yield SimpleNamespace(**modules, layers=import_module("ipusim.ipu.keras.layers"), tf=names.tf, users=str(path))


def test_every_name_has_a_gradient_that_is_checked_or_none_at_all(i):
    offered = {
        f"{module}.{name}"
        for module in MODULES
        for name in getattr(getattr(i, module), "__all__", dir(getattr(i, module)))
        if callable(value := getattr(getattr(i, module), name)) and name[0] != "_"
        if getattr(value, "__module__", "") == f"ipusim.ipu.{module}" and not hasattr(value, "forward")
    }
    known = {case.split()[0] for case in CASES if not case.startswith("layers.")}
    assert offered - known - WITHOUT_GRADIENT - ELSEWHERE == set()
    assert known | ELSEWHERE <= offered


def gradients_of(i, function, arrays):
    """A function of arrays and variables as a scalar on a simulated IPU, its gradients, and names of its variables.

    Returns a call that takes changes of arrays and variables by number, and the number of the values.
    """
    from ipusim.ipu.ipu_compiler import compile  # noqa: PLC0415

    tf, v1 = i.tf, i.tf.compat.v1
    places = [v1.placeholder(each.dtype, each.shape) for each in arrays]
    variables = []

    def computed(*tensors):
        results = tf.nest.flatten(function(i, *tensors))
        draw = np.random.default_rng(1)
        scalar = sum(tf.reduce_sum(each * draw.normal(size=each.shape).astype(np.float32)) for each in results)
        variables.extend(v1.trainable_variables())
        found = tf.gradients(scalar, [*tensors, *variables])
        assert all(each is not None for each in found)
        return [scalar, *map(tf.convert_to_tensor, found)]

    fetched = compile(computed, places)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    draw = np.random.default_rng(3)
    values = [each + 0.3 * draw.normal(size=each.shape) for each in session.run(variables)]
    values = [*arrays, *(each.astype(np.float32) for each in values)]

    def run(place=None, change=0.0):
        now = [each + change if number == place else each for number, each in enumerate(values)]
        for variable, value in zip(variables, now[len(arrays) :], strict=True):
            variable.load(value, session)
        return session.run(fetched, dict(zip(places, now, strict=False)))

    return run, values


@sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(i, case):
    function, *arrays = CASES[case]
    with i.tf.Graph().as_default():
        i.tf.compat.v1.set_random_seed(1)
        run, values = gradients_of(i, function, arrays)
        gradients, step = run()[1:], 4e-3
        for place, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
            way = np.random.default_rng(place).normal(size=value.shape).astype(np.float32)
            slope = (run(place, step * way)[0] - run(place, -step * way)[0]) / (2 * step)
            scale = 1 + np.linalg.norm(gradient) * np.linalg.norm(way)
            np.testing.assert_allclose(np.sum(gradient * way) / scale, slope / scale, atol=1.5e-3, err_msg=str(place))


def test_an_input_without_a_gradient_of_the_users_has_none(i):
    with i.tf.Graph().as_default():
        outs = {"output_types": [np.float32], "output_shapes": [(3, 4)]}
        x, y = i.tf.constant(X), i.tf.constant(X[::-1].copy())
        told = {"op_name": "Apart", "outs": outs, "separate_gradients": True, "inputs_with_gradients": [1]}
        (found,) = i.custom_ops.cpu_user_operation([x, y], i.users, **told)
        first, second = i.tf.gradients(found, [x, y])
        with i.tf.compat.v1.Session() as session:
            np.testing.assert_allclose(session.run(second), np.exp(X * X[::-1]) * X, rtol=1e-5)
            assert first is None or not session.run(first).any()


def test_no_gradient_goes_back_unnoticed_where_there_is_none(i):
    outs = {"output_types": [np.float32], "output_shapes": [(3, 4)]}
    for call, text in (
        (
            lambda x: i.custom_ops.precompiled_user_op([x], i.users, outs=outs, op_name="Ahead")[0],
            "no gradient goes back",
        ),
        (lambda x: i.custom_ops.codelet_expression_op(lambda x: x * x, x), "cannot be used for training"),
    ):
        with i.tf.Graph().as_default(), pytest.raises(ModelError, match=text):
            gradients_of(i, lambda i, x, call=call: call(x), [X])[0]()
