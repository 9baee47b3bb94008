"""Stand-ins for well-known datasets: seeded images, texts and houses that models can learn from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Array, Shape

#: Pictures in total, least pictures per class, and rows of noise shared by all images.
_PICTURES, _LEAST, _NOISES = 480, 6, 512
#: Maximum brightness of the noise; a picture's brightness leaves room for it.
_NOISE: Final = 40
#: Share of dark pixels in images with a dark background, as in MNIST.
_DARK: Final = 0.8
#: Images that get their noise at once, to limit memory.
_ROWS: Final = 1024
#: Share of the words in telling blocks of word numbers that are replaced by a word of the text's class.
_TELLING_SHARE: Final = 0.3

_Bytes = npt.NDArray[np.uint8]


class DrawnImages:
    """Images in uint8, 0 to 255, in classes that small models quickly learn.

    A class has a unique smooth pattern. An image shows its class's pattern, shifted by up to two pixels and with
    varying brightness, mixed with a smooth random background and noise.

    Args:
        shape: shape of an image: rows, columns, and channels if there are several.
        classes: number of classes.
        dark: whether most pixels are 0, like digits on a dark background.
        seed: seed of all draws.
    """

    def __init__(self, shape: Shape, classes: int, *, dark: bool, seed: int) -> None:
        """Draw the pictures and the noise that make up images."""
        self._shape, self._classes, self._seed = shape, classes, seed
        rng = np.random.default_rng(seed)
        patterns = _smooth_fields(rng, classes, shape)
        count = classes * max(_LEAST, _PICTURES // classes)
        moves = rng.integers(-2, 3, (count, 2))
        images = np.stack([np.roll(patterns[number % classes], move, (0, 1)) for number, move in enumerate(moves)])
        ground = _smooth_fields(rng, count, shape)
        bright = rng.uniform(0.7, 1.0, (count, *[1] * len(shape))).astype(np.float32)
        images_on_ground = 0.75 * images + (0.25 if dark else 0.5) * ground
        low, high = np.quantile(images_on_ground, [_DARK, 0.95] if dark else [0.01, 0.99]).astype(np.float32)
        lit = np.clip((images_on_ground - low) / (high - low), 0, 1) * bright
        self._pictures: _Bytes = (lit * (255 - _NOISE)).astype(np.uint8).reshape(count, -1)
        self._noise: _Bytes = rng.integers(0, _NOISE + 1, (_NOISES, self._pictures.shape[1]), dtype=np.uint8)
        self._dark = dark

    def draw(self, count: int, part: int = 0) -> tuple[_Bytes, npt.NDArray[np.int64]]:
        """Return ``count`` images with class numbers; a different ``part`` gives different images."""
        rng = np.random.default_rng([self._seed, part])
        labels = rng.permutation(np.arange(count) % self._classes)
        pictures = labels + self._classes * rng.integers(0, len(self._pictures) // self._classes, count)
        noises = rng.integers(0, _NOISES, count)
        images = np.empty((count, self._pictures.shape[1]), np.uint8)
        for first in range(0, count, _ROWS):
            rows = slice(first, first + _ROWS)
            lit = images[rows]
            np.take(self._pictures, pictures[rows], 0, out=lit, mode="clip")  # the default, "raise", makes a copy
            noise = self._noise[noises[rows]]
            if self._dark:
                noise *= lit > 0
            lit += noise
        images[0, 0], images[0, -1] = 0, 255  # the full range of a pixel, as in real images
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


@dataclass(frozen=True)
class Texts:
    """Texts as word numbers, concatenated.

    Attributes:
        words: word numbers of all texts, from 1; the most frequent word is 1.
        lengths: words per text.
        labels: class per text.
    """

    words: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def drawn_texts(
    count: int, classes: int, vocabulary: int, median: float, deviation: float, longest: int, seed: int
) -> Texts:
    """Draw texts with natural word frequencies, and with words that indicate the class.

    Args:
        count: number of texts.
        classes: number of classes.
        vocabulary: largest word number.
        median, deviation, longest: median, standard deviation of the logarithm, and upper limit of the number of words
            per text, which has a log-normal distribution.
        seed: seed of all draws.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % classes)
    raw_lengths = np.exp(rng.normal(math.log(median), deviation, count))
    lengths = np.clip(raw_lengths, 10, longest).astype(np.int64)
    total = int(lengths.sum())
    # Words are drawn in proportion to 1 / rank, by Zipf's law.
    words = np.exp(rng.random(total, np.float32) * np.float32(math.log(vocabulary))).astype(np.int64)
    # Every fourth block of word numbers, one per class, indicates the class of a text.
    block = words // classes
    tells = (block % 4 == 1) & (rng.random(total, np.float32) < _TELLING_SHARE)
    telling = block * classes + np.repeat(labels, lengths)
    return Texts(np.minimum(np.where(tells, telling, words), vocabulary), lengths, labels)


def drawn_words(count: int) -> dict[str, int]:
    """Return made-up words with numbers from 1, the shortest and most frequent first."""
    syllables = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiou"]
    base, result = len(syllables), {}
    for number in range(1, count + 1):
        word, remainder = "", number
        while remainder:
            remainder, syllable = divmod(remainder - 1, base)
            word = syllables[syllable] + word
        result[word] = number
    return result


#: Least and largest value of the thirteen features in Boston Housing (Harrison and Rubinfeld, 1978), and their
#: influence on the price.
_FEATURES: Final = np.array(
    [
        (0.006, 89.0, -0.6), (0.0, 100.0, 0.5), (0.46, 27.7, -0.2), (0.0, 1.0, 0.2), (0.385, 0.871, -0.8),
        (3.56, 8.78, 2.2), (2.9, 100.0, 0.0), (1.13, 12.1, -0.9), (1.0, 24.0, 0.6), (187.0, 711.0, -0.7),
        (12.6, 22.0, -0.8), (0.32, 396.9, 0.4), (1.73, 38.0, -2.2),
    ]
)  # fmt: skip


def drawn_houses(count: int, seed: int) -> tuple[Array, Array]:
    """Draw thirteen features per house, in Boston Housing's ranges, and prices."""
    rng = np.random.default_rng(seed)
    least, most, weight = _FEATURES.T
    share = rng.beta(2, 3, (count, len(_FEATURES)))
    share[:, 3] = rng.random(count) < 0.07  # beside the river, or not
    score = (share - share.mean(0)) / share.std(0) @ (weight / np.linalg.norm(weight))
    price = 22.5 + 8.2 * score + 2.0 * rng.standard_normal(count)
    return least + share * (most - least), np.clip(np.round(price, 1), 5.0, 50.0)
