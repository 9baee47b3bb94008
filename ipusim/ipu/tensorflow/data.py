"""``tf.data``: datasets."""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow.dataset import Dataset
from ipusim.ipu.tensorflow.dataset_elements import SessionIterator

#: As many as TensorFlow finds best; here what is prepared ahead takes no simulated time.
AUTOTUNE: Final = -1


def cardinality(dataset: Dataset) -> np.int64:
    """Return a dataset's number of elements, -1 without an end; raises ProgramTypeError for another type."""
    return _dataset(dataset).cardinality()


def make_one_shot_iterator(dataset: Dataset) -> SessionIterator:
    """Return an iterator whose elements runs of a session take; raises ProgramTypeError for what is no dataset."""
    return _dataset(dataset).make_one_shot_iterator()


def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> SessionIterator:
    """Return an iterator whose elements runs of a session take, once one has run its ``initializer``.

    Raises ProgramTypeError for what is no dataset.
    """
    return _dataset(dataset).make_initializable_iterator()


def _dataset(dataset: Dataset) -> Dataset:
    checks.instance("dataset", dataset, Dataset, "a tf.data.Dataset")
    return dataset


_CONSTANTS: Final = in_module("ipusim.ipu.tensorflow.dataset_elements", "INFINITE_CARDINALITY UNKNOWN_CARDINALITY")
__getattr__, __dir__ = offering(
    "tf.data",
    in_module(__name__, "AUTOTUNE Dataset make_initializable_iterator make_one_shot_iterator")
    | _CONSTANTS
    | {"experimental": in_module(__name__, "AUTOTUNE cardinality") | _CONSTANTS},
)
