"""``tf.train``: the optimizers of :mod:`ipusim.ipu.optimizers` that are TensorFlow's."""

from __future__ import annotations

from typing import Any, Final

from ipusim.ipu import optimizers
from ipusim.ipu.tensorflow.offered import lack

_NAMES: Final = (
    "AdamOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
)


def __getattr__(name: str) -> Any:
    """Return an optimizer that there is; raises AttributeError for another."""
    if name not in __dir__():
        lack("tf.train", name, __dir__())
    return getattr(optimizers, name)


def __dir__() -> list[str]:
    """Return the names of the optimizers."""
    return [name for name in _NAMES if hasattr(optimizers, name)]
