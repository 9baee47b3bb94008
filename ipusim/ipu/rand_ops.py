"""Functions of Graphcore's ``rand_ops``."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.tensorflow import nn


def dropout(
    x: Any, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, name: str | None = None, **kwargs: Any
) -> Any:
    """Return ``x`` with a share of its elements 0 and the others scaled up, in training.

    ``kwargs``, such as ``ref``, have no effect: a mask is drawn anew, and its gradient finds it.

    Masks are drawn by the place in the program, not by ``seed``; with a ``noise_shape`` once for all along its axes of
    one. Raises ProgramError for a shape that does not spread over ``x``.
    """
    return nn.dropout(x, noise_shape=noise_shape, rate=rate)
