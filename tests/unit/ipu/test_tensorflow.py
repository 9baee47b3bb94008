"""The module in TensorFlow's place: gradients of its functions, variables, sessions, datasets, and what it lacks."""

from __future__ import annotations

import contextvars
import inspect
import itertools
from functools import partial

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad

from ipusim import ipu
from ipusim.base.errors import ModelError, ProgramError, ProgramStateError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import embedding_ops, ipu_compiler, nn_ops, normalization_ops, rand_ops, rnn_ops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, RecomputationMode, pipeline
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss, concrete
from ipusim.ipu.tensorflow import array_functions, control_flow, own_gradients, shaping
from ipusim.ipu.tensorflow.buffer_dataset import BufferDataset
from tests.special_points import assert_gradient, with_special_points

RNG = np.random.default_rng(7)
X = with_special_points(RNG.normal(size=(4, 3)))
POSITIVE = np.abs(X) + 0.5
IMAGES = with_special_points(RNG.normal(size=(2, 6, 6, 3)))
LABELS = np.array([0, 2, 1, 1])

#: A use of each function with a gradient: from an array, to an array.
DIFFERENTIABLE = {
    "abs": (tf.abs, X),
    "add": (lambda x: tf.add(x, 2 * x), X),
    "add_n": (lambda x: tf.add_n([x, x * x, x]), X),
    "broadcast_to": (lambda x: tf.broadcast_to(x, (2, 4, 3)), X),
    "cast": (lambda x: tf.cast(x, tf.float64), X),
    "clip_by_value": (lambda x: tf.clip_by_value(x, -0.5, 0.5), X),
    "concat": (lambda x: tf.concat([x, x * x], 1), X),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) > 100.0, lambda: x, lambda: x * x), X),
    "convert_to_tensor": (tf.convert_to_tensor, X),
    "cos": (tf.cos, X),
    "custom_gradient": (tf.custom_gradient(lambda x: (tf.exp(x), lambda dy: dy * tf.exp(x))), X),
    "divide": (lambda x: tf.divide(1.0, x), POSITIVE),
    "truediv": (lambda x: tf.truediv(1.0, x), POSITIVE),
    "einsum": (lambda x: tf.einsum("ij,kj->ik", x, x), X),
    "exp": (tf.exp, X),
    "expand_dims": (lambda x: tf.expand_dims(x, 1), X),
    "gather": (lambda x: tf.gather(x, np.array([[0, 2], [2, 1]])), X),
    "gather along": (lambda x: tf.gather(x, np.array([0, 2, 2]), axis=1), X),
    "identity": (tf.identity, X),
    "log": (tf.log, POSITIVE),
    "log1p": (tf.log1p, POSITIVE),
    "matmul": (lambda x: tf.matmul(x, x, transpose_b=True), X),
    "maximum": (lambda x: tf.maximum(x, 0.1), X),
    "minimum": (lambda x: tf.minimum(x, 0.1), X),
    "multiply": (lambda x: tf.multiply(x, x), X),
    "negative": (tf.negative, X),
    "pad": (lambda x: tf.pad(x, [[1, 0], [0, 2]], constant_values=3.0), X),
    "pad by reflection": (lambda x: tf.pad(x, [[1, 2], [2, 0]], "REFLECT"), X),
    "pow": (lambda x: tf.pow(x, 3.0), X),
    "reduce_max": (lambda x: tf.reduce_max(x, axis=1), X),
    "reduce_mean": (lambda x: tf.reduce_mean(x, axis=[0]), X),
    "reduce_min": (tf.reduce_min, X),
    "reduce_prod": (lambda x: tf.reduce_prod(x, axis=1), X),
    "reduce_sum": (lambda x: tf.reduce_sum(x, keepdims=True), X),
    "reshape": (lambda x: tf.reshape(x, (2, 6)), X),
    "reverse": (lambda x: tf.reverse(x, [0, -1]), X),
    "sigmoid": (tf.sigmoid, X),
    "sin": (tf.sin, X),
    "slice": (lambda x: tf.slice(x, [1, 0], [-1, 2]), X),
    "split": (lambda x: tf.split(x, [1, 2], axis=1)[1], X),
    "sqrt": (tf.sqrt, POSITIVE),
    "square": (tf.square, X),
    "squared_difference": (lambda x: concrete(tf.squared_difference(x, np.ones((4, 3)))), X),
    "squeeze": (lambda x: tf.squeeze(x, [0]), X[None]),
    "stack": (lambda x: tf.stack([x, 2 * x]), X),
    "strided_slice": (lambda x: tf.strided_slice(x, [0, 1], [4, 2], [3, 1]), X),
    "subtract": (lambda x: tf.subtract(1.0, x), X),
    "tanh": (tf.tanh, X),
    "tensordot": (lambda x: tf.tensordot(x, x, [[0], [0]]), X),
    "tile": (lambda x: tf.tile(x, [2, 1]), X),
    "transpose": (tf.transpose, X),
    "unstack": (lambda x: tf.unstack(x)[1], X),
    "while_loop": (lambda x: tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), [0, x])[1], X),
    "where": (lambda x: tf.where(x > 0, x, 2 * x), X),
    "nn.avg_pool": (lambda x: tf.nn.avg_pool(x, [1, 2, 2, 1], 2, "VALID"), IMAGES),
    "nn.bias_add": (lambda x: tf.nn.bias_add(x, np.ones(3)), X),
    "nn.conv2d": (lambda x: tf.nn.conv2d(x, RNG_KERNEL, [1, 2, 2, 1], "SAME"), IMAGES),
    "nn.dropout": (lambda x: tf.nn.dropout(x, rate=0.5), X),
    "nn.embedding_lookup": (lambda x: tf.nn.embedding_lookup(x, LABELS), X),
    "nn.gelu": (tf.nn.gelu, X),
    "nn.compute_average_loss": (tf.nn.compute_average_loss, X),
    "nn.elu": (tf.nn.elu, X),
    "nn.leaky_relu": (tf.nn.leaky_relu, X),
    "nn.relu6": (lambda x: tf.nn.relu6(8 * x), X),
    "nn.selu": (tf.nn.selu, X),
    "nn.softplus": (tf.nn.softplus, X),
    "nn.softsign": (tf.nn.softsign, X),
    "nn.l2_loss": (tf.nn.l2_loss, X),
    "nn.log_softmax": (tf.nn.log_softmax, X),
    "nn.max_pool": (lambda x: tf.nn.max_pool(x, 2, 2, "VALID"), IMAGES),
    "nn.dynamic_rnn": (
        lambda x: tf.nn.dynamic_rnn(lambda now, last: (tf.tanh(now + last),) * 2, x[:, None], None, x * 0)[0],
        X,
    ),
    "nn.moments": (lambda x: tf.nn.moments(x, [0])[1], X),
    "nn.relu": (tf.nn.relu, X),
    "nn.sigmoid": (tf.nn.sigmoid, X),
    "nn.sigmoid_cross_entropy_with_logits": (
        lambda x: tf.nn.sigmoid_cross_entropy_with_logits(labels=np.ones((4, 3)), logits=x),
        X,
    ),
    "nn.silu": (tf.nn.silu, X),
    "nn.softmax": (tf.nn.softmax, X),
    "nn.softmax_cross_entropy_with_logits": (
        lambda x: tf.nn.softmax_cross_entropy_with_logits(labels=np.eye(3)[LABELS], logits=x),
        X,
    ),
    "nn.softmax_cross_entropy_with_logits_v2": (
        lambda x: tf.nn.softmax_cross_entropy_with_logits_v2(labels=np.eye(3)[LABELS], logits=x),
        X,
    ),
    "nn.sparse_softmax_cross_entropy_with_logits": (
        lambda x: concrete(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=x)),
        X,
    ),
    "nn.swish": (tf.nn.swish, X),
    "nn_ops.gelu": (nn_ops.gelu, X),
    "nn_ops.gelu exactly": (lambda x: nn_ops.gelu(x, approximate=False), X),
    "nn_ops.hard_sigmoid": (nn_ops.hard_sigmoid, X),
    "nn_ops.swish": (nn_ops.swish, X),
    "embedding_ops.embedding_lookup": (lambda x: embedding_ops.embedding_lookup(x, LABELS), X),
    "nn.tanh": (tf.nn.tanh, X),
    "nn.xw_plus_b": (lambda x: tf.nn.xw_plus_b(x, x.T, np.ones(4)), X),
    "mean of cross entropy": (
        lambda x: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=x)),
        X,
    ),
    "mean of squared errors": (lambda x: tf.reduce_mean(tf.squared_difference(np.ones((4, 3)), x)), X),
    "losses.mean_squared_error": (lambda x: tf.losses.mean_squared_error(np.ones((4, 3)), x), X),
    "losses.sparse_softmax_cross_entropy": (lambda x: tf.losses.sparse_softmax_cross_entropy(LABELS, x), X),
}
RNG_KERNEL = RNG.normal(size=(3, 3, 3, 2))
#: Those whose results are whole numbers, truth values, forms, or arrays of no others; and one that stops gradients.
WITHOUT_GRADIENT = {
    *("argmax", "argmin", "constant", "equal", "eye", "fill", "greater", "greater_equal", "less", "less_equal"),
    *("linspace", "logical_and", "logical_not", "logical_or", "not_equal", "one_hot", "ones", "ones_like", "range"),
    *("rank", "round", "shape", "sign", "size", "stop_gradient", "zeros", "zeros_like"),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_gradient_of_each_function_is_that_of_finite_differences(name):
    function, x = DIFFERENTIABLE[name]
    weights = np.random.default_rng(1).normal(size=np.shape(function(x)))

    def value(x):
        return anp.sum(function(x) * weights)

    moved = x.copy()
    assert_gradient(grad(value)(x), lambda: value(moved), moved, rtol=1e-5, atol=2e-7)


def test_every_function_has_a_gradient_that_is_checked_or_none_at_all():
    known = {name.split()[0] for name in DIFFERENTIABLE} | WITHOUT_GRADIENT
    homes = {each.__name__ for each in (array_functions, shaping, control_flow, own_gradients)}
    here = {name for name in dir(tf) if inspect.isfunction(getattr(tf, name)) and getattr(tf, name).__module__ in homes}
    offered = {f"nn.{name}" for name in dir(tf.nn) if not inspect.ismodule(getattr(tf.nn, name))} | here
    assert offered - known == set()


ON_HOST = {
    "argmax": lambda x: tf.argmax(x, 1),
    "matmul": lambda x: tf.matmul(x, x, transpose_b=True),
    "einsum": lambda x: tf.einsum("ij,ik->jk", x, x),
    "tensordot": lambda x: tf.tensordot(x, np.ones((3, 2), np.float32), 1),
    "reshape": lambda x: tf.reshape(x, [3, 2]),
    "transpose": tf.transpose,
    "squeeze of expand_dims": lambda x: tf.squeeze(tf.expand_dims(x, 0)),
    "concat": lambda x: tf.concat([x, np.zeros((1, 3), np.float32), x], 0),
    "stack": lambda x: tf.stack([x, x], axis=1),
    "unstack": tf.unstack,
    "split": lambda x: tf.split(x, [1, 2], axis=1),
    "tile": lambda x: tf.tile(x, [1, 2]),
    "broadcast_to": lambda x: tf.broadcast_to(x, [2, 2, 3]),
    "gather": lambda x: tf.gather(x, [1, 1, 0]),
    "gather by it": lambda x: tf.gather(np.arange(9), tf.cast(x, np.int32)),
    "pad": lambda x: tf.pad(x, [[0, 1], [2, 0]], "SYMMETRIC"),
    "slice": lambda x: tf.slice(x, [0, 1], [2, -1]),
    "strided_slice": lambda x: tf.strided_slice(x, [0, 0], [2, 3], [1, 2]),
    "reverse": lambda x: tf.reverse(x, [1]),
    "cond": lambda x: tf.cond(tf.reduce_sum(x) > 3.0, lambda: [x, 2 * x], lambda: [x * x, x]),
    "while_loop": lambda x: tf.while_loop(lambda x: tf.reduce_sum(x) < 99.0, lambda x: 2 * x, [x]),
    "where": lambda x: tf.where(x > 1, x, -x) if isinstance(x, np.ndarray) else tf.where(tf.greater(x, 1.0), x, -x),
    "one_hot": lambda x: tf.one_hot(tf.cast(x, np.int32), 6),
    "softmax": tf.nn.softmax,
    "log_softmax": lambda x: tf.nn.log_softmax(logits=x),
    "l2_loss": tf.nn.l2_loss,
    "moments": lambda x: list(tf.nn.moments(x, [0])),
    "compared": lambda x: tf.where(x > 2.0, x, -x),
    "bias_add": lambda x: tf.nn.bias_add(x, np.ones(3, np.float32)),
}


@pytest.mark.parametrize("name", ON_HOST)
def test_functions_take_tensors_of_a_session(name):
    """Each run gives what the function gives of the value that is fed, in the form that the first trial has."""
    x, function = np.arange(6, dtype=np.float32).reshape(2, 3), ON_HOST[name]
    fed = tf.placeholder(np.float32, (2, 3))
    with tf.Session() as session:
        found = session.run(function(fed), {fed: x})
    wanted = function(x)
    if not isinstance(wanted, list):
        found, wanted = [found], [wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parts_of_tensors_of_a_session():
    x, fed = np.arange(6, dtype=np.float32).reshape(2, 3), tf.placeholder(np.float32, (2, 3))
    with tf.Session() as session:
        for key in (1, -1, (slice(None), 2), (..., 0), slice(0, 1)):
            np.testing.assert_array_equal(session.run(fed[key], {fed: x}), x[key])
    with pytest.raises(ProgramError, match=r"^getitem: expected tensors that go together, got IndexError: index 2"):
        fed[2]
    with pytest.raises(ProgramTypeError, match=r"^iterating over `tf\.Tensor` is not allowed"):
        list(fed)
    assert [float(each) for each in tf.Variable(np.ones(2, np.float32))] == [1, 1]


def test_elements_of_an_outfeed_are_picked_when_they_have_come():
    data = tf.data.Dataset.from_tensor_slices(np.arange(4, dtype=np.float32)).repeat()
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(4, outfeed.enqueue, [], infeed))
    sent = outfeed.dequeue()
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(loop)
        assert session.run(sent[3]) == 3
        session.run(loop)
        with pytest.raises(
            ProgramError, match=r"^getitem: .* IndexError: index 9 is out of bounds for axis 0 with size 4"
        ):
            session.run(sent[9])


@pytest.mark.parametrize("grouped", [lambda a, b: (a, b), lambda a, b: ([a, b],), lambda a, b: ({"a": a, "b": [b]},)])
def test_a_group_does_what_stands_in_its_lists(grouped):
    one, two = (tf.Variable(np.zeros(2, np.float32), trainable=False, name=name) for name in ("one", "two"))
    tf.disable_eager_execution()
    changes = [variable.assign_add(np.ones(2, np.float32)) for variable in (one, two)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.group(*grouped(*changes)))
        np.testing.assert_array_equal(session.run([one, two]), np.ones((2, 2)))


@pytest.mark.parametrize("combine", [tf.reduce_mean, tf.reduce_sum, lambda losses: tf.reduce_sum(losses * np.ones(3))])
def test_labels_that_logits_do_not_have_are_refused_whatever_becomes_of_the_losses(combine):
    def losses(labels):
        logits = np.ones((3, 4), np.float32)
        return combine(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    for label in (4, -1):
        with pytest.raises(
            ModelError, match=f"^softmax cross entropy on 4 logits needs labels from 0 to 3, got label {label}"
        ):
            losses([0, label, 1])
    with pytest.raises(
        ProgramError, match=r"^labels: expected as many as logits of shape \(3, 4\) have rows, got \(2,\)"
    ):
        losses([0, 1])
    assert float(losses([0, 3, 1])) > 0


def test_arrays_that_do_not_go_together_are_refused_in_our_words():
    with pytest.raises(ProgramError, match=r"^reshape: expected tensors that go together, got ValueError: cannot resh"):
        tf.reshape(np.ones(3), [2])
    with pytest.raises(ProgramError, match=r"^concat: expected tensors that go together, got ValueError"):
        tf.concat([tf.placeholder(np.float32, (2, 3)), np.ones(3)], 0)
    with pytest.raises(ProgramTypeError, match=r"^transpose: expected tensors that go together, got TypeError"):
        tf.transpose(np.ones((2, 2)), perm={})


THREE, FIVE, NO_ROW = np.ones((2, 3), np.float32), np.ones((2, 5), np.float32), np.float32(1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tf.nn.softmax(x, axis=2), "softmax: expected tensors that go together, got AxisError"),
        (lambda x: tf.keras.activations.softmax(x, axis=2), "softmax: expected tensors that go together, got AxisErr"),
        (lambda x: tf.reduce_prod(x, axis=2), "reduce_prod: expected tensors that go together, got AxisError"),
        (lambda x: tf.divide(x, FIVE), "divide: expected tensors that go together, got ValueError"),
        (lambda x: tf.clip_by_value(x, FIVE, 1), "clip_by_value: expected tensors that go together, got ValueError"),
        (lambda x: tf.squared_difference(x, FIVE), "squared_difference: expected tensors that go together, got Val"),
        (lambda x: tf.losses.mean_squared_error(x, FIVE), r"Shapes \(2, 5\) and \(2, 3\) are incompatible"),
        (lambda x: tf.keras.losses.Huber()(FIVE, x), r"y_true: expected labels for .* \(2, 3\), got \(2, 5\)"),
        (lambda x: tf.keras.losses.MeanSquaredError()(FIVE, x), "y_true: expected labels for predictions of shape"),
        (lambda x: tf.keras.metrics.binary_accuracy(FIVE, x), "y_true: expected labels for predictions of shape"),
        (lambda x: tf.losses.sparse_softmax_cross_entropy(1, NO_ROW), "logits: expected those of classes in the last"),
    ],
)
def test_what_is_refused_is_called_what_the_program_called(call, text):
    with pytest.raises((ProgramError, ProgramTypeError), match=f"^{text}"):
        call(THREE)
    with pytest.raises((ProgramError, ProgramTypeError), match=f"^{text}"):
        call(tf.placeholder(np.float32, (2, 3)))


