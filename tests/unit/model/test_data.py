"""Data: synthetic classes, targets and a language, files, and feeds."""

import gzip
import sys

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.data.dataset_files import digits, idx, npz, read_idx
from ipusim.model.data.datasets import Dataset, constant_predictor_loss
from ipusim.model.data.feed import Feed
from ipusim.model.data.synthetic import synthetic_classes, synthetic_targets, synthetic_tokens
from ipusim.model.functions.python_layer import PythonLoss
from ipusim.model.layers.layers import Dense, Flatten, Reshape
from ipusim.model.layers.losses import MeanSquaredError, SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages


def counting(samples=10):
    return Dataset(np.arange(samples * 2.0).reshape(samples, 2), np.arange(samples, dtype=np.int32), samples)


def test_astype_leaves_whole_numbers():
    dataset = counting().astype(np.float32)
    assert (dataset.x.dtype, dataset.y.dtype) == (np.float32, np.int32)


@pytest.mark.parametrize(("hold_out", "held"), [(0.3, 3), (4, 4), (0.25, 2), (9, 9)])
def test_split_parts_the_samples(hold_out, held):
    train, test = counting().split(hold_out, seed=1)
    assert len(test) == held
    assert sorted([*train.y, *test.y]) == list(range(10))
    np.testing.assert_array_equal(train.x[:, 0], 2 * train.y)
    again, _ = counting().split(hold_out, seed=1)
    np.testing.assert_array_equal(train.y, again.y)


@pytest.mark.parametrize("hold_out", [0, 0.01, 0.999, 10, -1, 1.5, float("nan"), float("inf")])
def test_split_refuses_an_empty_part(hold_out):
    with pytest.raises(
        ModelError, match=r"cannot hold out .* of 10 samples: expected a number from 1 to 9, or a fraction"
    ):
        counting().split(hold_out, seed=0)


def test_feed_without_shuffling_takes_samples_as_they_lie():
    feed = Feed(counting(), 4, shuffle=False)
    assert [feed.element(i)[1].tolist() for i in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]


def test_feed_counts_bytes():
    feed = Feed(counting().astype(np.float32), 4)
    assert (feed.label_bytes, feed.element_bytes) == (4 * 4, 4 * (2 * 4 + 4))


@pytest.mark.parametrize("size", [0, 11])
def test_feed_refuses_a_batch_it_cannot_fill(size):
    with pytest.raises(ModelError, match=f"micro-batch size from 1 to its 10 samples, got {size}"):
        Feed(counting(), size)


def train(dataset, layers, loss, rate, updates):
    network = Network(tuple(NamedLayer(f"l{i}", layer) for i, layer in enumerate(layers)), dataset.sample_shape, loss)
    (stage,) = build_stages(network, [network.names])
    parameters = stage.initial_parameters(0, np.float32)
    feed, losses = Feed(dataset, 32, seed=1), []
    for i in range(updates):
        value, saved = stage.bind(parameters).forward(*feed.element(i))
        gradients = {}
        _ = stage.bind(parameters).backward(saved, None, False, gradients.__setitem__)
        SGD(rate).apply(parameters, gradients, {})
        losses.append(float(value))
    return np.mean(losses[-10:])


