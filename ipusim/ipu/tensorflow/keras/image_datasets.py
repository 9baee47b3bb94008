"""``mnist``, ``fashion_mnist``, ``cifar10`` and ``cifar100`` of ``tf.keras.datasets``.

Images are those of the person's own files in ``~/.keras/datasets``, or drawn in the same shapes, dtypes and ranges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.errors import FileError, ProgramError
from ipusim.ipu.tensorflow.keras.dataset_folder import arrays_of, from_file_or_drawn, pickle_of
from ipusim.model.data.dataset_files import read_idx
from ipusim.model.data.stand_ins import DrawnImages
from ipusim.model.layers.layer import Array, Shape

#: Images to train on and to test on, each with labels.
Split = tuple[tuple[Array, Array], tuple[Array, Array]]

_DIGIT: Final[Shape] = (28, 28)
_PICTURE: Final[Shape] = (32, 32, 3)
#: Images in a file of CIFAR-10, which has five of them to train on.
_BATCH: Final = 10_000
_PARTS: Final = ("train", "t10k")


def _drawn(shape: Shape, train: int, seed: int, *, dark: bool, classes: int = 10) -> Split:
    images = DrawnImages(shape, classes, dark=dark, seed=seed)
    (x, y), (x_test, y_test) = images.draw(train), images.draw(10_000, 1)
    return (x, y.astype(np.uint8)), (x_test, y_test.astype(np.uint8))


def _checked(split: Split, shape: Shape) -> Split:
    """Return what a file holds; raises FileError where that is not images of a shape, each with a label."""
    for x, y in split:
        if x.shape[1:] != shape or x.dtype != np.uint8 or len(x) != len(y) or y.dtype.kind not in "iu":
            raise FileError(f"images are {x.dtype} of {x.shape}, labels {y.dtype} of {y.shape}")
    return split


def _digits(path: Path) -> Split:
    x, y, x_test, y_test = arrays_of(path, "x_train", "y_train", "x_test", "y_test")
    return _checked(((x, y), (x_test, y_test)), _DIGIT)


def _idx_files(path: Path) -> Split:
    train, test = (
        (read_idx(path / f"{part}-images-idx3-ubyte.gz"), read_idx(path / f"{part}-labels-idx1-ubyte.gz"))
        for part in _PARTS
    )
    return _checked((train, test), _DIGIT)


def _batch(path: Path, labels: str) -> tuple[Array, Array]:
    held: dict[bytes, Any] = pickle_of(path)
    pixels, numbers = np.asarray(held[b"data"]), np.asarray(held[labels.encode()])
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), numbers


def _cifar10(path: Path) -> Split:
    batches = [_batch(path / f"data_batch_{number}", "labels") for number in range(1, 6)]
    x, y = (np.concatenate([batch[part] for batch in batches]) for part in (0, 1))
    x_test, y_test = _batch(path / "test_batch", "labels")
    return _checked(((x, y.astype(np.uint8)), (x_test, y_test.astype(np.uint8))), _PICTURE)


def _in_columns(split: Split, dtype: Any) -> Split:
    """Return labels as Keras has CIFAR's: one in each row."""
    (x, y), (x_test, y_test) = split
    return (x, y.astype(dtype).reshape(-1, 1)), (x_test, y_test.astype(dtype).reshape(-1, 1))


class mnist:  # noqa: N801 - Keras' name of a module
    """Handwritten digits: 60,000 images of 28 x 28 pixels to train on and 10,000 to test on, in ten classes."""

    @staticmethod
    def load_data(path: str = "mnist.npz") -> Split:
        """Return (images, labels) to train on and to test on, in uint8; raises FileError for a file of another form."""
        return from_file_or_drawn("mnist", path, _digits, lambda: _drawn(_DIGIT, 60_000, 1, dark=True))


class fashion_mnist:  # noqa: N801 - Keras' name of a module
    """Articles of clothing: 60,000 images of 28 x 28 pixels to train on and 10,000 to test on, in ten classes."""

    @staticmethod
    def load_data() -> Split:
        """Return (images, labels) to train on and to test on, in uint8; raises FileError for files of another form."""
        draw = lambda: _drawn(_DIGIT, 60_000, 2, dark=True)  # noqa: E731 - one line
        return from_file_or_drawn("fashion_mnist", "fashion-mnist", _idx_files, draw)


class cifar10:  # noqa: N801 - Keras' name of a module
    """Pictures of 32 x 32 pixels in three colours: 50,000 to train on and 10,000 to test on, in ten classes."""

    @staticmethod
    def load_data() -> Split:
        """Return (images, labels) to train on and to test on, in uint8, labels as [N, 1].

        Raises FileError for files of another form.
        """
        draw = lambda: _drawn(_PICTURE, 50_000, 3, dark=False)  # noqa: E731 - one line
        return _in_columns(from_file_or_drawn("cifar10", "cifar-10-batches-py", _cifar10, draw), np.uint8)


class cifar100:  # noqa: N801 - Keras' name of a module
    """Pictures of 32 x 32 pixels in three colours: 50,000 to train on and 10,000 to test on, in 100 classes or 20."""

    @staticmethod
    def load_data(label_mode: str = "fine") -> Split:
        """Return (images, labels) to train on and to test on, in uint8 and int64, labels as [N, 1].

        Raises ProgramError for a ``label_mode`` other than "fine" and "coarse", FileError for files of another form.
        """
        if label_mode not in ("fine", "coarse"):
            raise ProgramError('`label_mode` must be one of `"fine"`, `"coarse"`.')

        def read(path: Path) -> Split:
            train, test = (_batch(path / part, f"{label_mode}_labels") for part in ("train", "test"))
            return _checked((train, test), _PICTURE)

        def draw() -> Split:
            (x, y), (x_test, y_test) = _drawn(_PICTURE, 50_000, 4, dark=False, classes=100)
            return ((x, y), (x_test, y_test)) if label_mode == "fine" else ((x, y // 5), (x_test, y_test // 5))

        return _in_columns(from_file_or_drawn("cifar100", "cifar-100-python", read, draw), np.int64)