def test_what_a_run_refuses_is_called_what_the_program_called():
    places = tf.placeholder(np.int32, (1,))
    picked = tf.gather(np.ones(2, np.float32), places)
    with (
        tf.Session() as session,
        pytest.raises(ProgramError, match=r"^indices: expected places from 0 to 1, got .*9"),
    ):
        session.run(picked, {places: [9]})


def test_plain_functions_say_what_tensorflow_does():
    assert tf.argmax([[1.0, 3.0, 2.0]], axis=1).tolist() == [1]
    assert tf.one_hot([0, 2], 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert tf.constant(1.0, shape=[2]).dtype == np.float32
    assert tf.constant(3).dtype == np.int32
    assert tf.range(1, 7, 2).tolist() == [1, 3, 5]
    assert grad(lambda x: tf.stop_gradient(x) * x)(3.0) == 3.0
    assert tf.nn.relu(np.float32(-1)) == 0
    assert isinstance(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=LABELS, logits=X), PerExampleLoss)


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (tf, "Module", r"^tf\.Module is not simulated.*: ipusim\.ipu\.tensorflow offers"),
        (tf, "reduce_maen", r"^tf\.reduce_maen is not simulated; did you mean reduce_mean\?"),
        (tf.nn, "ctc_loss", r"^tf\.nn\.ctc_loss is not simulated"),
        (tf.train, "MonitoredSession", r"^tf\.train\.MonitoredSession is not simulated"),
        (tf.keras.layers, "Conv3D", r"^tf\.keras\.layers\.Conv3D is not simulated"),
        (tf.data, "TFRecordDataset", r"^tf\.data\.TFRecordDataset is not simulated"),
        (tf.data.experimental, "make_csv_dataset", r"^tf\.data\.experimental\.make_csv_dataset is not simulated"),
        (tf.data.Dataset, "list_files", r"^tf\.data\.Dataset\.list_files is not simulated"),
        (tf.data.Dataset.range(3), "element_spec", r"^tf\.data\.Dataset\.element_spec is not simulated"),
        (tf.data.Dataset.range(3), "bacth", r"^tf\.data\.Dataset\.bacth is not simulated; did you mean batch\?"),
    ],
)
def test_what_is_lacking_says_so(module, name, text):
    with pytest.raises(AttributeError, match=text):
        getattr(module, name)


