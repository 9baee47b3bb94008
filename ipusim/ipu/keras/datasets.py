"""Load ``tf.keras.datasets``: a user's own files where Keras keeps them, else drawn data of the same form."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from ipusim.api import Array, Shape, datasets
from ipusim.base.errors import FileError
from ipusim.base.files import open_file, read_arrays, read_up_to
from ipusim.base.plain_pickles import unpickled
from ipusim.ipu.keras.stand_ins import DrawnImages, drawn_reviews
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import replaced

T = TypeVar("T")

#: Maximum size of a pickled file in bytes, several times the size of the largest dataset.
_MAX_BYTES: Final = 1 << 29
#: Datasets already announced as drawn in this process.
_ANNOUNCED_NAMES: Final[set[str]] = set()


def path_of(file: str) -> Path:
    """Return the path at which Keras keeps a dataset's file; absolute paths stay."""
    return Path.home() / ".keras" / "datasets" / checks.path("path", file)


def from_file_or_drawn(dataset: str, file: str, read: Callable[[Path], T], draw: Callable[[], T]) -> T:
    """Read a dataset from a user's file, or draw it if the file does not exist.

    The first draw of a dataset is announced on standard error. Raises FileError with the file's name if the file is not
    readable or does not hold the dataset.
    """
    path = path_of(file)
    if not path.exists():
        if dataset not in _ANNOUNCED_NAMES:
            _ANNOUNCED_NAMES.add(dataset)
            print(
                f"tf.keras.datasets.{dataset} is random data of the dataset's form: there is no {path}", file=sys.stderr
            )
        return draw()
    try:
        return read(path)
    except (OSError, FileError, ValueError, TypeError, LookupError) as error:
        raise FileError(f"{path}: expected {dataset} in the format of Keras, got another file: {error}") from error


def arrays_of(path: Path, *names: str) -> list[Array]:
    """Return arrays of a NumPy archive, including lists of numbers; raises OSError and FileError."""
    with open_file(path) as file:
        arrays = read_arrays(file, names, unpickle=unpickled)
    return [arrays[name] for name in names]


def _content(path: Path) -> bytes:
    """Return a file's bytes; raises FileError if the file is too large."""
    with open_file(path) as file:
        content = read_up_to(file, _MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise FileError(f"expected at most {_MAX_BYTES >> 20} MiB")
    return bytes(content)


#: Training and test images with labels.
TrainTestArrays = tuple[tuple[Array, Array], tuple[Array, Array]]

#: Names of the arrays in Keras' archives.
_ARRAY_NAMES: Final = ("x_train", "y_train", "x_test", "y_test")
#: Shape of images in MNIST and Fashion-MNIST.
_DIGIT_SHAPE: Final[Shape] = (28, 28)
#: Shape of CIFAR-10's images.
_PICTURE_SHAPE: Final[Shape] = (32, 32, 3)
#: Prefixes of Fashion-MNIST's files for training and for testing.
_FILE_PREFIXES: Final = ("train", "t10k")


def _draw_images(shape: Shape, train: int, seed: int, *, dark: bool) -> TrainTestArrays:
    """Draw ``train`` images for training and 10,000 for testing, in ten classes."""
    images = DrawnImages(shape, dark=dark, seed=seed)
    (x, y), (x_test, y_test) = images.draw(train), images.draw(10_000, 1)
    return (x, y.astype(np.uint8)), (x_test, y_test.astype(np.uint8))


def _check_arrays(arrays: TrainTestArrays, shape: Shape) -> TrainTestArrays:
    """Return a file's contents; raises FileError unless they are labelled images of the given shape."""
    for x, y in arrays:
        if x.shape[1:] != shape or x.dtype != np.uint8 or len(x) != len(y) or y.dtype.kind not in "iu":
            raise FileError(f"images are {x.dtype} of {x.shape}, labels {y.dtype} of {y.shape}")
    return arrays


def _digits(path: Path) -> TrainTestArrays:
    """Read MNIST from Keras' archive."""
    x, y, x_test, y_test = arrays_of(path, *_ARRAY_NAMES)
    return _check_arrays(((x, y), (x_test, y_test)), _DIGIT_SHAPE)


def _idx_files(path: Path) -> TrainTestArrays:
    """Read Fashion-MNIST from a folder of compressed idx files."""

    def read(name: str) -> Array:
        return datasets.read_idx(path / f"{name}-ubyte.gz")

    train, test = ((read(f"{part}-images-idx3"), read(f"{part}-labels-idx1")) for part in _FILE_PREFIXES)
    return _check_arrays((train, test), _DIGIT_SHAPE)


def _batch(path: Path) -> tuple[Array, Array]:
    """Read images and labels of one of CIFAR-10's pickled files."""
    arrays: dict[bytes, Any] = unpickled(_content(path))
    pixels, numbers = np.asarray(arrays[b"data"]), np.asarray(arrays[b"labels"])
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), numbers.astype(np.uint8)


