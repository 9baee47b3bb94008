"""Functions of Graphcore's ``nn_ops``, as activations of the core."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.tensorflow.nn import Activation


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> Any:
    """Return gelu of each element, by tanh or exactly."""
    return Activation("gelu" if checks.truth("approximate", approximate) else "gelu_erf")(x)


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """Return the logistic function of each element, in three straight lines."""
    return Activation("hard_sigmoid")(x)


def swish(x: Any, name: str | None = None) -> Any:
    """Return x times the logistic function of x, for each element."""
    return Activation("swish")(x)