def test_every_name_that_is_offered_is_there():
    for module in (tf, tf.nn, tf.train, tf.data, tf.keras, tf.keras.layers, tf.layers, tf.losses, tf.math):
        for name in dir(module):
            assert hasattr(module, name)
    assert tf.compat.v1 is tf
    assert inspect.ismodule(tf.random)


ONES = (np.ones((2, 3), np.float32),)


def losses_of(stages, element=ONES, count=8):
    outfeed = IPUOutfeedQueue()
    found = pipeline(
        stages,
        count,
        infeed_queue=IPUInfeedQueue(repeat([element])),
        outfeed_queue=outfeed,
        optimizer_function=lambda loss: OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.01), loss),
    )
    return found, outfeed.dequeue()[0]


def test_variables_by_scope_shape_and_initializer():
    def first(x):
        with tf.variable_scope("a"):
            with tf.variable_scope("b"):
                W = tf.get_variable("W", [3, 2], initializer=tf.ones_initializer())
            b = tf.get_variable("bias", initializer=np.float32([1, 2]))
        fixed = tf.get_variable("fixed", (), trainable=False, initializer=tf.constant_initializer(2.0))
        return tf.matmul(x, W) * fixed + b

    def second(x):
        with tf.variable_scope("shared") as scope:
            w = tf.get_variable("w", [2])
        with tf.variable_scope(scope, reuse=True):
            again = tf.get_variable("w", [2])
        return tf.reduce_sum(x * (w + again))

    found, losses = losses_of([first, second])
    assert set(found.variables) == {"a/b/W", "a/bias", "fixed", "shared/w"}
    _, repeated = losses_of([first, second])
    assert losses.tolist() == repeated.tolist()
    # d loss / d w = 2 * sum over the batch of (3 * 1 * 2 + bias), in eight micro-batches.
    started = found.variables["shared/w"] + 0.01 * 8 * 2 * 2 * np.array([7, 8])
    assert losses[0] == pytest.approx(2 * 2 * float(started @ [7, 8]), rel=1e-5)