@pytest.mark.parametrize(("shape", "classes"), [((28, 28), 10), ((8,), 4), ((2,), 2), ((3, 2, 2), 5)])
def test_synthetic_classes_are_learnt_by_a_hidden_layer_and_by_no_linear_one(shape, classes):
    dataset = synthetic_classes(shape, classes, 640, seed=3)
    loss = NamedLayer("loss", SoftmaxCrossEntropy())
    constant = constant_predictor_loss(dataset, loss.layer)
    assert constant == pytest.approx(np.log(classes), rel=1e-6)
    assert np.bincount(dataset.y).tolist() == [640 // classes] * classes
    assert train(dataset, [Flatten(), Dense(64, "relu"), Dense(classes)], loss, 0.05, 300) < 0.05 * constant
    if np.prod(shape) < 100:  # in many dimensions a linear layer can learn the noise by heart
        assert train(dataset, [Flatten(), Dense(classes)], loss, 0.01, 300) > 0.6 * constant


def test_synthetic_classes_may_outnumber_the_dimensions():
    dataset = synthetic_classes((2,), 5, 200, noise=0.0, seed=0)
    points = {tuple(np.round(np.abs(x), 3)) for x in dataset.x}
    assert len(points) == 5
    assert len({(tuple(np.round(np.abs(x), 3)), y) for x, y in zip(dataset.x, dataset.y, strict=True)}) == 5


def test_labels_in_a_row_are_the_class_and_those_that_follow_it():
    alone, in_a_row = (synthetic_classes((3, 2), 5, 60, seed=2, label_count=count) for count in (None, 7))
    np.testing.assert_array_equal(in_a_row.x, alone.x)
    assert in_a_row.y.dtype == np.int32
    assert in_a_row.y.tolist() == [[(label + place) % 5 for place in range(7)] for label in alone.y.tolist()]
    rows = synthetic_classes((3, 2), 3, 600, seed=3, label_count=3)
    loss = NamedLayer("loss", SoftmaxCrossEntropy())
    stack = [Flatten(), Dense(64, "relu"), Dense(9), Reshape((3, 3))]
    assert train(rows, stack, loss, 0.05, 300) < 0.05 * constant_predictor_loss(rows, loss.layer)


def test_synthetic_targets_are_learnt():
    dataset = synthetic_targets((6,), (3,), 640, seed=3)
    loss = NamedLayer("loss", MeanSquaredError())
    assert train(dataset, [Dense(3, "tanh")], loss, 0.5, 400) < 0.02 * constant_predictor_loss(dataset, loss.layer)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dataset(np.ones((0, 2)), np.ones(0, int), 2), "dataset: no samples"),
        (lambda: Dataset(np.ones((3, 2)), np.ones(2, int), 2), "3 samples but 2 labels"),
        (lambda: Dataset(np.full((1, 2), np.nan), np.ones(1, int), 2), "inputs hold values that are not finite"),
        (lambda: Dataset(np.ones((1, 2)), np.full(1, np.inf)), "labels hold values that are not finite"),
        (lambda: Dataset(np.ones((1, 2)), np.array(["a"])), "expected numbers as labels, got <U1"),
        (lambda: Dataset(np.ones((2, 2)), np.array([0, 2]), 2), "class numbers from 0 to 1, got 0 to 2"),
        (lambda: synthetic_classes((4,), 1, 10), "at least 2 classes, got 1"),
        (lambda: synthetic_classes((4,), 5, 4), "at least 5 samples, one for each class, got 4"),
        (lambda: synthetic_classes((0,), 2, 4), r"sizes from 1 upwards in a shape, got \(0,\)"),
        (lambda: synthetic_classes((4,), 2, 4, noise=-1), "noise of 0 or more, got -1"),
        (lambda: synthetic_targets((4,), (-1,), 4), r"sizes from 1 upwards in a shape, got \(-1,\)"),
        (lambda: synthetic_targets((4,), (1,), 0), "at least 1 sample, got 0"),
        (lambda: synthetic_tokens(0, 5, 3), "at least 1 token, got 3 of 0"),
        (lambda: synthetic_tokens(5, 5, 0), "at least 1 token, got 0 of 5"),
        (lambda: synthetic_tokens(5, 1, 3), "at least 2 tokens, got 1"),
        (lambda: synthetic_tokens(5, 5, 3, 1.5), "noise from 0 to 1, got 1.5"),
    ],
)
def test_data_that_cannot_be_are_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()


def test_constant_predictor_loss_by_hand():
    classes = Dataset(np.zeros((4, 1)), np.array([0, 0, 0, 1]), 2)
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert constant_predictor_loss(classes, SoftmaxCrossEntropy()) == pytest.approx(entropy, rel=1e-15)
    targets = Dataset(np.zeros((2, 1)), np.array([[0.0, 5.0], [2.0, 5.0]]))
    assert constant_predictor_loss(targets, MeanSquaredError()) == 0.5
    assert constant_predictor_loss(targets, PythonLoss(lambda x, labels: x)) is None


