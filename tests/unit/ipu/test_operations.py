"""Operations of Graphcore's API in stages: what they print, cost and refuse."""

from __future__ import annotations

import inspect
from contextlib import nullcontext

import autograd
import numpy as np
import pytest
from scipy.stats import zscore

from ipusim.base.errors import IpusimError, ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import (
    custom_ops,
    embedding_ops,
    get_variable,
    image_ops,
    internal_ops,
    math_ops,
    nn_ops,
    normalization_ops,
    ops,
    optimizers,
    rand_ops,
    rnn_ops,
    slicing_ops,
    statistics_ops,
)
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.model.functions.counting import count_several
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.work import MeasuredWork, VectorWork, Work

X = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)


def counted(function, *arrays, pulled=(0,)):
    """Return the steps of both passes of a function of arrays, as a stage's profile has them."""
    floats = [place for place, array in enumerate(arrays) if array.dtype.kind == "f"]
    found = count_several(lambda *a: [function(*a)], arrays, floats, pulled, weights=[], itemsize=4)
    return found.forward, found.backward


def test_the_package_of_operations_has_the_modules():
    for name in dir(ops):
        assert inspect.ismodule(getattr(ops, name))
    with pytest.raises(AttributeError, match="has no attribute 'rnn'"):
        ops.rnn  # noqa: B018


def learn(loss):
    return OptimizerFunctionOutput(optimizers.GradientDescentOptimizer(0.5), loss)


def test_a_stage_prints_in_each_of_its_passes_and_not_before(run, capsys):
    def stage(x):
        return x * get_variable("w", 1.0), internal_ops.print_tensor(x, "x")

    def last(x):
        internal_ops.print_tensor(x[0])
        return x.sum(), internal_ops.print_tensor(x[0])

    run(computational_stages=[stage, last], optimizer_function=learn, gradient_accumulation_count=4)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("x: [1., 1.]") == 4
    assert lines.count("1.") == 8
    assert len(lines) == 12


def test_a_session_prints_what_it_is_fed(capsys):
    rate = tf.placeholder(np.float32, [2])
    operation = internal_ops.print_tensor(rate * 2, "twice")
    with tf.Session() as session:
        assert session.run(operation, {rate: [1, 2]}) is None
    assert capsys.readouterr().err == "twice: [2., 4.]\n"


def test_whole_numbers_are_counted_too():
    """No trace follows them; what is done with them takes its time all the same."""
    image = np.zeros((2, 4, 4, 3), np.uint8)
    ones = np.ones(3, np.float32)
    (there,), back = counted(lambda x: image_ops.normalise_image(x, ones, ones), image, pulled=())
    assert there == Work(vector=VectorWork(3 * 96), sram_bytes=96 + 128 * 2, itemsize=2)
    assert back == ()
    rows = np.zeros((6, 2), np.int32)
    (moved,), _ = counted(lambda x: slicing_ops.sequence_slice_unpack(x, [2, 1], [0, 4], 4), rows, pulled=())
    assert (moved.sram_bytes, moved.exchange_bytes, moved.compute_sets) == ((2 * 6 + 8) * 4, 6 * 4, 2)
    (there,), _ = counted(lambda x: internal_ops.print_tensor(x).name == "" or x, rows, pulled=())
    assert (there.sram_bytes, there.exchange_bytes) == (48, 48)


