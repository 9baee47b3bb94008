"""Operations of Graphcore's API on TensorFlow: what they print, cost and refuse."""

import numpy as np
import pytest

from ipusim.base.errors import IpusimError, ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.model.work import MeasuredWork, VectorWork, Work
from tests.programs import tensorflow
from tests.traced_training import Lazily, on_ipus, profile_of, train

pytestmark = pytest.mark.usefixtures("tf")

X = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)
custom_ops, embedding_ops, image_ops = Lazily("custom_ops"), Lazily("embedding_ops"), Lazily("image_ops")
internal_ops, math_ops, nn_ops = Lazily("internal_ops"), Lazily("math_ops"), Lazily("nn_ops")
normalization_ops, rand_ops, rnn_ops = Lazily("normalization_ops"), Lazily("rand_ops"), Lazily("rnn_ops")
slicing_ops, statistics_ops = Lazily("slicing_ops"), Lazily("statistics_ops")


def test_a_stage_prints_in_each_of_its_passes_and_not_before(tf, capsys):
    def stage(x):
        internal_ops.print_tensor(x, "x")
        return x * tf.compat.v1.get_variable("w", [], initializer=tf.ones_initializer())

    def last(x):
        loss = tf.reduce_sum(x)
        return loss, internal_ops.print_tensor(x[0])

    train(lambda _: [stage, lambda x: last(x)[0]], [np.ones(16, np.float32)], batch=2, repeat_count=1)
    lines = capsys.readouterr().err.splitlines()
    assert (lines.count("x: [1., 1.]"), lines.count("1."), len(lines)) == (4, 4, 8)


def test_whole_numbers_are_counted_too():
    """No gradient goes back through them; what is done with them takes its time all the same."""
    image, ones = np.zeros((2, 4, 4, 3), np.uint8), np.ones(3, np.float32)
    stage = profile_of(lambda tf, x: image_ops.normalise_image(x, ones, ones), image, trained=False)
    assert stage.forward == (Work(vector=VectorWork(3 * 96), sram_bytes=96 + 128 * 2, itemsize=2),)
    rows = np.zeros((6, 2), np.int32)
    (moved,) = profile_of(
        lambda tf, x: slicing_ops.sequence_slice_unpack(x, [2, 1], [0, 4], 4), rows, trained=False
    ).forward
    assert (moved.sram_bytes, moved.exchange_bytes, moved.compute_sets) == ((2 * 6 + 8) * 4, 6 * 4, 2)


def work_of(function, x=X):
    """Return the works of both passes of an operation, without those of the sum behind it."""
    stage = profile_of(lambda tf, x: function(x), x)
    (there, *_), back = stage.forward, stage.backward
    return there, back


def test_the_cost_of_operations_by_hand(tf):
    there, back = work_of(lambda x: math_ops.serialized_matmul(x, tf.transpose(x), 2, "a_rows_b_columns"))
    assert there.macs == 3 * 4 * 3
    assert there.products[0].times == 2
    assert there.sram_bytes == 4 * (12 + 12 + 9 + 2 * 9)
    assert [work.macs for work in back if work.products] == [2 * 3 * 4 * 3]
    levels = np.float32([0, 1])
    (there,) = profile_of(lambda tf, x: statistics_ops.histogram(tf.reshape(x, [-1]), levels), X, trained=False).forward
    assert there.vector == VectorWork(12 * 2 + 3, reductions=12)
    assert there.compute_sets == 3
    (there,) = profile_of(
        lambda tf, x: statistics_ops.fixed_width_bins(tf.reshape(x, [-1]), 5), X, trained=False
    ).forward
    assert there.vector == VectorWork(10, reductions=24)
    (there,) = profile_of(
        lambda tf, x: nn_ops.ctc_beam_search_decoder(x, [3, 3], 5)[0], np.zeros((3, 2, 4), np.float32), trained=False
    ).forward
    assert there.vector == 2 * 3 * 5 * 4 * VectorWork(4, 1, 0, 2) + 24 * VectorWork(1, 2, 0, 1)
    assert there.compute_sets == 4 * 3 + 5


def test_lookups_in_parts_give_the_same_and_read_the_ids_again():
    ids = np.array([2, 0, 2])
    whole, parts = (
        profile_of(
            lambda tf, x, n=n: embedding_ops.embedding_lookup(x, ids, serialization_factor=n), X[:2].repeat(2, 0)
        )
        for n in (1, 2)
    )
    (one, *_), (two, *_) = whole.forward, parts.forward
    assert two.sram_bytes == 2 * one.sram_bytes + 3 * 3 * 4 * 4
    assert (two.vector, two.compute_sets) == (VectorWork(12), 2 * one.compute_sets + 1)
    found = on_ipus(lambda: embedding_ops.embedding_lookup(X, [2, 0, 2], serialization_factor=3))
    np.testing.assert_array_equal(found, X[[2, 0, 2]])


