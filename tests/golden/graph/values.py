"""Arrays for cases of kernels: ordinary numbers from a fixed seed, and special points."""

import numpy as np

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, -1e30, np.inf, -np.inf, np.nan, 3.5], np.float32)


def drawn(*shape, seed=0, dtype=np.float32):
    """Numbers of a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positive(*shape, seed=0, dtype=np.float32):
    """Numbers between 0.1 and 2.1."""
    return (np.random.default_rng(seed).random(shape) * 2 + 0.1).astype(dtype)


def whole(*values, dtype=np.int32):
    """Whole numbers in an array of one axis."""
    return np.array(values, dtype)


def names(text):
    """Words of a text."""
    return text.split()
