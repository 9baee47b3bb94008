"""Datasets by Keras' names: the forms that Keras gives them, drawn or read, and classes that models learn."""

import gzip
import pickle
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from ipusim.base.errors import FileError
from ipusim.ipu.keras import datasets
from tests.effort import rarest, slowest
from tests.keras_models import keras
from tests.programs import needs_tensorflow

#: Shapes and dtypes of images, and of labels, to train on; from Keras' own documentation of each dataset.
IMAGES = {
    "mnist": ((60_000, 28, 28), (60_000,), np.uint8, 10),
    "fashion_mnist": ((60_000, 28, 28), (60_000,), np.uint8, 10),
    "cifar10": ((50_000, 32, 32, 3), (50_000, 1), np.uint8, 10),
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty home, of which nothing has been said."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(datasets, "_ANNOUNCED_NAMES", set())
    folder = tmp_path / ".keras" / "datasets"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10", pytest.param("mnist", marks=slowest)])
def test_images_have_the_datasets_form_and_are_the_same_each_time(name):
    shape, labels_shape, label_dtype, classes = IMAGES[name]
    (x, y), (x_test, y_test) = getattr(datasets, name).load_data()
    assert (x.shape, x.dtype, y.shape, y.dtype) == (shape, np.uint8, labels_shape, label_dtype)
    assert (x_test.shape, y_test.shape) == ((10_000, *shape[1:]), (10_000, *labels_shape[1:]))
    assert (x.min(), x.max()) == (x_test.min(), x_test.max()) == (0, 255)
    assert set(y.ravel().tolist()) == set(y_test.ravel().tolist()) == set(range(classes))
    (again, labels_again), _ = getattr(datasets, name).load_data()
    assert np.array_equal(again, x)
    assert np.array_equal(labels_again, y)
    assert not np.array_equal(x[:100], x_test[:100])


def test_that_data_are_drawn_is_said_once(capsys, home):
    datasets.fashion_mnist.load_data()
    datasets.fashion_mnist.load_data()
    assert capsys.readouterr().err == (
        f"tf.keras.datasets.fashion_mnist is random data of the dataset's form: there is no {home / 'fashion-mnist'}\n"
    )


def _perceptron(layers):
    return [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)]


def _convolutions(layers):
    return [layers.Conv2D(8, 3, strides=2, activation="relu"), layers.MaxPooling2D(2), *_perceptron(layers)]