@pytest.mark.parametrize(
    ("stage", "kind", "text"),
    [
        (lambda x: [tf.get_variable("w", [3]), tf.get_variable("w", [3])][0] * x, ProgramError, "already exists"),
        (lambda x: tf.get_variable("w") * x, ProgramError, "must be fully defined, but instead was <unknown>"),
        (lambda x: tf.get_variable("w", [None]) * x, ProgramError, "must be fully defined"),
        (lambda x: tf.get_variable("w", [3], tf.int32) * x, ProgramTypeError, "or give it trainable=False"),
        (lambda x: tf.get_variable("w", [3], initializer="glorot") * x, ProgramError, "expected one of zeros"),
        (lambda x: tf.get_variable("w", [3], initializer=np.ones(3)) * x, ProgramError, "do not specify shape"),
    ],
)
def test_variables_that_cannot_be(stage, kind, text):
    with pytest.raises(kind, match=text):
        losses_of([stage, tf.reduce_sum])


def test_a_scope_that_reuses_needs_the_variable():
    def stage(x):
        with tf.variable_scope("a", reuse=True):
            return tf.get_variable("w", [3]) * x

    with pytest.raises(ProgramError, match="Variable a/w does not exist, or was not created"):
        losses_of([stage, tf.reduce_sum])


def test_layers_without_names_are_numbered_over_stages():
    def stage(x):
        return tf.keras.layers.Dense(3)(tf.keras.layers.Dense(3, activation="tanh")(x))

    found, _ = losses_of([stage, lambda x: tf.reduce_sum(tf.layers.dense(x, 2, activation=tf.abs))])
    names = {f"{layer}/{parameter}" for layer in ("dense", "dense_1", "dense_2") for parameter in ("kernel", "bias")}
    assert set(found.variables) == names


def test_a_layer_made_outside_of_its_stage_keeps_its_variables():
    layer = tf.keras.layers.Dense(3)
    found, _ = losses_of([lambda x: layer(layer(x)), tf.reduce_sum])
    assert set(found.variables) == {"dense/kernel", "dense/bias"}


def test_two_layers_of_one_name_are_refused():
    def stage(x):
        return tf.keras.layers.Dense(3, name="fc")(tf.keras.layers.Dense(3, name="fc")(x))

    with pytest.raises(ProgramError, match="The name 'fc' is used by two layers"):
        losses_of([stage, tf.reduce_sum])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tf.keras.layers.Dense(3, kernel_regularizer=abs), "kernel_regularizer is not simulated"),
        (lambda: tf.keras.layers.Conv2D(3, 3, dilation_rate=2), "dilation_rate is simulated as 1 alone, got 2"),
        (lambda: tf.keras.layers.Dense(3, unit=3), "got an unexpected keyword argument 'unit'"),
        (lambda: tf.keras.layers.Dense(3, "relu", True, 1, "a_columns", 1), "expected at most 5 arguments, got 6"),
        (lambda: tf.keras.layers.Dense(3, activation="relo"), "Unknown activation function: relo; did you mean"),
    ],
)
def test_layers_that_cannot_be(make, text):
    with pytest.raises((TypeError, ModelError, ProgramError, UnsupportedProgramError), match=text):
        make()


LAYERS = {
    "conv": (lambda x: 2 * tf.keras.layers.Conv2D(2, 3, padding="same", activation=tf.nn.relu)(x), IMAGES),
    "pool": (lambda x: tf.keras.layers.MaxPooling2D(2)(tf.keras.layers.AveragePooling2D(2)(x)), IMAGES),
    "global": (tf.keras.layers.GlobalAveragePooling2D(), IMAGES),
    "norm": (lambda x: tf.keras.layers.LayerNormalization()(tf.keras.layers.BatchNormalization()(x)), X),
    "group norm": (tf.keras.layers.GroupNormalization(groups=3), IMAGES),
    "lstm": (tf.keras.layers.LSTM(4), X[:, :, None]),
    "gru": (tf.keras.layers.GRU(4, return_sequences=True), X[:, :, None]),
    "embedding": (tf.keras.layers.Embedding(5, 4), LABELS[:, None]),
    "normalization_ops": (
        lambda x: normalization_ops.layer_norm(
            normalization_ops.instance_norm(normalization_ops.group_norm(x, 3)), scope="n"
        ),
        IMAGES,
    ),
    "rand_ops": (lambda x: rand_ops.dropout(nn_ops.hard_sigmoid(x), 0.1), X),
    "dropout": (lambda x: tf.keras.layers.Dropout(0.5)(tf.keras.layers.Reshape((1, 3))(x)), X),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train(name):
    stage, x = LAYERS[name]

    def end(y):
        w = tf.get_variable("scale", [], initializer=tf.ones_initializer())
        return tf.reduce_mean(tf.square(w * y - 1))

    element = x.astype(np.float32) if x.dtype.kind == "f" else x
    found, losses = losses_of([stage, end], (element,))
    assert np.isfinite(losses).all()
    assert all(np.isfinite(array).all() for array in found.variables.values())


def in_session(function):
    """Run a test that compiles in a context of its own, as what is compiled and configured belongs to it."""
    return lambda *args: contextvars.copy_context().run(function, *args)


@in_session
def _session():
    infeed, outfeed = IPUInfeedQueue(repeat([np.float32(3)])), IPUOutfeedQueue()
    rate = tf.placeholder(tf.float32, [], name="rate")

    def model(lr):
        return pipeline(
            [
                lambda lr, x: (lr, x * tf.get_variable("w", [], initializer=tf.ones_initializer())),
                lambda lr, y: (lr, y),
            ],
            4,
            inputs=[lr * 2 + 1],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda lr, y: OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(lr), y),
        )

    with scopes.ipu_scope("/device:IPU:0"):
        operation = ipu_compiler.compile(model, inputs=[rate])
    dequeue = outfeed.dequeue()
    with tf.Session() as session:
        initialize = tf.global_variables_initializer()
        with pytest.raises(ProgramStateError, match=r"Did you initialize the infeed_queue 'infeed' \?"):
            session.run(operation, {rate: 0.5})
        session.run([initialize, infeed.initializer])
        nothing, (rates, values) = session.run([operation, dequeue], {rate: 0.5})
        assert nothing is None
        assert rates.tolist() == [2.0] * 4
        assert values.tolist() == [3.0] * 4
        found = session.run({"after": dequeue, "op": operation}, feed_dict={rate: 0})
        assert found["after"][1].tolist() == [3 * (1 - 2 * 3 * 4)] * 4  # w = 1 - 2 * (3 * 4)
        session.run(initialize)
        session.run(operation, {rate: 0})
        assert session.run(dequeue)[1].tolist() == [3.0] * 4
        for fetches, feeds, text in [
            (operation, {}, "You must feed a value for placeholder tensor 'rate' with dtype float32 and shape"),
            (
                operation,
                {rate: [1.0]},
                r"Cannot feed value of shape \(1,\) for Tensor 'rate:0', which has shape ",
            ),
            (operation, {1: 2}, "feed_dict: expected placeholders as keys"),
            (None, {}, "Fetch argument None has invalid type <class 'NoneType'>"),
        ]:
            with pytest.raises((ProgramError, ProgramTypeError), match=text):
                session.run(fetches, feeds)
    with pytest.raises(ProgramError, match="Attempted to use a closed Session"):
        session.run(operation)


