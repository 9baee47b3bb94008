"""``tf.keras.activations``: functions of each element, and the softmax, for layers and by themselves."""

from __future__ import annotations

from typing import Any, Final

from ipusim.ipu.tensorflow import nn
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.offered import offering

_NN: Final = "ipusim.ipu.tensorflow.nn"


def linear(x: Any) -> Any:
    """Return the tensor as it is."""
    return tensor(x)


def softmax(x: Any, axis: int = -1) -> Any:
    """Return exp(x), divided by its sum along an axis."""
    return nn.softmax(x, axis)


__getattr__, __dir__ = offering(
    "tf.keras.activations",
    {name: f"{_NN}:{name}" for name in ("gelu", "relu", "swish", "tanh")}
    | {"sigmoid": f"{_NN}:logistic", "linear": f"{__name__}:linear", "softmax": f"{__name__}:softmax"},
)
