"""``imdb`` and ``reuters`` of ``tf.keras.datasets``: texts as lists of word numbers.

Texts come from the user's files in ``~/.keras/datasets``, or are drawn with similar lengths and word frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import FileError, ProgramError
from ipusim.ipu.keras.datasets import arrays_of, from_file_or_drawn, words_of
from ipusim.ipu.keras.stand_ins import Texts, drawn_texts, drawn_words
from ipusim.ipu.runtime import checks

#: Training and test texts with class labels.
TrainTestArrays = tuple[tuple[Array, Array], tuple[Array, Array]]

#: Vocabulary sizes of the datasets.
_IMDB_WORDS: Final = 88_584
_REUTERS_WORDS: Final = 30_979


def _from_lists(lists: Array, labels: Array) -> Texts:
    """Return a file's texts; raises FileError unless they are labelled lists of whole numbers."""
    lengths = np.array([len(list_) for list_ in lists], np.int64)
    words = np.concatenate([np.asarray(list_) for list_ in lists])
    are_whole = words.dtype.kind in "iu" and labels.dtype.kind in "iu"
    if not are_whole or words.ndim != 1 or labels.shape != lengths.shape:
        raise FileError(f"expected lists of whole numbers and as many labels, got {words.dtype}, {labels.shape}")
    return Texts(words.astype(np.int64), lengths, labels.astype(np.int64))


def _shuffled(texts: Texts, seed: int) -> Texts:
    """Return texts in Keras' order for a seed."""
    order = np.arange(len(texts.lengths))
    np.random.RandomState(checks.whole("seed", seed)).shuffle(order)  # as Keras does
    return _pick(texts, order)


def _pick(texts: Texts, numbers: Array) -> Texts:
    ends = np.cumsum(texts.lengths)
    starts, lengths = (ends - texts.lengths)[numbers], texts.lengths[numbers]
    first = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) + np.repeat(starts - first, lengths)
    return Texts(texts.words[places], lengths, texts.labels[numbers])


def _with_start(texts: Texts, start_char: int | None, index_from: int | None) -> Texts:
    """Return texts with ``start_char`` in front, and with ``index_from`` added to word numbers."""
    words = texts.words + (index_from or 0)
    if start_char is None:
        return replace(texts, words=words)
    starts = np.cumsum(texts.lengths) - texts.lengths
    return Texts(np.insert(words, starts, start_char), texts.lengths + 1, texts.labels)


def _short(texts: Texts, maxlen: int | None) -> Texts:
    """Return the texts shorter than ``maxlen``, or all texts without a limit; raises ProgramError if none remains."""
    if not maxlen:
        return texts
    short = np.flatnonzero(texts.lengths < maxlen)
    if not len(short):
        raise ProgramError(
            f"After filtering for sequences shorter than maxlen={maxlen}, no sequence was kept. Increase maxlen."
        )
    return _pick(texts, short)


def _within(texts: Texts, num_words: int | None, skip_top: int, oov_char: int | None) -> Texts:
    """Replace words outside of ``skip_top`` to ``num_words`` by ``oov_char``; None removes the words."""
    within = (texts.words >= skip_top) & (texts.words < (num_words or texts.words.max()))
    if oov_char is not None:
        return replace(texts, words=np.where(within, texts.words, oov_char))
    counts = np.concatenate([[0], np.cumsum(within)])
    ends = np.cumsum(texts.lengths)
    return Texts(texts.words[within], counts[ends] - counts[ends - texts.lengths], texts.labels)


def _as_lists(texts: Texts) -> tuple[Array, Array]:
    """Return texts as an array of lists, and the labels."""
    numbers = np.arange(texts.words.max(initial=0) + 1).astype(object)  # one shared object per word
    flat = numbers[texts.words].tolist()
    ends = np.concatenate([[0], np.cumsum(texts.lengths)]).tolist()
    lists = np.empty(len(texts.lengths), object)
    lists[:] = [flat[start:end] for start, end in pairwise(ends)]
    return lists, texts.labels