def test_a_session_feeds_runs_dequeues_and_initializes():
    _session()


def test_a_session_evaluates_structures_of_fetches():
    fed = tf.placeholder(tf.float32, [], name="fed")
    with tf.Session() as session:
        found = session.run({"state": rnn_ops.LSTMStateTuple(fed, [fed * 2]), "both": (fed, fed)}, {fed: 3})
    assert found == {"state": rnn_ops.LSTMStateTuple(c=3, h=[6]), "both": (3, 3)}
    assert type(found["state"]) is rnn_ops.LSTMStateTuple


def test_what_is_of_the_host_stays_there():
    rate = tf.placeholder(np.float16, [])
    with pytest.raises(ProgramError, match=r"inputs\[0\]: expected a value, got <Placeholder"):
        pipeline([lambda x: x, lambda x: x], 4, inputs=[rate], outfeed_queue=IPUOutfeedQueue())
    with pytest.raises(ProgramTypeError, match=r"using a `tf\.Tensor` as a Python `bool` is not allowed"):
        bool(rate)
    with pytest.raises(ProgramTypeError, match="has a value in a session alone"):
        np.asarray(rate)


@pytest.mark.parametrize("function", [np.mean, np.sum, np.exp, np.asarray])
def test_plain_numpy_on_losses_is_refused(function):
    def stage(x, labels):
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.keras.layers.Dense(3)(x))
        return np.sum(function(each))

    with pytest.raises(ModelError, match=r"takes an array out of the trace"):
        losses_of([lambda x, labels: (x, labels), stage], (X.astype(np.float32), LABELS))


def test_losses_of_samples_may_be_weighed_or_leave_the_pipeline():
    def stage(x, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.keras.layers.Dense(3)(x))

    element = X.astype(np.float32), LABELS
    pass_on = [lambda x, labels: (x, labels)]
    _, each = losses_of([*pass_on, stage], element)
    _, mean = losses_of([*pass_on, lambda *values: tf.reduce_mean(stage(*values))], element)
    _, weighed = losses_of([*pass_on, lambda *values: tf.reduce_sum(2 * stage(*values))], element)
    assert each.shape == (8, 4)
    assert each.mean(axis=1)[0] == pytest.approx(mean[0], rel=1e-6)
    assert weighed[0] == pytest.approx(8 * mean[0], rel=1e-6)


