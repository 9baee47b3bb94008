"""Make synthetic datasets: seeded, learnable, of any shape."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layer import Shape

#: Length of a class prototype, similar to MNIST images with pixels in [0, 1]: equal learning rates suit both.
_PROTOTYPE_LENGTH: Final = 8.0
#: Number of values drawn at a time: half a megabyte.
_BLOCK: Final = 1 << 16


def synthetic_classes(
    shape: Shape, classes: int, samples: int, noise: float = 0.25, seed: int = 0, label_count: int | None = None
) -> Dataset:
    """Return ``samples`` points of ``shape`` in ``classes`` classes of nearly equal size.

    A class is a pair of opposite points surrounded by Gaussian noise. Classes have equal means: no linear classifier
    beats guessing, and a single hidden layer suffices. Class directions are orthogonal. With more classes than
    dimensions, classes share directions at growing distances.

    Args:
        shape: shape of a sample.
        classes: number of classes, at least 2.
        samples: number of samples, at least one per class.
        noise: root mean square length of the noise, relative to a prototype's length.
        seed: seed of the draws.
        label_count: number of labels per sample: its class and the next classes, cyclically; None for its class alone.
    """
    if classes < 2:
        raise ModelError(f"synthetic classes: expected at least 2 classes, got {classes}")
    if samples < classes:
        raise ModelError(f"synthetic classes: expected at least {classes} samples, one for each class, got {samples}")
    _check(shape, noise)
    rng = np.random.default_rng(seed)
    size = math.prod(shape)
    directions, _ = np.linalg.qr(rng.standard_normal((size, min(size, classes))))  # orthonormal columns
    class_numbers = np.arange(classes)
    lengths = _PROTOTYPE_LENGTH * (1 + class_numbers // size)
    prototypes = directions.T[class_numbers % size] * lengths[:, None]  # (classes, size)
    labels = rng.permutation(np.arange(samples) % classes)
    signs = rng.choice((-1.0, 1.0), (samples, 1))
    deviation = noise * _PROTOTYPE_LENGTH / math.sqrt(size)
    x = np.empty((samples, size), np.float32)
    # Blocks stay in the cache: whole float64 arrays took a fifth more time and twice the memory.
    rows = max(_BLOCK // size, 1)
    for first in range(0, samples, rows):
        block = slice(first, first + rows)
        points = signs[block] * prototypes[labels[block]]
        points += deviation * rng.standard_normal(points.shape)
        x[block] = points
    if label_count is not None:
        labels = (labels[:, None] + np.arange(label_count)) % classes
    return Dataset(x.reshape(samples, *shape), labels.astype(np.int32), classes, "synthetic")


def synthetic_targets(shape: Shape, target_shape: Shape, samples: int, noise: float = 0.0, seed: int = 0) -> Dataset:
    """Return Gaussian points of ``shape`` and regression targets of ``target_shape``.

    Targets are tanh of a random linear map, which a tanh layer can learn exactly, plus Gaussian noise with standard
    deviation ``noise``. The least mean squared error is ``noise`` squared.
    """
    if samples < 1:
        raise ModelError(f"synthetic targets: expected at least 1 sample, got {samples}")
    _check(shape, noise)
    _check(target_shape, noise)
    rng = np.random.default_rng(seed)
    size, outputs = math.prod(shape), math.prod(target_shape)
    x = rng.standard_normal((samples, size))
    teacher = rng.standard_normal((size, outputs)) * (1.5 / math.sqrt(size))
    y = np.tanh(x @ teacher) + noise * rng.standard_normal((samples, outputs))
    return Dataset(
        x.reshape(samples, *shape).astype(np.float32),
        y.reshape(samples, *target_shape).astype(np.float32),
        None,
        "synthetic",
    )


def synthetic_tokens(length: int, vocabulary: int, samples: int, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Return sequences of ``length`` tokens below ``vocabulary``; a token's label is the next token.

    A token is the sum of its two predecessors, modulo the vocabulary, renamed by a random permutation. With probability
    ``noise`` a uniformly random token replaces the sum. A single token carries no information about the next: a model
    must use two positions.
    """
    if length < 1 or samples < 1:
        raise ModelError(f"synthetic tokens: expected samples of at least 1 token, got {samples} of {length}")
    if vocabulary < 2:
        raise ModelError(f"synthetic tokens: expected a vocabulary of at least 2 tokens, got {vocabulary}")
    if not 0 <= noise <= 1:
        raise ModelError(f"synthetic tokens: expected noise from 0 to 1, got {noise}")
    rng = np.random.default_rng(seed)
    names = rng.permutation(vocabulary)
    tokens = rng.integers(0, vocabulary, (samples, length + 1))  # also supplies the noise tokens
    is_sum = rng.random((samples, length + 1)) >= noise
    for position in range(2, length + 1):
        next_tokens = names[(tokens[:, position - 1] + tokens[:, position - 2]) % vocabulary]
        tokens[:, position] = np.where(is_sum[:, position], next_tokens, tokens[:, position])
    tokens = tokens.astype(np.int32)
    return Dataset(tokens[:, :-1].copy(), tokens[:, 1:].copy(), vocabulary, "synthetic tokens")


def _check(shape: Shape, noise: float) -> None:
    if any(size < 1 for size in shape):
        raise ModelError(f"synthetic data: expected sizes from 1 upwards in a shape, got {shape}")
    if not (math.isfinite(noise) and noise >= 0):
        raise ModelError(f"synthetic data: expected noise of 0 or more, got {noise}")