def _parts(texts: Texts, first: int) -> tuple[Texts, Texts]:
    end = texts.lengths[:first].sum()
    return (
        Texts(texts.words[:end], texts.lengths[:first], texts.labels[:first]),
        Texts(texts.words[end:], texts.lengths[first:], texts.labels[first:]),
    )


def _concatenate(parts: Sequence[Texts]) -> Texts:
    words, lengths, labels = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("words", "lengths", "labels")
    )
    return Texts(words, lengths, labels)


def _imdb_file(path: Path) -> tuple[Texts, Texts]:
    x, y, x_test, y_test = arrays_of(path, "x_train", "y_train", "x_test", "y_test")
    return _from_lists(x, y), _from_lists(x_test, y_test)


class imdb:  # noqa: N801 - Keras' name of a module
    """Film reviews as lists of word numbers, bad (0) or good (1): 25,000 for training and 25,000 for testing."""

    @staticmethod
    def load_data(
        path: str = "imdb.npz",
        num_words: int | None = None,
        skip_top: int = 0,
        maxlen: int | None = None,
        seed: int = 113,
        start_char: int | None = 1,
        oov_char: int | None = 2,
        index_from: int | None = 3,
    ) -> TrainTestArrays:
        """Return training and test (reviews, labels): arrays of lists, and labels in int64.

        Args:
            path: path of the file below ``~/.keras/datasets``.
            num_words, skip_top: range of word numbers to keep, from ``skip_top`` to below ``num_words``; frequent words
                have low numbers.
            maxlen: limit of a review's length; only shorter reviews are kept.
            seed: seed of the shuffle.
            start_char: number in front of every review; None for no number.
            oov_char: number in place of removed words; None to leave them out.
            index_from: number added to word numbers.

        Raises:
            ProgramError: no review is short enough.
            FileError: the file has another form.
        """

        def draw() -> tuple[Texts, Texts]:
            return _parts(drawn_texts(50_000, 2, _IMDB_WORDS, 175.0, 0.75, 2493, seed=5), 25_000)

        parts = [
            _short(_with_start(_shuffled(part, seed), start_char, index_from), maxlen)
            for part in from_file_or_drawn("imdb", path, _imdb_file, draw)
        ]
        texts = _within(_concatenate(parts), num_words, skip_top, oov_char)
        train, test = _parts(texts, len(parts[0].lengths))
        return _as_lists(train), _as_lists(test)

    @staticmethod
    def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
        """Return the numbers of words; raises FileError for a file of another form."""
        return from_file_or_drawn("imdb.get_word_index", path, words_of, lambda: drawn_words(_IMDB_WORDS))


class reuters:  # noqa: N801 - Keras' name of a module
    """News as lists of word numbers, 11,228 texts in 46 topics."""

    @staticmethod
    def load_data(
        path: str = "reuters.npz",
        num_words: int | None = None,
        skip_top: int = 0,
        maxlen: int | None = None,
        test_split: float = 0.2,
        seed: int = 113,
        start_char: int | None = 1,
        oov_char: int | None = 2,
        index_from: int | None = 3,
    ) -> TrainTestArrays:
        """Return training and test (news, topics): arrays of lists, and labels in int64.

        ``test_split`` is the share of test texts; other arguments and errors are those of ``imdb.load_data``.
        """

        def read(file: Path) -> Texts:
            return _from_lists(*arrays_of(file, "x", "y"))

        def draw() -> Texts:
            return drawn_texts(11_228, 46, _REUTERS_WORDS, 94.0, 0.9, 2375, seed=6)

        texts: Any = _shuffled(from_file_or_drawn("reuters", path, read, draw), seed)
        texts = _within(_short(_with_start(texts, start_char, index_from), maxlen), num_words, skip_top, oov_char)
        train, test = _parts(texts, int(len(texts.lengths) * (1 - test_split)))
        return _as_lists(train), _as_lists(test)

    @staticmethod
    def get_word_index(path: str = "reuters_word_index.json") -> dict[str, int]:
        """Return the numbers of words; raises FileError for a file of another form."""
        return from_file_or_drawn("reuters.get_word_index", path, words_of, lambda: drawn_words(_REUTERS_WORDS))