def _cifar10(path: Path) -> TrainTestArrays:
    """Read CIFAR-10 from a folder of pickled files."""
    batches = [_batch(path / f"data_batch_{number}") for number in range(1, 6)]
    x, y = (np.concatenate([batch[part] for batch in batches]) for part in (0, 1))
    return _check_arrays(((x, y), _batch(path / "test_batch")), _PICTURE_SHAPE)


class mnist:  # noqa: N801 - Keras' name of a module
    """Handwritten digits in ten classes: 60,000 training and 10,000 test images of 28 x 28 pixels."""

    @staticmethod
    def load_data(path: str = "mnist.npz") -> TrainTestArrays:
        """Return training and test (images, labels) in uint8; raises FileError for a file of another form."""
        return from_file_or_drawn("mnist", path, _digits, lambda: _draw_images(_DIGIT_SHAPE, 60_000, 1, dark=True))


class fashion_mnist:  # noqa: N801 - Keras' name of a module
    """Articles of clothing in ten classes: 60,000 training and 10,000 test images of 28 x 28 pixels."""

    @staticmethod
    def load_data() -> TrainTestArrays:
        """Return training and test (images, labels) in uint8; raises FileError for files of another form."""
        draw = lambda: _draw_images(_DIGIT_SHAPE, 60_000, 2, dark=True)  # noqa: E731 - one line
        return from_file_or_drawn("fashion_mnist", "fashion-mnist", _idx_files, draw)


class cifar10:  # noqa: N801 - Keras' name of a module
    """Coloured pictures in ten classes: 50,000 training and 10,000 test images of 32 x 32 pixels."""

    @staticmethod
    def load_data() -> TrainTestArrays:
        """Return training and test (images, labels) in uint8, labels as [N, 1].

        Raises FileError for files of another form.
        """
        draw = lambda: _draw_images(_PICTURE_SHAPE, 50_000, 3, dark=False)  # noqa: E731 - one line
        (x, y), (x_test, y_test) = from_file_or_drawn("cifar10", "cifar-10-batches-py", _cifar10, draw)
        return (x, y[:, None]), (x_test, y_test[:, None])


class imdb:  # noqa: N801 - Keras' name of a module
    """Film reviews as lists of word numbers, bad (0) or good (1): 25,000 for training and 25,000 for testing."""

    @staticmethod
    def load_data(path: str = "imdb.npz", *arguments: Any, **options: Any) -> TrainTestArrays:
        """Return training and test (reviews, labels), as tf_keras makes them from a file.

        Args:
            path: path of the file below ``~/.keras/datasets``.
            arguments, options: other arguments of tf_keras' function, such as ``num_words`` and ``maxlen``.

        Raises FileError for a file of another form, and tf_keras' errors.
        """
        x, y, x_test, y_test = from_file_or_drawn(
            "imdb", path, lambda file: tuple(arrays_of(file, *_ARRAY_NAMES)), lambda: drawn_reviews(25_000)
        )
        archive = io.BytesIO()
        np.savez(archive, x_train=x, y_train=y, x_test=x_test, y_test=y_test)
        archive.seek(0)
        module: Any = import_module("tf_keras.src.datasets.imdb")
        with replaced(module, get_file=lambda *_, **__: archive):
            result: TrainTestArrays = module.load_data(path, *arguments, **options)
        return result


class synthetic:  # noqa: N801 - a module to programs
    """Drawn images in classes as a stand-in for MNIST, as a scenario's `type: synthetic` draws them."""

    @staticmethod
    def load_data(samples: int = 5120, test_samples: int = 512, seed: int = 1) -> TrainTestArrays:
        """Return training and test (images, labels): 28 x 28 pixels in float32, 10 classes in int32."""
        train, test = (datasets.synthetic_classes((28, 28), 10, count, seed=seed) for count in (samples, test_samples))
        return (train.x, train.y), (test.x, test.y)