def test_datasets_are_tensorflows():
    numbers = tf.data.Dataset.from_tensor_slices(np.arange(10))
    assert [x.tolist() for x in numbers.batch(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [x.tolist() for x in numbers.batch(4, drop_remainder=True).repeat(2)][2] == [0, 1, 2, 3]
    assert list(numbers.skip(7).concatenate(numbers.take(1))) == [7, 8, 9, 0]
    assert [list(numbers.shard(3, place)) for place in range(3)] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    with pytest.raises(ProgramError, match=r"^index: expected a number below num_shards, 3, got 3$"):
        numbers.shard(3, 3)
    assert list(numbers.map(lambda x: 2 * x).filter(lambda x: x > 14)) == [16, 18]
    shuffled = numbers.shuffle(10, seed=3)
    first, second = list(shuffled), list(shuffled)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    fixed = numbers.shuffle(10, seed=3, reshuffle_each_iteration=False)
    assert list(fixed) == list(fixed) == first
    assert all(abs(place - int(x)) <= 9 for place, x in enumerate(numbers.shuffle(2)))
    assert {int(next(iter(numbers.shuffle(2, seed)))) for seed in range(9)} == {0, 1}
    assert list(numbers.shuffle(1)) == list(numbers)
    both = tf.data.Dataset.zip((numbers, numbers.skip(8)))
    assert [tuple(map(int, each)) for each in both] == [(0, 8), (1, 9)]
    named = tf.data.Dataset.from_tensor_slices({"x": np.eye(2), "y": [5, 6]}).batch(2)
    assert [{name: array.tolist() for name, array in each.items()} for each in named] == [
        {"x": [[1, 0], [0, 1]], "y": [5, 6]}
    ]
    drawn = tf.data.Dataset.from_generator(lambda n: ((i, i / 2) for i in range(n)), (tf.int32, tf.float32), args=(2,))
    assert [(int(i), float(x), x.dtype) for i, x in drawn] == [(0, 0.0, np.float32), (1, 0.5, np.float32)]
    assert [tuple(x.tolist() for x in each) for each in tf.data.Dataset.from_tensors([[1.0], [2]])] == [([1.0], [2.0])]
    for wrong, text in [
        (lambda: tf.data.Dataset.from_tensor_slices((np.ones(2), np.ones(3))), "equally long"),
        (lambda: numbers.batch(0), "batch_size: expected a whole number from 1"),
        (lambda: numbers.map(1), "map_func: expected a function"),
        (lambda: next(iter(numbers.take(0).repeat())), "repeat: expected a dataset with elements"),
    ]:
        with pytest.raises((ProgramError, ProgramTypeError, ModelError), match=text):
            wrong()


#: What is made of a dataset without end and of one of two elements, by method; and whether that has none.
WITHOUT_END = {
    "batch": (lambda endless, _: endless.batch(2), True),
    "cache": (lambda endless, _: endless.cache(), True),
    "concatenate": (lambda endless, two: two.concatenate(endless), True),
    "concatenate with a list": (lambda _, two: two.concatenate([1]), False),
    "enumerate": (lambda endless, _: endless.enumerate(), True),
    "filter": (lambda endless, _: endless.filter(lambda x: x >= 0), True),
    "from_generator": (lambda endless, _: tf.data.Dataset.from_generator(lambda: iter([1])), False),
    "from_tensor_slices": (lambda endless, _: tf.data.Dataset.from_tensor_slices([1]), False),
    "from_tensors": (lambda endless, _: tf.data.Dataset.from_tensors(1), False),
    "flat_map": (lambda endless, _: endless.flat_map(lambda x: tf.data.Dataset.range(2)), True),
    "interleave": (lambda endless, _: endless.interleave(lambda x: tf.data.Dataset.range(2), 2), True),
    "map": (lambda endless, _: endless.map(lambda x: x), True),
    "padded_batch": (lambda endless, _: endless.padded_batch(2), True),
    "unbatch": (lambda endless, _: endless.batch(2).unbatch(), True),
    "unbatch two": (lambda _, two: two.batch(2).unbatch(), False),
    "prefetch": (lambda endless, _: endless.prefetch(1), True),
    "range": (lambda endless, _: tf.data.Dataset.range(1), False),
    "repeat": (lambda endless, _: endless.repeat(2), True),
    "repeat 2": (lambda _, two: two.repeat(2), False),
    "repeat 0": (lambda endless, _: endless.repeat(0), False),
    "shard": (lambda endless, _: endless.shard(2, 1), True),
    "shuffle": (lambda endless, _: endless.shuffle(2), True),
    "skip": (lambda endless, _: endless.skip(1), True),
    "skip all": (lambda endless, _: endless.skip(-1), False),
    "take": (lambda endless, _: endless.take(-1), True),
    "take 2": (lambda endless, _: endless.take(2), False),
    "take_while": (lambda endless, _: endless.take_while(lambda x: x < 2), False),
    "window": (lambda endless, _: endless.window(2), True),
    "with_options": (lambda endless, _: endless.with_options(None), True),
    "zip": (lambda endless, _: tf.data.Dataset.zip((endless, endless)), True),
    "zip with two": (lambda endless, two: tf.data.Dataset.zip((endless, two)), False),
    "zip of none": (lambda _, two: tf.data.Dataset.zip(()), False),
    "BufferDataset": (lambda endless, _: BufferDataset(endless, 2), True),
}


@pytest.mark.parametrize("method", WITHOUT_END)
def test_what_is_made_of_a_dataset_without_end_has_none(method):
    make, endless = WITHOUT_END[method]
    found = make(tf.data.Dataset.range(3).repeat(), tf.data.Dataset.range(2))
    assert found.endless is endless
    elements = list(itertools.islice(found, 9))
    assert len(elements) == 9 or not endless
    if found.length is None or endless:
        with pytest.raises(TypeError, match="is infinite" if endless else "length is unknown"):
            len(found)
    else:
        assert len(found) == len(elements)


def test_every_method_says_whether_what_it_makes_has_an_end():
    public = {name for name, each in vars(tf.data.Dataset).items() if not name.startswith("_") and callable(each)}
    without = {
        "apply",
        "as_numpy_iterator",
        "cardinality",
        "make_initializable_iterator",
        "make_one_shot_iterator",
        "reduce",
    }
    assert public - without - {"reduce"} == {name.split()[0] for name in WITHOUT_END} - {"BufferDataset"}


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("size", range(1, 5))
@pytest.mark.parametrize("count", range(6))
def test_a_datasets_length_is_how_many_elements_it_has(count, size, drop):
    data = tf.data.Dataset.range(count)
    made = [data.batch(size, drop), data.padded_batch(size, drop_remainder=drop), data.take(size), data.skip(size)]
    made += [data.repeat(size), data.concatenate(tf.data.Dataset.range(size)), data.shuffle(size), data.map(abs)]
    made += [data.window(size, shift, stride, drop) for shift in range(1, 4) for stride in (1, 2)]
    made += [data.shard(size, place) for place in range(size)] + [tf.data.Dataset.zip((data, data.skip(1)))]
    assert [len(each) for each in made] == [len(list(each)) for each in made]
    assert all(made)  # a dataset without elements is one


def test_datasets_take_turns_are_padded_and_reduced():
    lists = tf.data.Dataset.range(1, 4).interleave(lambda n: tf.data.Dataset.range(n).map(lambda i: 10 * n + i), 2, 2)
    assert list(map(int, lists)) == [10, 20, 21, 30, 31, 32]
    rows = tf.data.Dataset.range(1, 4).map(lambda n: (np.full(n, n), {"n": n}))
    (first, named), (rest, _) = rows.padded_batch(2)
    assert (first.tolist(), named["n"].tolist(), rest.tolist()) == ([[1, 0], [2, 2]], [1, 2], [[3, 3, 3]])
    ((filled, _),) = rows.padded_batch(3, ([4], {"n": []}), (-1, {"n": 0}))
    assert filled.tolist() == [[1, -1, -1, -1], [2, 2, -1, -1], [3, 3, 3, -1]]
    with pytest.raises(ModelError, match=r"padded_batch: .* expected at most shape \(2,\), got \(3,\)"):
        list(rows.padded_batch(3, ([2], {"n": []})))
    assert tf.data.Dataset.range(5).reduce(np.int64(0), lambda total, n: total + n) == 10
    assert tf.data.Dataset.range(5).apply(lambda data: data.take(2)).length == 2
    signed = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=np.zeros((), np.int16))
    assert [each.dtype for each in signed] == [np.int16] * 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 3}, [[0, 1, 2], [3, 4, 5], [6]]),
        ({"size": 3, "drop_remainder": True}, [[0, 1, 2], [3, 4, 5]]),
        ({"size": 3, "shift": 2, "drop_remainder": True}, [[0, 1, 2], [2, 3, 4], [4, 5, 6]]),
        ({"size": 2, "shift": 3}, [[0, 1], [3, 4], [6]]),
        ({"size": 3, "shift": 1, "stride": 2, "drop_remainder": True}, [[0, 2, 4], [1, 3, 5], [2, 4, 6]]),
        ({"size": 2, "shift": 3, "stride": 3}, [[0, 3], [3, 6], [6]]),
    ],
)
def test_windows_are_tensorflows(options, expected):
    data = tf.data.Dataset.range(7)
    assert [list(each) for each in data.window(**options)] == expected
    assert [x.tolist() for x in data.window(**options).flat_map(lambda each: each.batch(3))] == expected
    pairs = data.map(lambda x: (x, {"double": 2 * x})).window(**options)
    assert [([*x], [*y["double"]]) for x, y in pairs] == [(each, [2 * x for x in each]) for each in expected]


def test_numbers_of_elements_and_first_elements_are_tensorflows():
    data = tf.data.Dataset.range(3)
    unknown = data.filter(lambda x: x > 0)
    for each, expected in ((data, 3), (data.repeat(), tf.data.INFINITE_CARDINALITY), (unknown, -2)):
        assert each.cardinality() == tf.data.experimental.cardinality(each) == expected
    assert (tf.data.INFINITE_CARDINALITY, tf.data.experimental.UNKNOWN_CARDINALITY) == (-1, -2)
    assert list(tf.data.Dataset.range(9).take_while(lambda x: x % 4 < 2)) == [0, 1]
    assert (list(data.skip(-1)), list(data.take(-1))) == ([], [0, 1, 2])
    assert [each.dtype for each in tf.data.Dataset.range(3, output_type=tf.int32)] == [np.int32] * 3


