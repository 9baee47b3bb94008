"""Describe synthetic datasets without samples: shapes, types and ranges, for runs that only simulate time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layer import Shape
from ipusim.model.layers.outline import Outline


def outlined_classes(
    shape: Shape, classes: int, samples: int, dtype: npt.DTypeLike, label_count: int | None = None
) -> Dataset:
    """Return the outline of :func:`ipusim.model.data.synthetic.synthetic_classes` in ``dtype``."""
    x: Any = Outline((samples, *shape), dtype)
    return Dataset(
        x,
        _outlined_numbers((samples,) if label_count is None else (samples, label_count), classes),
        classes,
        "synthetic",
    )


def outlined_targets(shape: Shape, target_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Dataset:
    """Return the outline of :func:`ipusim.model.data.synthetic.synthetic_targets` in ``dtype``."""
    x: Any = Outline((samples, *shape), dtype)
    y: Any = Outline((samples, *target_shape), dtype)
    return Dataset(x, y, None, "synthetic")


def outlined_tokens(length: int, vocabulary: int, samples: int) -> Dataset:
    """Return the outline of :func:`ipusim.model.data.synthetic.synthetic_tokens`, with a range of all tokens."""
    tokens = _outlined_numbers((samples, length), vocabulary)
    return Dataset(tokens, tokens, vocabulary, "synthetic tokens")


def _outlined_numbers(shape: Shape, end: int) -> Any:
    """Return the outline of whole numbers from 0 to ``end`` - 1, such as tokens and class numbers."""
    return Outline(shape, np.int32, span=(0, end - 1))
