"""``tf.keras.activations``: functions of each element, and the softmax, for layers and by themselves."""

from __future__ import annotations

from typing import Any, Final

from ipusim.errors import ProgramError
from ipusim.ipu.tensorflow import nn
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.offered import offering
from ipusim.model.layers.activations import ACTIVATIONS

_NN: Final = "ipusim.ipu.tensorflow.nn"


def linear(x: Any) -> Any:
    """Return the tensor as it is."""
    return tensor(x)


def softmax(x: Any, axis: int = -1) -> Any:
    """Return exp(x), divided by its sum along an axis."""
    return nn.softmax(x, axis)


def get(identifier: Any) -> Any:
    """Return an activation by its name, or a function as it is; raises ProgramError for a name that there is not."""
    if identifier is None:
        return linear
    if not isinstance(identifier, str):
        return identifier
    core, after = nn.core_activation(identifier)
    if core not in ACTIVATIONS:
        raise ProgramError(f"Unknown activation function: {core}. Expected one of {', '.join(_NAMES.split())}")
    return after or (linear if core == "identity" else nn.Activation(core))


_NAMES: Final = "elu gelu hard_sigmoid leaky_relu linear relu selu sigmoid softmax softplus swish tanh"
hard_sigmoid = nn.Activation("hard_sigmoid")
__getattr__, __dir__ = offering(
    "tf.keras.activations",
    {name: f"{_NN}:{name}" for name in ("elu", "gelu", "relu", "selu", "softplus", "swish", "tanh")}
    | {"sigmoid": f"{_NN}:logistic"}
    | {name: f"{__name__}:{name}" for name in ("get", "hard_sigmoid", "linear", "softmax")},
)