def test_a_cache_keeps_the_elements_of_its_first_time():
    calls = []
    data = tf.data.Dataset.range(3).map(lambda x: calls.append(x) or x).cache()
    assert list(data.take(2)) == [0, 1]  # which is not all
    assert list(data.repeat(3)) == [0, 1, 2] * 3
    assert calls == [0, 1, 0, 1, 2]


def test_runs_of_a_session_take_the_elements_of_an_iterator():
    data = tf.data.Dataset.range(4).map(lambda n: {"n": n, "half": n / 2}).batch(2)
    iterator = tf.data.make_initializable_iterator(data)
    element = iterator.get_next()
    total = tf.reduce_sum(element["n"]) + 1
    with tf.Session() as session:
        with pytest.raises(RuntimeError, match="the iterator has not been initialized"):
            session.run(element)
        for _ in range(2):
            session.run(iterator.initializer)
            found, both = session.run([element, total])
            assert (found["n"].tolist(), found["half"].tolist(), both) == ([0, 1], [0, 0.5], 2)
            assert session.run(total) == 6
            with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
                session.run(element)


def test_an_iterator_begins_with_what_its_initializer_is_fed():
    rows = tf.placeholder(np.float32, [3])
    iterator = tf.data.Dataset.from_tensor_slices(rows).shuffle(1).map(lambda x: 2 * x).make_initializable_iterator()
    number = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer, {rows: [1, 2, 3]})
        assert [session.run(number) for _ in range(3)] == [2, 4, 6]


def test_a_one_shot_iterator_is_ready_and_gives_tuples():
    number, square = tf.data.Dataset.range(3).map(lambda n: (n, n * n)).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [session.run((number, square)) for _ in range(3)] == [(0, 0), (1, 1), (2, 4)]


def test_a_one_shot_iterator_gives_all_elements_of_a_generator_that_can_be_gone_through_once():
    numbers = iter(range(4))
    iterator = tf.data.Dataset.from_generator(lambda: numbers, tf.int64, []).make_one_shot_iterator()
    first, second = iterator.get_next(), iterator.get_next()
    with tf.Session() as session:
        assert [session.run([first, second]) for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(first)


def test_a_one_shot_iterator_takes_the_values_of_tensors_of_the_host():
    number = (
        tf.data.Dataset.from_tensors(2.0 * tf.placeholder_with_default(3.0, [])).make_one_shot_iterator().get_next()
    )
    with tf.Session() as session:
        assert session.run(number) == 6.0


@pytest.mark.parametrize(
    ("draw", "low", "high", "mean", "deviation"),
    [
        (lambda **seed: tf.random.uniform([40, 50], **seed), 0, 1, 0.5, 12**-0.5),
        (lambda **seed: tf.random_uniform([40, 50], -2, 2, **seed), -2, 2, 0, 4 * 12**-0.5),
        (lambda **seed: tf.random.uniform([2000], 3, 13, tf.int32, **seed), 3, 12, 7.5, 8.25**0.5),
        (lambda **seed: tf.random.normal([40, 50], 1, 2, **seed), -12, 12, 1, 2),
        (lambda **seed: tf.truncated_normal([40, 50], stddev=2.0, **seed), -4, 4, 0, 1.76),
        (lambda **seed: tf.random.shuffle(np.arange(2000), **seed), 0, 1999, 999.5, 577.35),
    ],
)
def test_draws_follow_their_distribution_and_their_seeds(draw, low, high, mean, deviation):
    tf.random.set_seed(5)
    first, other, own = draw(), draw(), draw(seed=7)
    assert first.min() >= low
    assert first.max() <= high
    assert first.mean() == pytest.approx(mean, abs=4 * deviation / 2000**0.5)
    assert first.std() == pytest.approx(deviation, rel=0.1)
    tf.random.set_seed(5)
    again = draw(), draw(), draw(seed=7)
    assert all(map(np.array_equal, (first, other, own), again))
    tf.random.set_seed(6)
    assert not any(np.array_equal(one, two) for one, two in itertools.combinations((first, other, own, draw()), 2))


def test_draws_wait_for_a_session_but_not_in_functions_of_a_datasets_elements():
    def program():
        tf.disable_eager_execution()
        number, data = tf.random.normal([]), tf.data.Dataset.from_tensors(tf.random.uniform([2])).repeat(2)
        with tf.Session() as session:
            assert session.run(number) != session.run(number)
            first, second = session.run([number, number])
            assert first == second
        drawn = list(data.map(lambda x: tf.random.uniform([]) + 0 * x[0]))
        assert drawn[0] != drawn[1]
        assert data.length == 2

    contextvars.copy_context().run(program)


def test_a_stage_draws_anew_for_each_micro_batch_and_the_same_when_it_is_recomputed():
    def noisy(x):
        return x * tf.get_variable("w", initializer=np.float32(1)) + tf.random.normal([2])

    config = IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2, True
    stages, results = [noisy, tf.reduce_sum], []
    for mode in (RecomputationMode.Auto, RecomputationMode.RecomputeAndBackpropagateInterleaved):
        queue = IPUOutfeedQueue()
        pipeline(
            stages,
            4,
            infeed_queue=IPUInfeedQueue([np.ones(2, np.float32)] * 4),
            outfeed_queue=queue,
            optimizer_function=lambda loss: OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss),
            recomputation_mode=mode,
            config=config,
        )
        results.append(queue.dequeue()[0].tolist())
    assert results[0] == results[1]
    assert len(set(results[0])) == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [[0, 1, 2], [3, 4, 5]]),
        ({"maxlen": 2}, [[1, 2], [4, 5]]),
        ({"maxlen": 2, "truncating": "post"}, [[1, 2], [3, 4]]),
        ({"maxlen": 4, "padding": "post", "value": 9}, [[1, 2, 9, 9], [3, 4, 5, 9]]),
        ({"maxlen": 4, "dtype": "float32", "value": 0.5}, [[0.5, 0.5, 1, 2], [0.5, 3, 4, 5]]),
    ],
)
def test_sequences_are_made_equally_long(arguments, expected):
    found = tf.keras.preprocessing.sequence.pad_sequences([[1, 2], [3, 4, 5]], **arguments)
    assert found.tolist() == expected
    assert found.dtype == arguments.get("dtype", "int32")


def test_a_placeholder_of_unknown_batch_is_as_long_as_what_is_fed():
    rows, scale = tf.placeholder(np.float32, [None, 2]), tf.placeholder(np.float32, [])
    assert rows.shape == (None, 2)
    total, doubled = tf.reduce_sum(rows, 0) * scale, 2 * rows
    with tf.Session() as session:
        for count in (1, 3):
            found, twice = session.run([total, doubled], {rows: np.ones((count, 2)), scale: 2})
            assert (found.tolist(), twice.shape) == ([2 * count] * 2, (count, 2))
        for wrong in (np.ones((3, 1)), np.ones(2), np.ones((1, 2, 2))):
            with pytest.raises(ValueError, match=r"Cannot feed value of shape .* which has shape '\(None, 2\)'"):
                session.run(total, {rows: wrong, scale: 2})
    with pytest.raises(ValueError, match="shape: expected sizes of all axes, None for any"):
        tf.placeholder(np.float32)


