"""The output of a model that ends in a softmax: probabilities, which a loss takes as the logits they are made of.

Keras does the same where it sees a softmax before a cross entropy, as the loss of the logits is more exact.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final

import autograd.numpy as anp
import numpy as np

from ipusim.ipu.runtime.context import setting
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss
from ipusim.ipu.tensorflow.nn import softmax

#: Whether the layer that is called is the last one of a model; None outside of models.
_LAST: Final[ContextVar[bool | None]] = ContextVar("last_layer", default=None)


class Probabilities(PerExampleLoss):
    """The softmax of logits, not computed yet.

    Attributes:
        logits: of which it is.
    """

    def __init__(self, logits: Any) -> None:
        """Take the logits (batch, ..., classes)."""
        super().__init__(np.shape(logits), lambda: softmax(logits), lambda: anp.mean(softmax(logits)))
        self.logits = logits


def as_last(is_last: bool) -> AbstractContextManager[Any]:
    """Call the last layer of a model in the block, or another; in a model inside another its last is last of both."""
    return setting(_LAST, is_last and _LAST.get() is not False)


def softmax_of_layer(logits: Any, axis: int = -1) -> Any:
    """Return a layer's softmax, which waits for what is made of it where the layer is a model's last."""
    return Probabilities(logits) if _LAST.get() and axis == -1 else softmax(logits, axis)