def test_digits_are_scikit_learns():
    dataset = digits()
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    np.testing.assert_array_equal(dataset.x, (theirs.images / 16).astype(np.float32))
    np.testing.assert_array_equal(dataset.y, theirs.target)
    assert dataset.x.shape == (1797, 8, 8)
    assert (dataset.x.dtype, dataset.y.dtype, dataset.classes) == (np.float32, np.int32, 10)
    assert (dataset.x.min(), dataset.x.max()) == (0, 1)


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModelError, match=r"pip install -e '\.\[digits\]' in a checkout"):
        digits()


def test_digits_that_scikit_learn_no_longer_has_say_which_file_is_not_there(monkeypatch):
    monkeypatch.setattr("ipusim.model.data.dataset_files._DIGITS", "datasets/data/none.csv.gz")
    with pytest.raises(ModelError, match=r"with the file datasets/data/none\.csv\.gz, got none: /.*none\.csv\.gz$"):
        digits()


def idx_bytes(array, code):
    header = bytes([0, 0, code, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.tobytes()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4) * 10
LABELS = np.array([3, 1], np.uint8)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_round_trip(tmp_path, pack):
    (tmp_path / "images").write_bytes(pack(idx_bytes(IMAGES, 8)))
    (tmp_path / "labels").write_bytes(pack(idx_bytes(LABELS, 8)))
    dataset = idx(tmp_path / "images", tmp_path / "labels")
    np.testing.assert_array_equal(dataset.x, IMAGES.astype(np.float32) / np.float32(255))
    assert (dataset.y.tolist(), dataset.y.dtype, dataset.classes) == ([3, 1], np.int32, 4)


@pytest.mark.parametrize(("code", "dtype"), [(0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")])
def test_idx_reads_every_type(tmp_path, code, dtype):
    array = np.array([[-1, 2, 100]], dtype)
    (tmp_path / "f").write_bytes(idx_bytes(array, code))
    read = read_idx(tmp_path / "f")
    np.testing.assert_array_equal(read, array)
    assert read.dtype.isnative


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file: .* got nothing"),
        (b"PNG....", "not an IDX file: .* got 50 4e 47 2e"),
        (bytes([0, 0, 7, 1, 0, 0, 0, 0]), "not an IDX file"),
        (bytes([0, 0, 8, 3, 0, 0]), "header of 3 axes needs 16 bytes, the file has 6"),
        (idx_bytes(IMAGES, 8)[:-1], r"shape \(2, 3, 4\), 40 bytes in all, the file has 39"),
        (idx_bytes(IMAGES, 8) + b"!", "40 bytes in all, the file has more"),
        (gzip.compress(idx_bytes(IMAGES, 8), mtime=0)[:-9], "the gzip data is damaged"),
        (b"\x1f\x8b\x08" + b"\0" * 30, "gzip|cannot be read"),
    ],
    ids=["empty", "other", "type", "header", "short", "long", "cut gzip", "bad gzip"],
)
def test_idx_refuses_damaged_files(tmp_path, data, message):
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ModelError, match=message):
        read_idx(tmp_path / "f")


def test_idx_refuses_files_that_do_not_belong_together(tmp_path):
    for name, array in (("images", IMAGES), ("labels", LABELS), ("one", LABELS[:1]), ("none", IMAGES[:0])):
        (tmp_path / name).write_bytes(idx_bytes(array, 8))
    with pytest.raises(ModelError, match=r"holds 2 images but .* 1 labels"):
        idx(tmp_path / "images", tmp_path / "one")
    with pytest.raises(ModelError, match="one whole-number label for each image"):
        idx(tmp_path / "images", tmp_path / "images")
    with pytest.raises(ModelError, match="at least one axis each"):
        idx(tmp_path / "labels", tmp_path / "labels")
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        idx(tmp_path / "nowhere", tmp_path / "labels")


def test_npz_gives_classes_or_targets(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2), np.uint8), y=np.array([0, 4, 2], np.int64), t=np.ones((3, 1)))
    classes, targets = npz(tmp_path / "d.npz"), npz(tmp_path / "d.npz", y="t")
    assert (classes.x.dtype, classes.y.dtype, classes.classes) == (np.float32, np.int32, 5)
    assert (targets.y.dtype, targets.y.shape, targets.classes) == (np.float32, (3, 1), None)


