"""Feed micro-batches without end from a dataset, for an infeed queue."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layer import Array


class MicroBatches(Protocol):
    """Source of micro-batches by number."""

    def element(self, index: int) -> tuple[Any, Array | None]:
        """Return the first stage's input for micro-batch ``index``, and its labels; None without labels."""


class Feed:
    """Endless stream of micro-batches with ``batch_size`` samples.

    Every epoch shuffles the samples with a generator seeded by (seed, epoch), and drops the remainder that fills no
    micro-batch, like ``shuffle``, ``batch`` with ``drop_remainder`` and ``repeat`` of tf.data. An element depends only
    on dataset, seed and index. Without shuffling, samples keep dataset order. Raises ModelError for a batch size below
    1, or above the size of the dataset.
    """

    def __init__(self, dataset: Dataset, batch_size: int, seed: int = 0, shuffle: bool = True) -> None:
        """Describe the stream without touching a sample."""
        if not 1 <= batch_size <= len(dataset):
            raise ModelError(
                f"{dataset.name}: expected a micro-batch size from 1 to its {len(dataset)} samples, got {batch_size}"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def __repr__(self) -> str:
        """Return dataset, batch size and seed as text."""
        order = f"seed {self.seed}" if self.shuffle else "in order"
        return f"<Feed of {self.dataset.name}: {self.epoch_elements} x {self.batch_size} samples, {order}>"

    @property
    def epoch_elements(self) -> int:
        """Number of micro-batches per epoch."""
        return len(self.dataset) // self.batch_size

    def element(self, index: int) -> tuple[Array, Array]:
        """Return inputs and labels of micro-batch ``index``, counted from 0 over the epochs.

        With shuffling, an element gathers samples, in a new permutation for each epoch. Without shuffling, an element
        is a slice of the dataset.
        """
        epoch, index_in_epoch = divmod(index, self.epoch_elements)
        start = index_in_epoch * self.batch_size
        if not self.shuffle:
            return self.dataset.x[start : start + self.batch_size], self.dataset.y[start : start + self.batch_size]
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(len(self.dataset))
            self._epoch = epoch
        rows = self._order[start : start + self.batch_size]
        return self.dataset.x.take(rows, axis=0), self.dataset.y.take(rows, axis=0)

    @property
    def label_bytes(self) -> int:
        """Bytes of a micro-batch's labels."""
        return self.batch_size * (self.dataset.y.nbytes // len(self.dataset))

    @property
    def element_bytes(self) -> int:
        """Bytes of a micro-batch, labels included."""
        return self.batch_size * (self.dataset.x.nbytes // len(self.dataset)) + self.label_bytes
