"""``tf.keras.activations``: functions of each element, and the softmax, for layers and by themselves."""

from __future__ import annotations

from typing import Any, Final

import autograd.numpy as anp

from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_functions import also_on_host
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow import activations
from ipusim.ipu.tensorflow.array_functions import clip_by_value, tensor


@also_on_host
def elu(x: Any, alpha: float = 1.0) -> Any:
    """Return x of each element where it is positive, else alpha * (exp(x) - 1)."""
    x = tensor(x)
    if alpha == 1:
        return activations.elu(x)
    return anp.where(x > 0, x, x.dtype.type(alpha) * activations.elu(x))


class _Relu(activations.Activation):
    """Keras' relu, with its arguments; without them it is the core's."""

    def __call__(  # type: ignore[override]  # Keras' own arguments
        self, x: Any, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0
    ) -> Any:
        """Return x from the threshold to the largest value, that beyond, and alpha * (x - threshold) below.

        Raises ProgramTypeError and ProgramError for what are no finite numbers.
        """
        slope, least = checks.number("alpha", alpha), checks.number("threshold", threshold)
        if max_value is None and slope == least == 0:
            return super().__call__(x)
        x = tensor(x)
        above = x * (x > least) if least else activations.relu6(x) if max_value == _SIX else super().__call__(x)
        if max_value is not None:
            above = clip_by_value(above, 0.0, checks.number("max_value", max_value))
        return above - x.dtype.type(slope) * super().__call__(x.dtype.type(least) - x) if slope else above


#: The bound for which Keras takes relu6, which has no slope there.
_SIX: Final = 6
relu = _Relu("relu")


def get(identifier: Any) -> Any:
    """Return an activation by its name, or a function as it is; raises ProgramError for an unknown name."""
    if identifier is None:
        return activations.linear
    if not isinstance(identifier, str):
        return identifier
    return {"elu": elu, "relu": relu}.get(identifier) or activations.by_name(identifier)


__getattr__, __dir__ = offering(
    "tf.keras.activations",
    in_module(
        activations.__name__, "exponential gelu hard_sigmoid linear mish selu softmax softplus softsign swish tanh"
    )
    | {"sigmoid": f"{activations.__name__}:logistic"}
    | in_module(__name__, "elu get relu"),
)
