"""Weights of classes as weights of samples, by each sample's label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.dataset import Dataset
from ipusim.model.layers.layer import Array


def by_class(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> tuple[Any, Any, Any]:
    """Return data whose samples weigh as their classes, times weights that they have.

    Arguments:
        x, y, sample_weight: arrays, or in ``x`` a dataset of batches of two or all of them.
        class_weight: of each class number a weight; None for none.

    Raises ProgramError in Keras' words for other classes than numbers from 0, and for labels of several outputs or of
    more than two axes; ProgramTypeError for what is no dictionary.
    """
    if class_weight is None:
        return x, y, sample_weight
    weights = _table(class_weight)
    if not isinstance(x, Dataset):
        return x, y, _weighed(y, sample_weight, weights)

    def begin() -> Iterator[Any]:
        for element in x:
            parts = element if isinstance(element, tuple) else (element,)
            inputs, labels, given = (*parts, None, None)[:3]
            yield inputs, labels, _weighed(labels, given, weights)

    return Dataset(begin, x.length), y, sample_weight


def _table(class_weight: Any) -> Array:
    if not isinstance(class_weight, Mapping):
        checks.wrong_type("class_weight", "a dictionary of the weight of each class", class_weight)
    if set(class_weight) != set(range(len(class_weight))):
        raise ProgramError(
            "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes, found "
            f"{class_weight}"
        )
    weights = [checks.not_negative("class_weight", class_weight[each]) for each in range(len(class_weight))]
    return np.asarray(weights, np.float32)


def _weighed(y: Any, sample_weight: Any, weights: Array) -> Array:
    """Return the weight of each sample; labels are class numbers, or rows of one for each class."""
    if y is None or isinstance(y, Mapping) or (isinstance(y, list | tuple) and any(np.ndim(each) for each in y)):
        raise ProgramError("`class_weight` is only supported for Models with a single output.")
    labels = checks.numbers("y", y)
    if labels.ndim > 2:
        raise ProgramError("`class_weight` not supported for 3+ dimensional targets.")
    if labels.ndim == 2:
        labels = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0]
    if not np.isfinite(labels).all():
        checks.wrong_value("y", "class numbers where there is a class_weight", labels)
    numbers = labels.astype(np.int64)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(weights):
        checks.wrong_value(
            "class_weight", f"a weight of each class up to {numbers.max()}", dict(enumerate(weights.tolist()))
        )
    found: Array = weights[numbers]
    return found if sample_weight is None else found * checks.numbers("sample_weight", sample_weight)