@pytest.mark.parametrize("value", [2**40, 3_000_000_000, -(2**31) - 1, [3_000_000_000, 1]])
def test_whole_numbers_that_need_it_have_64_bits(value):
    found = tf.constant(value)
    assert found.dtype == np.int64
    assert found.tolist() == value
    (element,) = tf.data.Dataset.from_tensors(value)
    assert (element.dtype, element.tolist()) == (np.int64, value)
    x = tf.placeholder(tf.int64, [])
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(tf.add(x, value), {x: 1}), np.asarray(value) + 1)


@pytest.mark.parametrize("value", [0, 2**31 - 1, -(2**31), [1, 2]])
def test_other_whole_numbers_have_32_bits(value):
    assert tf.constant(value).dtype == np.int32
    (element,) = tf.data.Dataset.from_tensors(value)
    assert element.dtype == np.int32


ROWS_OF_3 = np.arange(6, dtype=np.float32).reshape(2, 3)
OLDER_NAMES = {
    **{
        function.__name__: (
            partial(function, reduction_indices=[0], keep_dims=True),
            partial(function, axis=[0], keepdims=True),
        )
        for function in (tf.reduce_max, tf.reduce_mean, tf.reduce_min, tf.reduce_prod, tf.reduce_sum)
    },
    "softmax": (lambda x: tf.nn.softmax(x, dim=0), lambda x: tf.nn.softmax(x, axis=0)),
    "log_softmax": (lambda x: tf.nn.log_softmax(x, dim=0), lambda x: tf.nn.log_softmax(x, axis=0)),
    "softmax of None": (lambda x: tf.nn.softmax(x, dim=None), lambda x: tf.nn.softmax(x, axis=-1)),
    "squeeze": (lambda x: tf.squeeze(x[None, :, None], squeeze_dims=[0]), lambda x: x[:, None]),
    "expand_dims": (lambda x: tf.expand_dims(x, dim=1), lambda x: x[:, None]),
    "adjoint_a": (lambda x: tf.matmul(x, x, adjoint_a=True), lambda x: tf.matmul(x, x, transpose_a=True)),
    "adjoint_b": (lambda x: tf.matmul(x, x, adjoint_b=True), lambda x: tf.matmul(x, x, transpose_b=True)),
    "moments": (lambda x: tf.nn.moments(x, 0)[1], lambda x: tf.nn.moments(x, [0])[1]),
}


@pytest.mark.parametrize(("older", "newer"), OLDER_NAMES.values(), ids=OLDER_NAMES)
def test_arguments_have_their_older_names_too(older, newer):
    np.testing.assert_array_equal(older(ROWS_OF_3), newer(ROWS_OF_3))
    x = tf.placeholder(tf.float32, [2, 3])
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(older(x), {x: ROWS_OF_3}), newer(ROWS_OF_3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tf.reduce_sum(x, axis=0, reduction_indices=0), "Cannot specify both 'reduction_indices' and 'axis'"),
        (lambda x: tf.reduce_sum(x, 0, reduction_indices=0), "Cannot specify both 'reduction_indices' and 'axis'"),
        (lambda x: tf.reduce_sum(x, keepdims=True, keep_dims=True), "Cannot specify both 'keep_dims' and 'keepdims'"),
        (lambda x: tf.nn.softmax(x, 0, dim=0), "Cannot specify both 'dim' and 'axis'"),
        (
            lambda x: tf.matmul(x, x, transpose_b=True, adjoint_b=True),
            "Only one of transpose_b and adjoint_b can be True.",
        ),
    ],
)
def test_an_argument_has_one_of_its_names(call, message):
    with pytest.raises(ProgramError) as caught:
        call(ROWS_OF_3)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tf.unstack(x, num=5), "Input shape axis 0 must equal 5, got shape [2, 3]"),
        (lambda x: tf.unstack(x, num=1, axis=-1), "Input shape axis -1 must equal 1, got shape [2, 3]"),
        (lambda x: tf.unstack(x, axis=2), "axis = 2 not in [-2, 2)"),
        (lambda x: tf.tile(x, [2]), "Expected multiples argument to be a vector of length 2 but got length 1"),
        (lambda x: tf.tile(x, [1, 2, 2]), "Expected multiples argument to be a vector of length 2 but got length 3"),
        (lambda x: tf.tile(x, [2, -1]), "Expected multiples[1] >= 0, but got -1"),
        (lambda x: tf.nn.bias_add(x, x), "Biases must be 1D: [2, 3]"),
        (lambda x: tf.nn.bias_add(x[0], x[0]), "Input tensor must be at least 2D: [3]"),
        (
            lambda x: tf.nn.bias_add(x, x[0, :1]),
            "Must provide as many biases as the last dimension of the input tensor: [1] vs. [2, 3]",
        ),
        (lambda x: tf.nn.xw_plus_b(x, np.ones((3, 2), np.float32), x), "Biases must be 1D: [2, 3]"),
    ],
)
def test_shapes_that_tensorflow_does_not_take_are_refused(call, message):
    for x in (ROWS_OF_3, tf.placeholder(tf.float32, [2, 3])):
        with pytest.raises(ProgramError) as caught:
            call(x)
        assert str(caught.value) == message


def test_an_axis_as_long_as_what_is_fed_is_not_unstacked():
    x = tf.placeholder(tf.float32, [None, 3])
    with pytest.raises(ProgramError, match=r"Cannot infer num from shape \(None, 3\)"):
        tf.unstack(x * 2.0)
    assert len(tf.unstack(x, axis=1)) == 3


def test_tensors_of_the_host_say_their_shape_as_tensorflow_does():
    x, w = tf.placeholder(tf.float32, [None, 3]), tf.get_variable("w", initializer=ROWS_OF_3)
    assert x.get_shape().as_list() == (x * 2.0).get_shape().as_list() == [None, 3]
    assert tf.reduce_sum(x, 1).get_shape().ndims == 1
    assert w.get_shape().as_list() == [2, 3]
    assert isinstance(x.get_shape(), tf.TensorShape)


def test_a_tensor_is_evaluated_in_a_session_or_that_of_the_block():
    x = tf.placeholder(tf.float32, [None, 3])
    total = tf.reduce_sum(x * 2.0)
    feeds = {x: ROWS_OF_3}
    assert total.eval(feeds, session=tf.Session()) == 30
    assert total.eval(session=tf.Session(), feed_dict=feeds) == 30
    with tf.Session():
        assert total.eval(feeds) == 30
        assert x.eval(feeds).tolist() == ROWS_OF_3.tolist()
        with pytest.raises(ProgramError, match="You must feed a value for placeholder"):
            total.eval()
    with pytest.raises(
        ProgramError, match=r"Cannot evaluate tensor using `eval\(\)`: No default session is registered"
    ):
        total.eval(feeds)
