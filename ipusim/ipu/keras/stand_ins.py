"""Images, texts and houses that stand in for well-known datasets: seeded, quickly drawn, with classes to learn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Array, Shape

#: Pictures of all classes, and at least of one, that differ by more than noise; rows of noise that any image may get.
_PICTURES, _LEAST, _NOISES = 480, 6, 512
#: Brightness of the noise on top of a picture, whose own brightness leaves room for it.
_NOISE: Final = 40
#: Share of dark pixels in images on a dark ground, as in MNIST.
_DARK: Final = 0.8
#: Images whose noise is added at once: memory for a small part of them.
_ROWS: Final = 1024
#: Of words that tell the class of a text, the share that does so: the others are of any class.
_TELLING_SHARE: Final = 0.3

_Bytes = npt.NDArray[np.uint8]


class DrawnImages:
    """Images in uint8, from 0 to 255, of classes that models of one layer or several learn in an epoch.

    A class has a smooth pattern of its own. An image of it shows the pattern moved by up to two pixels, brighter or
    darker, over a smooth ground that says nothing of the class, and noise.

    Args:
        shape: of an image: rows, columns, and channels where there are several.
        classes: how many.
        dark: whether most pixels are 0, as of digits on a dark ground.
        seed: of all draws.
    """

    def __init__(self, shape: Shape, classes: int, *, dark: bool, seed: int) -> None:
        """Draw the pictures and the noise that images are made of."""
        self._shape, self._classes, self._seed = shape, classes, seed
        rng = np.random.default_rng(seed)
        patterns = _smooth_fields(rng, classes, shape)
        count = classes * max(_LEAST, _PICTURES // classes)
        moves = rng.integers(-2, 3, (count, 2))
        moved = np.stack([np.roll(patterns[at % classes], move, (0, 1)) for at, move in enumerate(moves)])
        ground = _smooth_fields(rng, count, shape)
        bright = rng.uniform(0.7, 1.0, (count, *[1] * len(shape))).astype(np.float32)
        mixed = 0.75 * moved + (0.25 if dark else 0.5) * ground
        low, high = np.quantile(mixed, [_DARK, 0.95] if dark else [0.01, 0.99]).astype(np.float32)
        lit = np.clip((mixed - low) / (high - low), 0, 1) * bright
        self._pictures: _Bytes = (lit * (255 - _NOISE)).astype(np.uint8).reshape(count, -1)
        self._noise: _Bytes = rng.integers(0, _NOISE + 1, (_NOISES, self._pictures.shape[1]), dtype=np.uint8)
        self._dark = dark

    def draw(self, count: int, part: int = 0) -> tuple[_Bytes, npt.NDArray[np.int64]]:
        """Return ``count`` images and the number of each one's class; other images for another ``part``."""
        rng = np.random.default_rng([self._seed, part])
        labels = rng.permutation(np.arange(count) % self._classes)
        pictures = labels + self._classes * rng.integers(0, len(self._pictures) // self._classes, count)
        noises = rng.integers(0, _NOISES, count)
        images = np.empty((count, self._pictures.shape[1]), np.uint8)
        for first in range(0, count, _ROWS):
            rows = slice(first, first + _ROWS)
            lit = images[rows]
            np.take(self._pictures, pictures[rows], 0, out=lit, mode="clip")  # "raise", by default, copies
            noise = self._noise[noises[rows]]
            if self._dark:
                noise *= lit > 0
            lit += noise
        images[0, 0], images[0, -1] = 0, 255  # the whole range of a pixel, as real images have it
        return images.reshape(count, *self._shape), labels


def _smooth_fields(rng: np.random.Generator, count: int, shape: Shape) -> Array:
    """Return fields of mean 0 and variance 1 that change slowly along rows and columns."""
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
    """Texts as numbers of words, one text after the other.

    Attributes:
        words: of all texts, from 1 up; the most frequent word is 1.
        lengths: words of each text.
        labels: the class of each.
    """

    words: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def drawn_texts(
    count: int, classes: int, vocabulary: int, median: float, spread: float, longest: int, seed: int
) -> Texts:
    """Return texts whose words are as frequent as in a language, some words more so in texts of one class.

    Args:
        count: of texts.
        classes: how many.
        vocabulary: the largest number of a word.
        median, spread, longest: words of a text, drawn from a log-normal distribution and cut.
        seed: of all draws.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % classes)
    drawn = np.exp(rng.normal(math.log(median), spread, count))
    lengths = np.clip(drawn, 10, longest).astype(np.int64)
    total = int(lengths.sum())
    # The word of rank r is drawn in proportion to 1 / r, which is Zipf's law.
    words = np.exp(rng.random(total, np.float32) * np.float32(math.log(vocabulary))).astype(np.int64)
    # In some blocks of as many words as classes, a word tells its text's class.
    block = words // classes
    tells = (block % 4 == 1) & (rng.random(total, np.float32) < _TELLING_SHARE)
    telling = block * classes + np.repeat(labels, lengths)
    return Texts(np.minimum(np.where(tells, telling, words), vocabulary), lengths, labels)


def drawn_words(count: int) -> dict[str, int]:
    """Return made-up words, from the most frequent and shortest on, each with its number from 1 up."""
    syllables = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiou"]
    base, result = len(syllables), {}
    for number in range(1, count + 1):
        word, rest = "", number
        while rest:
            rest, syllable = divmod(rest - 1, base)
            word = syllables[syllable] + word
        result[word] = number
    return result


#: Least and most of the thirteen features of a house in Boston Housing (Harrison and Rubinfeld, 1978), and how its
#: price goes with each.
_FEATURES: Final = np.array(
    [
        (0.006, 89.0, -0.6), (0.0, 100.0, 0.5), (0.46, 27.7, -0.2), (0.0, 1.0, 0.2), (0.385, 0.871, -0.8),
        (3.56, 8.78, 2.2), (2.9, 100.0, 0.0), (1.13, 12.1, -0.9), (1.0, 24.0, 0.6), (187.0, 711.0, -0.7),
        (12.6, 22.0, -0.8), (0.32, 396.9, 0.4), (1.73, 38.0, -2.2),
    ]
)  # fmt: skip


def drawn_houses(count: int, seed: int) -> tuple[Array, Array]:
    """Return thirteen features of each house, in the ranges of Boston Housing, and prices from 5 to 50."""
    rng = np.random.default_rng(seed)
    least, most, weight = _FEATURES.T
    share = rng.beta(2, 3, (count, len(_FEATURES)))
    share[:, 3] = rng.random(count) < 0.07  # beside the river, or not
    score = (share - share.mean(0)) / share.std(0) @ (weight / np.linalg.norm(weight))
    price = 22.5 + 8.2 * score + 2.0 * rng.standard_normal(count)
    return least + share * (most - least), np.clip(np.round(price, 1), 5.0, 50.0)