def test_npz_says_what_is_wrong(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2)), o=np.array([{}, {}, {}], object), y=np.zeros(0))
    (tmp_path / "t.npz").write_text("hello")
    for name, y, message in (
        ("d.npz", "z", "no array 'z'; it holds x, o, y"),
        ("d.npz", "y", "expected array 'y' to hold numbers, got float64 of"),
        ("t.npz", "y", "not a NumPy archive"),
        ("none.npz", "y", "cannot be read: No such file"),
    ):
        with pytest.raises(ModelError, match=message):
            npz(tmp_path / name, y=y)


def test_float64_data_keep_every_bit(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 3))
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(4))
    np.testing.assert_array_equal(npz(tmp_path / "d.npz", dtype=np.float64).x, x)
    assert npz(tmp_path / "d.npz").x.dtype == np.float32
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "x").write_bytes(idx_bytes(images, 8))
    (tmp_path / "y").write_bytes(idx_bytes(np.array([1, 0], np.uint8), 8))
    np.testing.assert_array_equal(idx(tmp_path / "x", tmp_path / "y", np.float64).x, images / 255)


@pytest.mark.parametrize("labels", [[2**32, 2**32 + 1], [-1, 0], [10**12, 0]])
def test_labels_that_name_no_class_are_refused_as_they_are(tmp_path, labels):
    np.savez(tmp_path / "d.npz", x=np.ones((2, 2)), y=np.array(labels))
    text = f"expected class numbers from 0 to 1048575, got {min(labels)} to {max(labels)}"
    with pytest.raises(ModelError, match=text):
        npz(tmp_path / "d.npz")


def test_inputs_too_large_for_the_precision_are_refused_without_a_warning(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.full((2, 2), 1e300), y=np.arange(2))
    with pytest.raises(ModelError, match="inputs hold values that are not finite"):
        npz(tmp_path / "d.npz")
    assert npz(tmp_path / "d.npz", dtype=np.float64).x[0, 0] == 1e300


def test_labels_are_the_next_tokens():
    data = synthetic_tokens(9, 7, 50, seed=1)
    assert data.x.shape == data.y.shape == (50, 9)
    assert data.x.dtype == data.y.dtype == np.int32
    np.testing.assert_array_equal(data.x[:, 1:], data.y[:, :-1])
    assert data.classes == 7
    assert set(np.unique(data.x)) == set(range(7))


def test_without_noise_two_tokens_tell_the_next_and_one_does_not():
    data = synthetic_tokens(12, 5, 400, noise=0.0, seed=2)
    after_two, after_one = {}, {}
    for x, y in zip(data.x, data.y, strict=True):
        for place in range(1, 12):
            after_two.setdefault((x[place - 1], x[place]), set()).add(int(y[place]))
            after_one.setdefault(int(x[place]), set()).add(int(y[place]))
    assert len(after_two) == 25
    assert all(len(following) == 1 for following in after_two.values())
    assert all(len(following) == 5 for following in after_one.values())


def test_noise_is_the_share_of_tokens_that_are_drawn():
    plain, noisy = synthetic_tokens(2, 100, 20_000, 0.0, 3), synthetic_tokens(2, 100, 20_000, 0.4, 3)
    np.testing.assert_array_equal(plain.x, noisy.x)
    assert (plain.y[:, 1] != noisy.y[:, 1]).mean() == pytest.approx(0.4 * 0.99, abs=0.01)


def test_the_same_seed_gives_the_same_tokens():
    first, again, other = (synthetic_tokens(5, 9, 30, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)
