"""Run activation functions, softmax, cross entropies of logits, and their gradients in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import special

from ipusim.api import Array
from ipusim.ipu.graph.half_precision import in_float32, widened
from ipusim.ipu.graph.kernels.selection import select, select_gradient
from ipusim.ipu.graph.registry import Kernel, kernel

#: SELU's constants (Klambauer et al. 2017).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _relu6(x: Array) -> Any:
    return np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6))


def _elu(x: Array) -> Any:
    return select(x < 0, np.expm1(np.minimum(x, x.dtype.type(0))), x)


def _selu(x: Array) -> Any:
    alpha, scale = (x.dtype.type(value) for value in (_SELU_ALPHA, _SELU_SCALE))
    return scale * select(x < 0, alpha * np.expm1(np.minimum(x, x.dtype.type(0))), x)


def _selu_gradient(grad: Array, y: Array) -> Any:
    scale = grad.dtype.type(_SELU_SCALE)
    return select(y < 0, grad * (y + grad.dtype.type(_SELU_ALPHA * _SELU_SCALE)), grad * scale)


_FUNCTIONS: Final[dict[str, Kernel]] = {
    "Sigmoid": in_float32(special.expit),
    "SigmoidGrad": lambda y, grad: grad * y * (1 - y),
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "ReluGrad": lambda grad, x: select_gradient(x > 0, grad),
    "Relu6": _relu6,
    "Relu6Grad": lambda grad, x: select_gradient((x > 0) & (x < 6), grad),
    "Elu": _elu,
    "EluGrad": lambda grad, y: select(y < 0, grad * (y + y.dtype.type(1)), grad),
    "Selu": _selu,
    "SeluGrad": _selu_gradient,
    "Softplus": lambda x: np.logaddexp(x, x.dtype.type(0)),
    "SoftplusGrad": lambda grad, x: grad / (np.exp(-x) + x.dtype.type(1)),
    "Softsign": lambda x: x / (np.abs(x) + x.dtype.type(1)),
    "SoftsignGrad": lambda grad, x: grad / np.square(np.abs(x) + x.dtype.type(1)),
}
for _types, _function in _FUNCTIONS.items():
    kernel(_types)(_function)


@kernel("LeakyRelu", "alpha")
def _leaky_relu(slope: float, x: Array) -> Any:
    return select(x > 0, x, x * x.dtype.type(slope))


@kernel("LeakyReluGrad", "alpha")
def _leaky_relu_gradient(slope: float, grad: Array, x: Array) -> Any:
    return select(x > 0, grad, grad * grad.dtype.type(slope))


def softmax(x: Array) -> Any:
    """Return the softmax over the last axis."""
    shifted = np.exp(x - np.maximum.reduce(x, axis=-1, keepdims=True, initial=-np.inf))
    shifted /= np.add.reduce(shifted, axis=-1, keepdims=True)
    return shifted


def log_softmax(x: Array) -> Array:
    """Return the logarithm of the softmax over the last axis."""
    shifted = x - np.maximum.reduce(x, axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True)))


kernel("Softmax")(in_float32(softmax))
kernel("LogSoftmax")(in_float32(log_softmax))


@kernel("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return losses for integer labels, and their gradient; both are NaN for labels outside the classes."""
    wide = widened(logits)
    log_probabilities = log_softmax(wide)
    rows = np.arange(len(labels))
    valid = (labels >= 0) & (labels < logits.shape[-1])
    label_indices = np.where(valid, labels, 0)
    losses = -log_probabilities[rows, label_indices]
    gradient = np.exp(log_probabilities)
    gradient[rows, label_indices] -= 1
    if not valid.all():
        losses = np.where(valid, losses, np.nan)
        gradient[~valid] = np.nan
    return losses.astype(logits.dtype), gradient.astype(logits.dtype)


@kernel("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(logits: Array, labels: Array) -> tuple[Any, Any]:
    """Return losses for labels that are distributions over classes, and their gradient."""
    logits, labels = np.broadcast_arrays(logits, labels)
    wide = widened(logits)
    log_probabilities = log_softmax(wide)
    products = np.where(labels == 0, wide.dtype.type(0), labels * log_probabilities)
    gradient = np.exp(log_probabilities) - labels
    return (-np.add.reduce(products, axis=-1)).astype(logits.dtype), gradient.astype(logits.dtype)
