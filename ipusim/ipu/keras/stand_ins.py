"""Draw stand-ins for well-known datasets: seeded images and texts that models can learn from."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Array, Shape

_CLASSES = 10
#: Number of different pictures, before noise.
_PICTURES = 480
#: Number of different noise patterns, which images share.
_NOISES = 512
#: Maximum brightness of noise; a picture is at least so much darker than white, and so leaves room for noise.
_MAX_NOISE: Final = 40
#: Share of dark pixels in images with a dark background, as in MNIST.
_DARK_SHARE: Final = 0.8
#: Number of images that get noise at once; a limit keeps memory small.
_IMAGES_AT_ONCE: Final = 1024
#: Share of indicating words that indicate the class of their text for certain.
_TELLING_SHARE: Final = 0.3

_Bytes = npt.NDArray[np.uint8]


class DrawnImages:
    """Images in uint8, 0 to 255, in classes that small models quickly learn.

    A class has a unique smooth pattern. An image shows its class's pattern, shifted by up to two pixels and with
    varying brightness, mixed with a smooth random background and noise.

    Args:
        shape: shape of an image: rows, columns, and channels if there are several.
        dark: whether most pixels are 0, like digits on a dark background.
        seed: seed of all draws.
    """

    def __init__(self, shape: Shape, *, dark: bool, seed: int) -> None:
        """Draw the pictures and the noise that make up images."""
        self._shape, self._seed = shape, seed
        rng = np.random.default_rng(seed)
        patterns = _smooth_fields(rng, _CLASSES, shape)
        moves = rng.integers(-2, 3, (_PICTURES, 2))
        images = np.stack([np.roll(patterns[number % _CLASSES], move, (0, 1)) for number, move in enumerate(moves)])
        backgrounds = _smooth_fields(rng, _PICTURES, shape)
        bright = rng.uniform(0.7, 1.0, (_PICTURES, *[1] * len(shape))).astype(np.float32)
        images_on_backgrounds = 0.75 * images + (0.25 if dark else 0.5) * backgrounds
        low, high = np.quantile(images_on_backgrounds, [_DARK_SHARE, 0.95] if dark else [0.01, 0.99]).astype(np.float32)
        brightness = np.clip((images_on_backgrounds - low) / (high - low), 0, 1) * bright
        self._pictures: _Bytes = (brightness * (255 - _MAX_NOISE)).astype(np.uint8).reshape(_PICTURES, -1)
        self._noise: _Bytes = rng.integers(0, _MAX_NOISE + 1, (_NOISES, self._pictures.shape[1]), dtype=np.uint8)
        self._dark = dark

    def draw(self, count: int, part: int = 0) -> tuple[_Bytes, npt.NDArray[np.int64]]:
        """Return ``count`` images with class numbers; a different ``part`` gives different images."""
        rng = np.random.default_rng([self._seed, part])
        labels = rng.permutation(np.arange(count) % _CLASSES)
        pictures = labels + _CLASSES * rng.integers(0, _PICTURES // _CLASSES, count)
        noises = rng.integers(0, _NOISES, count)
        images = np.empty((count, self._pictures.shape[1]), np.uint8)
        for first in range(0, count, _IMAGES_AT_ONCE):
            rows = slice(first, first + _IMAGES_AT_ONCE)
            pixels = images[rows]
            np.take(self._pictures, pictures[rows], 0, out=pixels, mode="clip")  # the default, "raise", makes a copy
            noise = self._noise[noises[rows]]
            if self._dark:
                noise *= pixels > 0
            pixels += noise
        images[0, 0], images[0, -1] = 0, 255  # all values from 0 to 255 occur, as in real images
        return images.reshape(count, *self._shape), labels


def _smooth_fields(rng: np.random.Generator, count: int, shape: Shape) -> Array:
    """Return fields of mean 0 and variance 1, smooth along rows and columns."""
    rows, columns, *channels = shape
    waves = 5
    along_rows, along_columns = (
        np.cos(math.pi * np.outer(np.arange(waves), (np.arange(size) + 0.5) / size)).astype(np.float32)
        for size in (rows, columns)
    )
    weights = rng.standard_normal((count, waves, waves, *channels), np.float32)
    weights[:, 0, 0] = 0
    fields = np.einsum("nab...,ar,bc->nrc...", weights, along_rows, along_columns, optimize=True)
    return np.asarray(fields / fields.std(axis=tuple(range(1, fields.ndim)), keepdims=True))


def drawn_reviews(count: int) -> tuple[Array, Array, Array, Array]:
    """Draw texts with natural word frequencies, and with words that indicate the class.

    Words are numbers from 1 to 88,584, and the most frequent word is 1. Numbers of words per text have a log-normal
    distribution.

    Args:
        count: number of training texts, and of test texts.

    Returns:
        Lists of word numbers with classes 0 and 1, for training and for testing.
    """
    classes, vocabulary, rng = 2, 88_584, np.random.default_rng(5)
    labels = rng.permutation(np.arange(2 * count) % classes)
    raw_lengths = np.exp(rng.normal(math.log(175.0), 0.75, 2 * count))
    lengths = np.clip(raw_lengths, 10, 2493).astype(np.int64)
    total = int(lengths.sum())
    # Words are drawn in proportion to 1 / rank, by Zipf's law.
    words = np.exp(rng.random(total, np.float32) * np.float32(math.log(vocabulary))).astype(np.int64)
    # Every fourth block of word numbers has an indicating word per class.
    block = words // classes
    indicates_class = (block % 4 == 1) & (rng.random(total, np.float32) < _TELLING_SHARE)
    class_words = block * classes + np.repeat(labels, lengths)
    all_words = np.minimum(np.where(indicates_class, class_words, words), vocabulary).tolist()
    texts = np.empty(2 * count, object)
    texts[:] = [all_words[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]
    return texts[:count], labels[:count], texts[count:], labels[count:]
