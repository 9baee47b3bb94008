"""The output of a model that ends in a softmax or sigmoid, which a cross entropy takes as the logits behind it.

Keras does the same, as the loss of the logits is more exact: a probability of 1 has no slope.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final

import autograd.numpy as anp
import numpy as np

from ipusim.ipu.runtime.context import setting
from ipusim.ipu.runtime.import_names import major_version
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.nn import softmax

#: Whether the layer that is called is the last one of a model; None outside of models.
_LAST: Final[ContextVar[bool | None]] = ContextVar("last_layer", default=None)


class Probabilities(PerExampleLoss):
    """The softmax or sigmoid of logits, not computed yet.

    Attributes:
        logits: of which it is.
        function: that makes them probabilities, :func:`ipusim.ipu.tensorflow.nn.softmax` or
            :data:`ipusim.ipu.tensorflow.activations.logistic`.
    """

    def __init__(self, logits: Any, function: Callable[[Any], Any]) -> None:
        """Take the logits (batch, ..., classes) and the function."""
        super().__init__(np.shape(logits), lambda: function(logits), lambda: anp.mean(function(logits)))
        self.logits, self.function = logits, function


def as_last(is_last: bool) -> AbstractContextManager[Any]:
    """Call the last layer of a model in the block, or another; in a model inside another its last is last of both."""
    return setting(_LAST, is_last and _LAST.get() is not False)


def is_last() -> bool:
    """Return whether the layer that is called is the last one of a model."""
    return bool(_LAST.get())


def softmax_of_layer(logits: Any, axis: int = -1) -> Any:
    """Return a layer's softmax, which waits for what is made of it where the layer is a model's last."""
    return Probabilities(logits, softmax) if is_last() and axis == -1 else softmax(logits, axis)


def scores_of(y_pred: Any, from_logits: bool, function: Callable[[Any], Any]) -> tuple[Any, bool]:
    """Return what a cross entropy takes of predictions, and whether these are logits of its own ``function``.

    TensorFlow 1 looks for that function alone behind the predictions; Keras of TensorFlow 2 takes the logits of a
    sigmoid for those of a softmax too, and the other way round (``_keras_logits`` of its activations).
    """
    if isinstance(y_pred, Probabilities) and (y_pred.function is function or major_version() > 1):
        return tensor(y_pred.logits), True
    return tensor(y_pred), from_logits
