"""``tf.train``: the optimizers of :mod:`ipusim.ipu.optimizers` that are TensorFlow's, and the step that they count."""

from __future__ import annotations

from typing import Any, Final

from ipusim.ipu import optimizers
from ipusim.ipu.tensorflow import variables
from ipusim.ipu.tensorflow.offered import lack

_NAMES: Final = (
    "AdamOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
)


_STEPS: Final = ("create_global_step", "get_global_step", "get_or_create_global_step")


def __getattr__(name: str) -> Any:
    """Return what there is; raises AttributeError for anything else."""
    if name not in __dir__():
        lack("tf.train", name, __dir__())
    return getattr(variables if name in _STEPS else optimizers, name)


def __dir__() -> list[str]:
    """Return the names of all."""
    return [*(name for name in _NAMES if hasattr(optimizers, name)), *_STEPS]
