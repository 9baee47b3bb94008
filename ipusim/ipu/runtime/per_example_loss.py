"""A loss of each sample that is not computed yet, as its mean is what the core's own loss gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.api import layers
from ipusim.ipu.runtime.host_functions import also_on_host
from ipusim.ipu.runtime.layers import depends_on_a_variable, run_loss


class PerExampleLoss:
    """The losses of all samples, between a function that takes them and, as a rule, the mean over them.

    The mean is the core's loss, with its own passes and cost, as in a scenario. Anything else that is done with the
    losses computes them one by one, as autograd does.

    Attributes:
        shape, ndim: of the losses.
        array, mean_of_all: functions that return all of them, and the mean over them.
    """

    __array_priority__ = 1000.0  # an array on the left leaves the operator to this

    def __init__(self, shape: tuple[int, ...], losses: Callable[[], Any], mean: Callable[[], Any]) -> None:
        """Take the shape of the losses, what computes them all, and what computes their mean."""
        self.shape, self.ndim = shape, len(shape)
        self.array, self.mean_of_all = losses, mean

    @property
    def dtype(self) -> Any:
        """Their dtype."""
        return self.array().dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return all of them to plain NumPy, which a trace refuses."""
        return np.asarray(self.array(), dtype)

    def __getitem__(self, key: Any) -> Any:
        """Return some of them."""
        return self.array()[key]

    def __len__(self) -> int:
        """Their number along the first axis."""
        return self.shape[0]


def concrete(value: Any) -> Any:
    """Return losses as an array; anything else as it is."""
    return value.array() if isinstance(value, PerExampleLoss) else value


def _method(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: PerExampleLoss, *others: Any) -> Any:
        values = self.array(), *map(concrete, others)
        return function(*(reversed(values) if reflected else values))

    return method


for _name, _function in {
    "add": anp.add,
    "sub": anp.subtract,
    "mul": anp.multiply,
    "truediv": anp.true_divide,
    "pow": anp.power,
    "matmul": anp.matmul,
}.items():
    setattr(PerExampleLoss, f"__{_name}__", _method(_function))
    setattr(PerExampleLoss, f"__r{_name}__", _method(_function, reflected=True))
for _name, _function in {
    "neg": anp.negative,
    "abs": anp.abs,
    "lt": anp.less,
    "le": anp.less_equal,
    "gt": anp.greater,
    "ge": anp.greater_equal,
}.items():
    setattr(PerExampleLoss, f"__{_name}__", _method(_function))


@also_on_host
def squared_errors(x: Any, y: Any) -> Any:
    """Return (x - y)^2, as :class:`PerExampleLoss` where both have one shape and one of them takes no gradient."""
    predictions, targets = concrete(x), concrete(y)

    def errors() -> Any:
        return anp.square(predictions - targets)

    if anp.shape(predictions) != anp.shape(targets) or not anp.shape(predictions):
        return errors()
    if depends_on_a_variable(targets):
        predictions, targets = targets, predictions
    if depends_on_a_variable(targets) or predictions.dtype.kind != "f":
        return errors()
    return PerExampleLoss(
        anp.shape(predictions), errors, lambda: run_loss(layers.MeanSquaredError(), predictions, targets, {})
    )
