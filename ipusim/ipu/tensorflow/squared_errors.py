"""Squared errors, whose mean is the core's own loss where the targets depend on no variable."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp

from ipusim.ipu.each_loss import EachLoss, concrete
from ipusim.ipu.host import also_on_host
from ipusim.ipu.layers import depends_on_a_variable, run_loss
from ipusim.model.layers.losses import MeanSquaredError


@also_on_host
def squared_errors(x: Any, y: Any) -> Any:
    """Return (x - y)^2, as :class:`EachLoss` where both are of one shape and no gradient goes back to one of them."""
    predictions, targets = concrete(x), concrete(y)

    def each() -> Any:
        return anp.square(predictions - targets)

    if anp.shape(predictions) != anp.shape(targets) or not anp.shape(predictions):
        return each()
    if depends_on_a_variable(targets):
        predictions, targets = targets, predictions
    if depends_on_a_variable(targets) or predictions.dtype.kind != "f":
        return each()
    return EachLoss(anp.shape(predictions), each, lambda: run_loss(MeanSquaredError(), predictions, targets, {}))