def test_a_mask_of_fewer_axes_drops_whole_rows():
    found = on_ipus(lambda: rand_ops.dropout(np.ones((50, 4), np.float32), 0.5, noise_shape=(None, 1)))
    assert set(found.sum(axis=1).tolist()) == {0, 8}


def test_partial_sums_in_half_precision(tf):
    for bits, options in ((16, {"partials_dtype": np.float16}), (32, {})):
        there, back = work_of(lambda x, options=options: rnn_ops.PopnnGRU(2, **options)(x[:, None])[0])
        assert {there.partials_itemsize, next(w for w in back if w.products).partials_itemsize} == {bits // 8}


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
    stage = profile_of(
        lambda tf, x: custom_ops.precompiled_user_op([x], users, outs=two, op_name="Priced")[1], X, trained=False
    )
    assert stage.forward == (MeasuredWork(cycles=120),)
    there, back = work_of(lambda x: custom_ops.precompiled_user_op([x], users, "", outs((3, 4)), op_name="Callback")[0])
    assert there == Work(vector=VectorWork(12), sram_bytes=96)
    assert Work(vector=VectorWork(12), sram_bytes=4 * 48) in back
    assert on_ipus(lambda: custom_ops.cpu_user_operation([], users, op_name="Nothing")) == []


def picked(users, attributes=None):
    """The gradient of a row that a user's operation has picked, squared."""
    tf = tensorflow()
    x = tf.constant(X)
    named = {"op_name": "Picked", "gradient_attributes": attributes}
    (row,) = custom_ops.cpu_user_operation([x, np.array([1])], users, outs((1, 4)), **named)
    return tf.gradients(tf.reduce_sum(row * row), [x])[0]


def test_whole_numbers_need_no_gradient_of_a_user_operation(users):
    np.testing.assert_array_equal(on_ipus(lambda: picked(users)), [0 * X[0], 2 * X[1], 0 * X[2]])


LENGTHS = np.array([1, 2])
SCORES = np.zeros((3, 2, 4), np.float32)
WORDS = np.zeros((2, 1), np.int32)
F = np.float32
OF_PROGRAM_ERROR = [
    (lambda u: rnn_ops.PopnnLSTM(0), "num_units: expected a whole number from 1"),
    (lambda u: rnn_ops.PopnnLSTM(2, np.int32), "Only support float16, float32, provided <class 'numpy.int32'>"),
    (lambda u: rnn_ops.PopnnGRU(2).build((3, 4)), "Expecting input_shape with 3 dims, got 2"),
    (lambda u: rnn_ops.PopnnGRU(2).build((3, 4, None)), "The last dimension of the inputs"),
    (lambda u: rnn_ops.PopnnGRU(2)(X), "Expecting input_shape with 3 dims, got 2"),
    (
        lambda u: rnn_ops.PopnnLSTM(2)(SCORES, np.zeros((2, 2))),
        "Invalid initial_state type: `<class 'numpy.ndarray'>`, expecting `LSTMStateTuple`.",
    ),
    (lambda u: rnn_ops.PopnnGRU(2)(SCORES, np.zeros((3, 2), F)), r"of shape \(2, 2\), got \(3, 2\)"),
    (lambda u: rnn_ops.PopnnDynamicGRU(2)(SCORES, [1, 4]), "seq_len: expected 2 lengths from 0 to 3"),
    (
        lambda u: rnn_ops.PopnnAUGRU(2)(SCORES, LENGTHS, np.zeros((3, 2), F)),
        r"attention_score: expected a tensor of shape \(2, 3\), got \(3, 2\)",
    ),
    (lambda u: nn_ops.ctc_loss_v2(WORDS, X, LENGTHS, LENGTHS, 0), r"logits: expected a floating-point ten"),
    (
        lambda u: nn_ops.ctc_loss_v2(WORDS, SCORES, [1, 1], [3, 3], 3, np.float16),
        "out_dtype cannot be float16 when dtype of logits is float32.",
    ),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1, 2], [3, 3], 3), "label_length: expected lengths from 0 to 1"),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1, 1], [3, 3], 0), "labels: expected classes from 0 to 3"),
    (lambda u: nn_ops.ctc_loss(WORDS[0], SCORES, [1, 1], [3, 3], 3), r"labels: expected a tensor of shape"),
    (lambda u: nn_ops.ctc_beam_search_decoder(SCORES, [3, 4]), "lengths: expected from 0 to 3 time steps"),
    (lambda u: nn_ops.ctc_beam_search_decoder(SCORES, [3, 3], 1, 2), "top_paths: expected at most beam_w"),
    (lambda u: nn_ops.ctc_beam_search_decoder(SCORES, [3, 3], blank_index=4), "blank_index: expected one of 4"),
    (lambda u: nn_ops.nce_loss(X, X[0], [[1]], X[:1], 1, 3), r"biases: expected a tensor of shape \(3,\)"),
    (lambda u: nn_ops.nce_loss(X, X[:, 0], [[1]], X[:1], 4, 3), "num_sampled: expected at most range_max, 3"),
    (
        lambda u: slicing_ops.sequence_slice(X, X, [1], [0, 1], [0], False),
        "num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.",
    ),
    (lambda u: slicing_ops.sequence_slice_pack(X, X, [1], [0, 1], False), "num_elems and dst_offsets must"),
    (lambda u: slicing_ops.sequence_slice(X, X[:, 1:], [1], [0], [0], False), "inner shapes must match"),
    (lambda u: slicing_ops.sequence_slice(X, X[0], [1], [0], [0], False), "tensors of at least rank 2"),
    (
        lambda u: slicing_ops.sequence_slice(X, X, [2], [2], [0], False),
        "src: expected slice 0 inside its 3 rows, got 2 rows from row 2 on",
    ),
    (lambda u: slicing_ops.sequence_slice(X, X, [2], [0], [-1], False), "dst: .* got 2 rows from row -1 on"),
    (
        lambda u: slicing_ops.sequence_slice(X, X, [1, -1], [0, 0], [0, 1], False),
        "src: expected slice 1 .* got -1 rows",
    ),
    (lambda u: slicing_ops.sequence_slice(X, X.astype(int), [1], [0], [0], True), "src: expected the type of"),
    (lambda u: statistics_ops.histogram([1], [1.0]), "Only float16 and float32 types are supported for hi"),
    (lambda u: statistics_ops.histogram(X, [1.0]), "histogram expects rank-1 tensor inputs."),
    (lambda u: statistics_ops.histogram_update([1], [1.0], [1.0]), "hist must be of float32 type"),
    (lambda u: statistics_ops.histogram_update([1.0], [1], [1.0]), "Only float16 and float32 types are su"),
    (lambda u: statistics_ops.histogram_update([1.0], X, [1.0]), "histogram_update expects rank-1 tensor"),
    (lambda u: statistics_ops.histogram_update([1.0], [1.0], [1.0]), "hist and levels shapes are incompat"),
    (lambda u: statistics_ops.fixed_width_bins([], 2), "inputs: expected a rank-1 tensor of floating-point"),
    (lambda u: statistics_ops.fixed_width_bins([1.0], 0), "n_bins: expected a whole number from 1"),
    (lambda u: image_ops.normalise_image(X, X[0], X[0]), r"image: expected a tensor of shape \[X,Y,Z,3\]"),
    (lambda u: image_ops.normalise_image(np.zeros((1, 1, 1, 3), int), X, X), "image: expected uint8, float"),
    (lambda u: image_ops.normalise_image(np.zeros((1, 1, 1, 3), F), X, X), "channel_offsets: expected an ar"),
    (lambda u: math_ops.serialized_matmul(X, X[0], 1, "b_rows"), "a and b: expected stacks of as many"),
    (lambda u: math_ops.serialized_matmul(X, X, 1, "b_rows"), "a and b: expected as many columns as rows"),
    (
        lambda u: embedding_ops.embedding_lookup(X, [0], serialization_factor=2),
        r"The serialization_factor \(2\) must divide the size of the 0th dimension of params \(3\)",
    ),
    (lambda u: rand_ops.dropout(X, 0.5, noise_shape=[2, 1]), "noise_shape: expected 1, or the size of x"),
    (lambda u: normalization_ops.group_norm(X, channels_axis=0), "channels_axis: expected an axis after"),
    (lambda u: custom_ops.codelet_expression_op(lambda: 1), "args: expected at least one tensor"),
    (lambda u: custom_ops.precompiled_user_op([X], u), "op_name: expected one of the functions Callback"),
    (lambda u: custom_ops.cpu_user_operation([X], u, outs() | {"output_types": [F]}), "as many types as"),
    (lambda u: custom_ops.cpu_user_operation([X], u, inputs_with_gradients=[1]), "places of 1 inputs"),
]
OF_MODEL_ERROR = [
    (lambda u: rnn_ops.PopnnLSTM(2, activation="softmax"), "in a recurrent layer, got 'softmax'"),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1, 1], [3, 4], 3), "samples of 1 to 3 time steps, got 4 in sample 1"),
    (lambda u: math_ops.serialized_matmul(X, X.T, 2, "b_rows"), "divides b_rows, which is 3, got 2"),
    (lambda u: math_ops.serialized_matmul(X, X.T, 1, "rows"), "unknown serialization dimension 'rows'"),
    (lambda u: custom_ops.codelet_expression_op(lambda x: x.sum(), X), "expected an array of the inputs' shape"),
    (lambda u: custom_ops.cpu_user_operation([X], "nowhere.py"), "'nowhere.py': cannot read .*nowhere.py"),
    (
        lambda u: custom_ops.cpu_user_operation([X], u, outs((4, 3))),
        r"'UserOp': expected results \[float32\[4, 3\]\], as in outs, got \[float32\[3, 4\]\]",
    ),
    (
        lambda u: custom_ops.cpu_user_operation([X], u, op_name="Wrong", attributes="so"),
        "user operation 'UserOp': RuntimeError: so",
    ),
    (
        lambda u: profile_of(
            lambda tf, x: custom_ops.cpu_user_operation([x], u, outs((3, 4)), op_name="Free")[0], X, trained=False
        ),
        "cost of user operation 'UserOp': expected a mapping of forward and backward to whole numbers of .*, got 12",
    ),
    (
        lambda u: profile_of(lambda tf, x: custom_ops.cpu_user_operation([x], u, outs((3, 4)), op_name="Flat")[0], X),
        r"gradient of user operation 'UserOp': expected a gradient of shape \(3, 4\) for input 0, got \(12,\)",
    ),
    (
        lambda u: picked(u, "none"),
        r"gradient of user operation 'UserOp': expected a gradient of input 0, of shape \(3, 4\), got None",
    ),
]
OF_PROGRAM_TYPE_ERROR = [
    (lambda u: rnn_ops.PopnnDynamicGRU(2)(SCORES, [1.0, 2]), "seq_len: expected whole numbers"),
    (lambda u: nn_ops.ctc_loss(WORDS, SCORES, [1.0, 1], [3, 3], 3), "label_length: expected whole"),
    (lambda u: nn_ops.nce_loss(X, X[0], [[1.0]], X, 1, 3), "labels: expected whole numbers"),
    (lambda u: nn_ops.multi_conv(3), "func: expected a function, got 3"),
    (
        lambda u: nn_ops.multi_conv(lambda x: x, options="50")(X),
        "Expected the multi_conv `options` to be a `dict`, but got 50 instead.",
    ),
    (lambda u: slicing_ops.sequence_slice_unpack(X, [[1]], [0], 1), "num_elems: expected a list or rank 1"),
    (lambda u: slicing_ops.sequence_slice(X, X, [1], [0], [0], 1), "zero_unused: expected True or"),
    (
        lambda u: image_ops.normalise_image(np.zeros((1, 1, 1, 3), F), X[:, 0], X[:, 0], "1"),
        "scale: expected a number, got '1'",
    ),
    (lambda u: custom_ops.codelet_expression_op(3, X), "vertex_expression: expected a function, got 3"),
    (lambda u: custom_ops.cpu_user_operation(X, u), "inputs: expected a list of tensors"),
    (lambda u: custom_ops.cpu_user_operation([X], u, [F]), "outs: expected a dictionary of output_types"),
]
OF_UNSUPPORTED_PROGRAM_ERROR = [
    (
        lambda u: custom_ops.cpu_user_operation([X], "./libop.so"),
        "library_path: expected a file of Python .* because compiled libraries do not run .*, got './libop.so'$",
    ),
]
WRONG = {
    ProgramError: OF_PROGRAM_ERROR,
    ModelError: OF_MODEL_ERROR,
    ProgramTypeError: OF_PROGRAM_TYPE_ERROR,
    UnsupportedProgramError: OF_UNSUPPORTED_PROGRAM_ERROR,
}


@pytest.mark.parametrize(("kind", "case"), [(kind, number) for kind in WRONG for number in range(len(WRONG[kind]))])
def test_what_cannot_be_says_so(kind, case, users):
    action, text = WRONG[kind][case]
    with pytest.raises(kind, match=text) as caught:
        on_ipus(lambda: action(users))
    assert isinstance(caught.value, IpusimError)
