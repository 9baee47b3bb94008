"""``tf.keras.backend``: what programs that train ask of it."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.runtime.names import forget_models
from ipusim.ipu.runtime.offered import in_module, offering


def clear_session() -> None:
    """Count models that are given no name anew."""
    forget_models()


def get_value(x: Any) -> Any:
    """Return the value of a variable, or of an optimizer's step size."""
    return x.numpy()


def set_value(x: Any, value: Any) -> None:
    """Set the value of a variable, or of an optimizer's step size; raises as that does."""
    x.assign(value)


def floatx() -> str:
    """Return the dtype of weights, where none is said."""
    return "float32"


def epsilon() -> float:
    """Return the least probability that a logarithm is taken of."""
    return 1e-7


__getattr__, __dir__ = offering(
    "tf.keras.backend", in_module(__name__, "clear_session epsilon floatx get_value set_value")
)