def test_the_cost_of_operations_by_hand():
    (there,), (back, _) = counted(lambda x: math_ops.serialized_matmul(x, x.T, 2, "a_rows_b_columns"), X)
    assert there.macs == 3 * 4 * 3
    assert there.products[0].times == 2
    assert there.sram_bytes == 4 * (12 + 12 + 9 + 2 * 9)
    assert back.macs == 2 * 3 * 4 * 3
    flat = X.reshape(-1)
    (there,), back = counted(lambda x: statistics_ops.histogram(x, np.float32([0, 1])), flat)
    assert there.vector == VectorWork(12 * 2 + 3, reductions=12)
    assert (there.compute_sets, back) == (3, ())
    (there,), _ = counted(lambda x: statistics_ops.fixed_width_bins(x, 5), flat)
    assert there.vector == VectorWork(10, reductions=24)
    scores = np.zeros((3, 2, 4), np.float32)
    (there,), back = counted(lambda x: nn_ops.ctc_beam_search_decoder(x, [3, 3], 5)[0], scores)
    assert there.vector == 2 * 3 * 5 * 4 * VectorWork(4, 1, 0, 2) + 24 * VectorWork(1, 2, 0, 1)
    assert (there.compute_sets, back) == (4 * 3 + 5, ())
    fused = counted(lambda x: custom_ops.codelet_expression_op(lambda a, b: a * a + tf.exp(b), x, 2 * x), X, pulled=())
    assert fused[0][-1] == Work(vector=VectorWork(24, transcendentals=12), sram_bytes=3 * 48)


def test_lookups_in_parts_give_the_same_and_read_the_ids_again():
    table, ids = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([5, 0, 5])
    found = embedding_ops.embedding_lookup(table, ids, serialization_factor=2)
    np.testing.assert_array_equal(found, table[ids])
    (whole,), (back,) = counted(lambda x: embedding_ops.embedding_lookup(x, ids), table)
    (there,), (again,) = counted(lambda x: embedding_ops.embedding_lookup(x, ids, serialization_factor=2), table)
    assert there.sram_bytes == 2 * whole.sram_bytes + 3 * 6 * 4
    assert (there.vector, there.compute_sets) == (VectorWork(6), 2 * whole.compute_sets + 1)
    # Each part of the table is zeroed once, and gradients come to each.
    assert again.sram_bytes == 2 * back.sram_bytes - 12 * 4
    assert again.vector == 2 * back.vector


def test_a_mask_of_fewer_axes_drops_whole_rows():
    x = np.ones((50, 4), np.float32)
    with ProgramNames().stage(0), Surrounded(key=(1, 2)):
        found = rand_ops.dropout(x, 0.5, noise_shape=(None, 1))
    assert set(found.sum(axis=1).tolist()) == {0, 8}
    np.testing.assert_array_equal(rand_ops.dropout(x, 0.5, noise_shape=(50, 1)), x)  # no draws in inference
    (there,), (back,) = counted(lambda x: rand_ops.dropout(x, 0.5, noise_shape=(50, 1)), x)
    assert there == back == Work(vector=VectorWork(2 * 50 + 200), sram_bytes=2 * 800, compute_sets=9)


def test_normalised_channels_along_any_axis():
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
    variables = {}
    with ProgramNames().stage(0), Surrounded(lookup=variables.setdefault):
        found = normalization_ops.instance_norm(x, channels_axis=1, trainable=False)
    np.testing.assert_allclose(found, zscore(x, axis=2), atol=1e-4)
    assert variables == {}