@pytest.mark.parametrize(
    ("name", "layers", "samples"),
    [
        ("mnist", _perceptron, 4000),
        pytest.param("cifar10", _convolutions, 4000, marks=rarest),
    ],
)
def test_models_learn_images_far_better_than_by_chance(name, layers, samples):
    needs_tensorflow()
    k = keras()
    k.utils.set_random_seed(1)
    (x, y), (x_test, y_test) = getattr(datasets, name).load_data()
    model = k.Sequential(layers(k.layers))
    model.compile(k.optimizers.Adam(0.002), k.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, x_test = ((each[:samples] / 255).reshape(samples, *each.shape[1:3], -1) for each in (x, x_test))
    model.fit(x, y[:samples], batch_size=32, epochs=2, verbose=0)
    found = model.predict(x_test[:1024], batch_size=32, verbose=0).argmax(1)
    assert (found == y_test[:1024].ravel()).mean() > 0.8


@pytest.fixture(scope="module")
def few_reviews():
    """Draw 6,000 reviews of each kind once for all tests, in place of 25,000 for each."""
    drawn = datasets.drawn_reviews(6000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "drawn_reviews", lambda _: drawn)
        yield


@slowest
@pytest.mark.usefixtures("few_reviews")
def test_reviews_are_lists_of_words_as_keras_numbers_them():
    (x, y), (x_test, y_test) = datasets.imdb.load_data(num_words=2000, maxlen=80, skip_top=10)
    assert x.dtype == x_test.dtype == object
    assert isinstance(x[0], list)
    assert type(x[0][0]) is int
    assert len(x) == len(y)
    assert len(x_test) == len(y_test)
    assert set(y.tolist()) == {0, 1}
    assert all(len(review) < 80 and review[0] == 2 for review in x)  # start_char is below skip_top
    numbers = {number for review in x for number in review}
    assert (min(numbers), max(numbers)) == (2, 1999)
    with pytest.raises(ValueError, match="shorter than maxlen=5, no sequence was kept"):
        datasets.imdb.load_data(maxlen=5)


@pytest.mark.usefixtures("few_reviews")
def test_words_tell_good_reviews_from_bad_ones():
    (x, y), (x_test, y_test) = datasets.imdb.load_data(num_words=2000, maxlen=150)
    counts = np.zeros((2, 2000))
    for review, label in zip(x[:5000], y[:5000], strict=True):
        np.add.at(counts[label], review, 1)
    shares = (counts + 1) / counts.sum(1, keepdims=True)
    weights = np.log(shares[1] / shares[0])
    right = [(weights[review].sum() > 0) == label for review, label in zip(x_test[:2000], y_test[:2000], strict=True)]
    assert np.mean(right) > 0.8


def _objects(*lists):
    array = np.empty(len(lists), object)
    array[:] = lists
    return array


def _images(shape):
    return np.arange(2 * np.prod(shape), dtype=np.uint32).astype(np.uint8).reshape(2, *shape)


def test_a_persons_own_files_are_read(home, capsys):
    digits, labels = _images((28, 28)), np.array([3, 4], np.uint8)
    np.savez(home / "mnist.npz", x_train=digits, y_train=labels, x_test=digits[::-1], y_test=labels[::-1])
    (x, y), (_, y_test) = datasets.mnist.load_data()
    assert np.array_equal(x, digits)
    assert y.tolist() == [3, 4]
    assert y_test.tolist() == [4, 3]
    (home / "fashion-mnist").mkdir()
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", digits), ("labels-idx1", labels)):
            sizes = np.array(array.shape, ">u4").tobytes()
            packed = gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())
            (home / "fashion-mnist" / f"{part}-{kind}-ubyte.gz").write_bytes(packed)
    assert np.array_equal(datasets.fashion_mnist.load_data()[1][0], digits)
    pictures = _images((3, 32, 32))
    batch = {b"data": pictures.reshape(2, -1), b"labels": [7, 8]}
    for name in [*(f"cifar-10-batches-py/data_batch_{n}" for n in range(1, 6)), "cifar-10-batches-py/test_batch"]:
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(pickle.dumps(batch, protocol=2))
    (x, y), (_x_test, y_test) = datasets.cifar10.load_data()
    assert np.array_equal(x[:2], pictures.transpose(0, 2, 3, 1))
    assert x.shape == (10, 32, 32, 3)
    assert y.tolist() == [[7], [8]] * 5
    assert y.dtype == y_test.dtype == np.uint8
    (home / "imdb.npz").write_bytes(_archive(_objects([5, 6, 7], [8, 9])))
    (x, y), _ = datasets.imdb.load_data()
    assert {tuple(review): label for review, label in zip(x, y, strict=True)} == {(1, 8, 9, 10): 0, (1, 11, 2): 1}
    assert capsys.readouterr().err == ""


class _Runs:
    def __reduce__(self):
        return Path.touch, (Path("ran"),)


def _archive(texts):
    file = BytesIO()
    np.savez(file, x_train=texts, y_train=[0, 1], x_test=texts, y_test=[0, 1])
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "content", "load", "why"),
    [
        ("cifar-10-batches-py/data_batch_1", pickle.dumps(_Runs()), datasets.cifar10.load_data, "a pickle of pathlib"),
        ("cifar-10-batches-py/data_batch_1", b"\x80\x02}", datasets.cifar10.load_data, "not a pickle"),
        ("cifar-10-batches-py/data_batch_1", pickle.dumps({b"data": [1]}), datasets.cifar10.load_data, "labels"),
        ("mnist.npz", b"PK", datasets.mnist.load_data, "not a NumPy archive"),
        ("imdb.npz", b"PK", datasets.imdb.load_data, "not a NumPy archive"),
        ("imdb.npz", _archive(_objects(_Runs(), _Runs())), datasets.imdb.load_data, "a pickle of pathlib"),
    ],
)
def test_files_that_are_not_the_dataset_are_refused_and_run_nothing(
    home, tmp_path, monkeypatch, file, content, load, why
):
    monkeypatch.chdir(tmp_path)
    (home / file).parent.mkdir(exist_ok=True)
    (home / file).write_bytes(content)
    with pytest.raises(FileError, match=why) as error:
        load()
    assert str(error.value).startswith(str(home / file.partition("/")[0]))
    assert not (tmp_path / "ran").exists()
