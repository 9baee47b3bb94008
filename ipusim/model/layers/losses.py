"""Compute losses in NumPy: a scalar of a micro-batch's outputs and labels, with gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, LayerCost, ParameterlessLoss, Parameters, Saved, Shape
from ipusim.model.work import VectorWork, work_of


@dataclass(frozen=True)
class SoftmaxCrossEntropy(ParameterlessLoss):
    """The loss of a classifier: mean over the micro-batch of -log softmax(logits)[label].

    Labels are whole numbers. The loss is the mean of TensorFlow's ``sparse_softmax_cross_entropy_with_logits``. Logits
    are (batch, ..., classes), labels (batch, ...).
    """

    kind: ClassVar = "softmax_cross_entropy"

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError unless labels are class numbers below the last axis of the logits."""
        if not input_shape:
            raise ModelError("softmax cross entropy needs logits of at least one axis, got a scalar for each sample")
        if labels.dtype.kind not in "iu":
            raise ModelError(f"softmax cross entropy needs whole-number labels, got {labels.dtype} labels")
        if labels.shape[1:] != input_shape[:-1]:
            raise ModelError(
                f"softmax cross entropy on logits of shape {input_shape} needs labels of shape {input_shape[:-1]} "
                f"for each sample, got {labels.shape[1:]}"
            )
        if labels.size and (labels.min() < 0 or labels.max() >= input_shape[-1]):
            wrong_label = labels.min() if labels.min() < 0 else labels.max()
            raise ModelError(
                f"softmax cross entropy on {input_shape[-1]} logits needs labels from 0 to {input_shape[-1] - 1}, "
                f"got label {wrong_label}"
            )

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return class 0 per row of scores."""
        return np.zeros((samples, *input_shape[:-1]), np.int32)

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the mean loss; subtracting the largest logit first prevents overflow of exp."""
        logits = x.reshape(-1, x.shape[-1])  # (rows, classes)
        flat_labels = labels.reshape(-1)
        rows = np.arange(len(logits))
        # On small arrays like a micro-batch's logits, the array methods take twice as long as ``ufunc.reduce``.
        shifted = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
        label_logits = shifted[rows, flat_labels]
        probabilities = np.exp(shifted, out=shifted)
        total = np.add.reduce(probabilities, axis=1, keepdims=True)
        probabilities /= total
        loss = np.log(total[:, 0]) - label_logits
        return np.asarray(np.add.reduce(loss) / loss.dtype.type(len(rows))), (probabilities, rows, flat_labels, x.shape)

    def input_gradient(self, saved_values: Saved, scale: float) -> Array:
        """Return (softmax - one-hot labels) * scale / rows."""
        probabilities, rows, labels, shape = saved_values
        factor = scale / len(rows)
        grad = probabilities * factor
        grad[rows, labels] -= factor
        gradient: Array = grad.reshape(shape)
        return gradient

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return the share of labels equal to the largest logit's class."""
        return float(np.mean(x.argmax(axis=-1) == labels))

    def constant_loss(self, labels: Array) -> float | None:
        """Return the entropy of the class frequencies, in nats."""
        counts = np.bincount(labels.reshape(-1))
        frequencies = counts[counts > 0] / labels.size
        return float(-(frequencies * np.log(frequencies)).sum())

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: per logit a maximum, difference, exp, sum and quotient; backward a product.

        Maximum, sum and mean are reductions with two compute sets each. Difference and exp share a compute set, and so
        do the quotient and the selection by label. The loss of each row, log(sum) - logit, takes one more.
        """
        elements = batch * math.prod(input_shape)
        rows = elements // input_shape[-1]
        forward = work_of(
            itemsize,
            vector=elements * VectorWork(1, reductions=2, quotients=1, transcendentals=1)
            + rows * VectorWork(1, reductions=1, transcendentals=1),
            accesses=2 * elements,
            exchanged=elements,
            compute_sets=3 * 2 + 3,
        )
        backward = work_of(itemsize, vector=VectorWork(elements + rows), accesses=2 * elements, compute_sets=2)
        return LayerCost(forward, backward)


_CROSS_ENTROPY: Final = SoftmaxCrossEntropy()


@dataclass(frozen=True)
class MaskedSoftmaxCrossEntropy(ParameterlessLoss):
    """The loss of masked tokens: softmax cross entropy of a sample's first positions.

    The mean of -log softmax(logits)[label] over the first positions; other labels and logits are ignored. Logits are
    (batch, positions, ..., classes), labels (batch, positions, ...).
    """

    kind: ClassVar = "masked_softmax_cross_entropy"

    positions: Annotated[Axis, Doc("number of positions, from the first, that count in the loss of a sample")]

    def __post_init__(self) -> None:
        """Raise ModelError for zero positions."""
        if self.positions < 1:
            raise ModelError(f"expected the loss of at least 1 position, got {self.positions}")

    def _selected_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the logits in use; raises ModelError for samples with too few positions."""
        if len(input_shape) < 2 or input_shape[0] < self.positions:
            raise ModelError(
                f"masked softmax cross entropy needs logits of at least {self.positions} positions and an axis of "
                f"classes, got shape {input_shape} for each sample"
            )
        return (self.positions, *input_shape[1:])

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError unless the positions have class numbers."""
        logits = self._selected_shape(input_shape)
        if labels.ndim < 2 or labels.shape[1] < self.positions:
            raise ModelError(
                f"masked softmax cross entropy needs labels of at least {self.positions} positions for each sample, "
                f"got shape {labels.shape[1:]}"
            )
        _CROSS_ENTROPY.check_labels(logits, labels[:, : self.positions])

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return class 0 per position."""
        return _CROSS_ENTROPY.zero_labels(self._selected_shape(input_shape), samples, dtype)

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the mean loss of the first positions."""
        loss, saved_values = _CROSS_ENTROPY.forward(parameters, x[:, : self.positions], labels[:, : self.positions])
        return loss, (saved_values, x.shape)

    def input_gradient(self, saved_values: Saved, scale: float) -> Array:
        """Return the gradient of the first positions, zero elsewhere."""
        inner_saved, shape = saved_values
        grad = _CROSS_ENTROPY.input_gradient(inner_saved, scale)
        if grad.shape == shape:
            return grad
        dx = np.zeros_like(grad, shape=shape)
        dx[:, : self.positions] = grad
        return dx

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return the share of labels of the first positions equal to the largest logit's class."""
        return _CROSS_ENTROPY.accuracy(x[:, : self.positions], labels[:, : self.positions])

    def constant_loss(self, labels: Array) -> float | None:
        """Return the entropy of the class frequencies at the first positions, in nats."""
        return _CROSS_ENTROPY.constant_loss(labels[:, : self.positions])

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work on the logits in use; the backward pass also writes zeros for the other logits."""
        logits = self._selected_shape(input_shape)
        cost = _CROSS_ENTROPY.cost(logits, batch, itemsize, need_input_gradient)
        other_logits = batch * (math.prod(input_shape) - math.prod(logits))
        backward = replace(cost.backward, sram_bytes=cost.backward.sram_bytes + other_logits * itemsize)
        return LayerCost(cost.forward, backward)


@dataclass(frozen=True)
class MeanSquaredError(ParameterlessLoss):
    """The loss of a regression: mean over all elements of the micro-batch of (output - target)^2."""

    kind: ClassVar = "mean_squared_error"

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError unless labels are arrays of the output's shape."""
        if labels.dtype.kind != "f":
            raise ModelError(f"mean squared error needs floating-point targets, got {labels.dtype} labels")
        if labels.shape[1:] != input_shape:
            raise ModelError(
                f"mean squared error on outputs of shape {input_shape} needs targets of that shape for each sample, "
                f"got {labels.shape[1:]}"
            )

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return targets of the outputs' shape."""
        return np.zeros((samples, *input_shape), dtype)

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the mean square of the difference, in the dtype of ``x``."""
        difference = np.subtract(x, labels, dtype=x.dtype)
        return np.asarray(np.square(difference).mean()), difference

    def input_gradient(self, saved_values: Saved, scale: float) -> Array:
        """Return 2 * scale * (output - target) / elements."""
        gradient: Array = saved_values * (2.0 * scale / saved_values.size)
        return gradient

    def constant_loss(self, labels: Array) -> float | None:
        """Return the mean over output elements of the variance over samples."""
        return float(labels.var(axis=0, dtype=np.float64).mean())

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: per element a difference, a square and a sum; backward a product."""
        elements = batch * math.prod(input_shape)
        forward = work_of(
            itemsize,
            vector=elements * VectorWork(2, reductions=1),
            accesses=3 * elements,
            exchanged=2 * elements,
            compute_sets=2 + 2,
        )
        return LayerCost(forward, work_of(itemsize, vector=VectorWork(elements), accesses=2 * elements))