def test_partial_sums_in_half_precision():
    cells = {16: rnn_ops.PopnnGRU(2, partials_dtype=tf.float16), 32: rnn_ops.PopnnGRU(2)}
    for bits, cell in cells.items():
        variables = {}
        with Surrounded(lookup=variables.setdefault):
            (there, *_), back = counted(lambda x, cell=cell: cell(x)[0], X[None])
        assert {there.partials_itemsize, back[0].partials_itemsize} == {bits // 8}


USERS = """
import numpy as np
loads = []

def Callback(x, attributes):
    return x + 1

def Callback_grad(gradients, outputs, inputs, attributes):
    return [gradients[0]]

def Priced(x, attributes):
    return x, x

def Priced_cost(x):
    return {"forward": 10 * x.size, "backward": 7}

def Free(x, attributes):
    return x

Free_cost = lambda x: 12

def Wrong(x, attributes):
    raise RuntimeError(attributes)

def Nothing(attributes):
    return None

def Flat(x, attributes):
    return x

def Flat_grad(gradients, outputs, inputs, attributes):
    return gradients[0].ravel()

def Picked(x, places, attributes):
    return x[places]

def Picked_grad(gradients, outputs, inputs, attributes):
    x, places = inputs
    found = np.zeros_like(x)
    np.add.at(found, places, gradients[0])
    return [None if attributes == "none" else found, None]
"""


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "users.py"
    path.write_text(USERS)
    return str(path)


def outs(*shapes):
    return {"output_types": [np.float32] * len(shapes), "output_shapes": list(shapes)}


def test_a_user_operation_takes_the_cycles_that_it_says(users):
    two = outs((3, 4), (3, 4))
    (there,), _ = counted(
        lambda x: custom_ops.precompiled_user_op([x], users, outs=two, op_name="Priced")[1], X, pulled=()
    )
    assert there == MeasuredWork(cycles=120)
    (there,), (back,) = counted(
        lambda x: custom_ops.precompiled_user_op([x], users, "", outs((3, 4)), op_name="Callback")[0], X
    )
    assert there == Work(vector=VectorWork(12), sram_bytes=96)
    assert back == Work(vector=VectorWork(12), sram_bytes=4 * 48)
    assert custom_ops.cpu_user_operation([], users, op_name="Nothing") == []


def picked(users, attributes=None):
    """Return the gradient of a row that a user's operation has picked, squared."""

    def loss(x):
        rows = [x, np.array([1])]
        two = outs((1, 4))
        (row,) = custom_ops.cpu_user_operation(rows, users, two, op_name="Picked", gradient_attributes=attributes)
        return tf.reduce_sum(row * row)

    return autograd.grad(loss)(X)


def test_whole_numbers_need_no_gradient_of_a_user_operation(users):
    with Surrounded(lookup={}.setdefault):
        np.testing.assert_array_equal(picked(users), [0 * X[0], 2 * X[1], 0 * X[2]])


def test_a_file_runs_again_when_it_has_changed(users, tmp_path):
    assert custom_ops.cpu_user_operation([X], users, outs((3, 4)))[0][0, 0] == 0
    (tmp_path / "users.py").write_text(USERS.replace("x + 1", "x + 2") + "\n# longer\n")
    assert custom_ops.cpu_user_operation([X], users, outs((3, 4)))[0][0, 0] in (0, 1)


LENGTHS = np.array([1, 2])
SCORES = np.zeros((3, 2, 4), np.float32)
WORDS = np.zeros((2, 1), np.int32)
F = np.float32
WRONG = [
    # Recurrent layers.
    (lambda u: rnn_ops.PopnnLSTM(0), ProgramError, "num_units: expected a whole number from 1"),
    (
        lambda u: rnn_ops.PopnnLSTM(2, np.int32),
        ProgramError,
        "Only support float16, float32, provided <class 'numpy.int32'>",
    ),
    (lambda u: rnn_ops.PopnnLSTM(2, activation="softmax"), ModelError, "in a recurrent layer, got 'softmax'"),
    (lambda u: rnn_ops.PopnnGRU(2).build((3, 4)), ProgramError, "Expecting input_shape with 3 dims, got 2"),
    (lambda u: rnn_ops.PopnnGRU(2).build((3, 4, None)), ProgramError, "The last dimension of the inputs"),
    (lambda u: rnn_ops.PopnnGRU(2)(SCORES), ModelError, "outside of a pipeline stage"),
    (lambda u: rnn_ops.PopnnGRU(2)(X), ProgramError, "Expecting input_shape with 3 dims, got 2"),
    (
        lambda u: rnn_ops.PopnnLSTM(2)(SCORES, np.zeros((2, 2))),
        ProgramError,
        "Invalid initial_state type: `<class 'numpy.ndarray'>`, expecting `LSTMStateTuple`.",
    ),
    (lambda u: rnn_ops.PopnnGRU(2)(SCORES, np.zeros((3, 2), F)), ProgramError, r"of shape \(2, 2\), got \(3, 2\)"),
    (lambda u: rnn_ops.PopnnDynamicGRU(2)(SCORES, [1.0, 2]), ProgramTypeError, "seq_len: expected whole numbers"),
    (lambda u: rnn_ops.PopnnDynamicGRU(2)(SCORES, [1, 4]), ProgramError, "seq_len: expected 2 lengths from 0 to 3"),
    (
        lambda u: rnn_ops.PopnnAUGRU(2)(SCORES, LENGTHS, np.zeros((3, 2), F)),
        ProgramError,
        r"attention_score: expected a tensor of shape \(2, 3\), got \(3, 2\)",
    ),
    # Labels in order.
    (
        lambda u: nn_ops.ctc_loss_v2(WORDS, X, LENGTHS, LENGTHS, 0),
        ProgramError,
        r"logits: expected a floating-point ten",
    ),
    (
        lambda u: nn_ops.ctc_loss_v2(WORDS, SCORES, [1, 1], [3, 3], 3, np.float16),
        ProgramError,
        "out_dtype cannot be float16 when dtype of logits is float32.",
    ),
    (
        lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1, 2], [3, 3], 3),
        ProgramError,
        "label_length: expected lengths from 0 to 1",
    ),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1, 1], [3, 3], 0), ProgramError, "labels: expected classes from 0 to 3"),
    (
        lambda u: nn_ops.ctc_loss(WORDS[0], SCORES, [1, 1], [3, 3], 3),
        ProgramError,
        r"labels: expected a tensor of shape",
    ),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1.0, 1], [3, 3], 3), ProgramTypeError, "label_length: expected whole"),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1, 1], [3, 4], 3).array(), ModelError, "samples of 1 to 3, got 4 in 1"),
    (
        lambda u: nn_ops.ctc_beam_search_decoder(SCORES, [3, 4]),
        ProgramError,
        "lengths: expected from 0 to 3 time steps",
    ),
    (
        lambda u: nn_ops.ctc_beam_search_decoder(SCORES, [3, 3], 1, 2),
        ProgramError,
        "top_paths: expected at most beam_w",
    ),
    (
        lambda u: nn_ops.ctc_beam_search_decoder(SCORES, [3, 3], blank_index=4),
        ProgramError,
        "blank_index: expected one of 4",
    ),
    # Losses of some classes, and convolutions.
    (lambda u: nn_ops.nce_loss(X, X[0], [[1.0]], X, 1, 3), ProgramTypeError, "labels: expected whole numbers"),
    (
        lambda u: nn_ops.nce_loss(X, X[0], [[1]], X[:1], 1, 3),
        ProgramError,
        r"biases: expected a tensor of shape \(3,\)",
    ),
    (
        lambda u: nn_ops.nce_loss(X, X[:, 0], [[1]], X[:1], 4, 3),
        ProgramError,
        "num_sampled: expected at most range_max, 3",
    ),
    (lambda u: nn_ops.multi_conv(3), ProgramTypeError, "func: expected a function, got 3"),
    (
        lambda u: nn_ops.multi_conv(lambda x: x, options="50")(X),
        ProgramTypeError,
        "Expected the multi_conv `options` to be a `dict`, but got 50 instead.",
    ),
    # Slices, histograms, images, products.
    (
        lambda u: slicing_ops.sequence_slice(X, X, [1], [0, 1], [0], False),
        ProgramError,
        "num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.",
    ),
    (
        lambda u: slicing_ops.sequence_slice_unpack(X, [[1]], [0], 1),
        ProgramTypeError,
        "num_elems: expected a list or rank 1",
    ),
    (
        lambda u: slicing_ops.sequence_slice_pack(X, X, [1], [0, 1], False),
        ProgramError,
        "num_elems and dst_offsets must",
    ),
    (lambda u: slicing_ops.sequence_slice(X, X[:, 1:], [1], [0], [0], False), ProgramError, "inner shapes must match"),
    (lambda u: slicing_ops.sequence_slice(X, X[0], [1], [0], [0], False), ProgramError, "tensors of at least rank 2"),
    (
        lambda u: slicing_ops.sequence_slice(X, X, [2], [2], [0], False),
        ProgramError,
        "src: expected at least 4 rows for",
    ),
    (lambda u: slicing_ops.sequence_slice(X, X, [2], [0], [-1], False), ProgramError, "dst: expected at least 1 rows"),
    (lambda u: slicing_ops.sequence_slice(X, X, [1], [0], [0], 1), ProgramTypeError, "zero_unused: expected True or"),
    (
        lambda u: slicing_ops.sequence_slice(X, X.astype(int), [1], [0], [0], True),
        ProgramError,
        "src: expected the type of",
    ),
    (
        lambda u: statistics_ops.histogram([1], [1.0]),
        ProgramError,
        "Only float16 and float32 types are supported for hi",
    ),
    (lambda u: statistics_ops.histogram(X, [1.0]), ProgramError, "histogram expects rank-1 tensor inputs."),
    (lambda u: statistics_ops.histogram_update([1], [1.0], [1.0]), ProgramError, "hist must be of float32 type"),
    (
        lambda u: statistics_ops.histogram_update([1.0], [1], [1.0]),
        ProgramError,
        "Only float16 and float32 types are su",
    ),
    (
        lambda u: statistics_ops.histogram_update([1.0], X, [1.0]),
        ProgramError,
        "histogram_update expects rank-1 tensor",
    ),
    (
        lambda u: statistics_ops.histogram_update([1.0], [1.0], [1.0]),
        ProgramError,
        "hist and levels shapes are incompat",
    ),
    (
        lambda u: statistics_ops.fixed_width_bins([], 2),
        ProgramError,
        "inputs: expected a rank-1 tensor of floating-point",
    ),
    (lambda u: statistics_ops.fixed_width_bins([1.0], 0), ProgramError, "n_bins: expected a whole number from 1"),
    (
        lambda u: image_ops.normalise_image(X, X[0], X[0]),
        ProgramError,
        r"image: expected a tensor of shape \[X,Y,Z,3\]",
    ),
    (
        lambda u: image_ops.normalise_image(np.zeros((1, 1, 1, 3), int), X, X),
        ProgramError,
        "image: expected uint8, float",
    ),
    (
        lambda u: image_ops.normalise_image(np.zeros((1, 1, 1, 3), F), X, X),
        ProgramError,
        "channel_offsets: expected an ar",
    ),
    (
        lambda u: image_ops.normalise_image(np.zeros((1, 1, 1, 3), F), X[:, 0], X[:, 0], "1"),
        ProgramTypeError,
        "scale: expected a number, got '1'",
    ),
    (lambda u: math_ops.serialized_matmul(X, X[0], 1, "b_rows"), ProgramError, "a and b: expected stacks of as many"),
    (
        lambda u: math_ops.serialized_matmul(X, X, 1, "b_rows"),
        ProgramError,
        "a and b: expected as many columns as rows",
    ),
    (lambda u: math_ops.serialized_matmul(X, X.T, 2, "b_rows"), ModelError, "divides b_rows, which is 3, got 2"),
    (lambda u: math_ops.serialized_matmul(X, X.T, 1, "rows"), ModelError, "unknown serialization dimension 'rows'"),
    (
        lambda u: embedding_ops.embedding_lookup(X, [0], serialization_factor=2),
        ProgramError,
        r"a divisor of the rows of",
    ),
    (lambda u: rand_ops.dropout(X, 0.5, noise_shape=[2, 1]), ProgramError, "noise_shape: expected 1, or the size of x"),
    (
        lambda u: normalization_ops.group_norm(X, channels_axis=0),
        ProgramError,
        "channels_axis: expected an axis behind",
    ),
    # Operations of one's own.
    (
        lambda u: custom_ops.codelet_expression_op(3, X),
        ProgramTypeError,
        "vertex_expression: expected a function, got 3",
    ),
    (lambda u: custom_ops.codelet_expression_op(lambda: 1), ProgramError, "args: expected at least one tensor"),
    (
        lambda u: custom_ops.codelet_expression_op(lambda x: x.sum(), X),
        ModelError,
        "expected an array of the inputs' shape",
    ),
    (
        lambda u: custom_ops.cpu_user_operation([X], "./libop.so"),
        UnsupportedProgramError,
        "library_path: expected a file of Python .* as compiled libraries do not run .*, got './libop.so'$",
    ),
    (lambda u: custom_ops.cpu_user_operation([X], "nowhere.py"), ModelError, "'nowhere.py': cannot read .*nowhere.py"),
    (lambda u: custom_ops.cpu_user_operation(X, u), ProgramTypeError, "inputs: expected a list of tensors"),
    (lambda u: custom_ops.precompiled_user_op([X], u), ProgramError, "op_name: expected one of the functions Callback"),
    (
        lambda u: custom_ops.cpu_user_operation([X], u, [F]),
        ProgramTypeError,
        "outs: expected a dictionary of output_types",
    ),
    (lambda u: custom_ops.cpu_user_operation([X], u, outs() | {"output_types": [F]}), ProgramError, "as many types as"),
    (lambda u: custom_ops.cpu_user_operation([X], u, inputs_with_gradients=[1]), ProgramError, "places of 1 inputs"),
    (
        lambda u: custom_ops.cpu_user_operation([X], u, outs((4, 3))),
        ModelError,
        r"'UserOp': expected results \[float32\[4, 3\]\], as outs says, got \[float32\[3, 4\]\]",
    ),
    (
        lambda u: custom_ops.cpu_user_operation([X], u, op_name="Wrong", attributes="so"),
        ModelError,
        "user operation 'UserOp': RuntimeError: so",
    ),
    (
        lambda u: counted(lambda x: custom_ops.cpu_user_operation([x], u, outs((3, 4)), op_name="Free")[0], X),
        ModelError,
        "cost of user operation 'UserOp': expected a mapping of forward and backward to whole numbers of .*, got 12",
    ),
    (
        lambda u: counted(lambda x: custom_ops.cpu_user_operation([x], u, outs((3, 4)), op_name="Flat")[0], X),
        ModelError,
        r"gradient of user operation 'UserOp': expected a gradient of shape \(3, 4\) for input 0, got \(12,\)",
    ),
    (
        lambda u: picked(u, "none"),
        ModelError,
        r"gradient of user operation 'UserOp': expected a gradient of input 0, of shape \(3, 4\), got None",
    ),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_cannot_be_says_so(case, users):
    action, kind, text = WRONG[case]
    around = nullcontext() if "outside of" in text else Surrounded(lookup={}.setdefault)
    with around, pytest.raises(kind, match=text) as caught:
        action(users)
    assert isinstance(caught.value, IpusimError)


#: Arguments that are whole numbers: by name, what is called on them.
WHOLE = {
    "seq_len": lambda given: rnn_ops.PopnnDynamicGRU(2)(SCORES, given),
    "labels": lambda given: nn_ops.nce_loss(X, X[0], given, X, 1, 3),
    "true_classes": lambda given: tf.random.log_uniform_candidate_sampler(given, 1, 1, True, 3),
    "num_elems": lambda given: slicing_ops.sequence_slice_unpack(X, given, [0], 1),
    "label_length": lambda given: nn_ops.ctc_loss(WORDS, SCORES, given, [3, 3], 3),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_known_where_a_stage_is_traced(name):
    with Surrounded(lookup={}.setdefault):
        for given in ([1.5], [True], np.ones(1)):
            with pytest.raises(
                ProgramTypeError, match=f"^{name}: expected whole numbers that depend on no variable, got"
            ):
                WHOLE[name](given)
        with pytest.raises(ProgramTypeError, match=f"^{name}: expected whole numbers that depend on no variable, got"):
            autograd.grad(WHOLE[name])(np.ones(1))
        with pytest.raises(ProgramError, match=r"^Trying to capture the tensor <Placeholder 'fed'"):
            WHOLE[name](tf.placeholder(np.int32, [1], name="fed"))
    with pytest.raises(ProgramTypeError, match="has a value in a session alone"):
        WHOLE[name](tf.placeholder(np.int32, [1]))
