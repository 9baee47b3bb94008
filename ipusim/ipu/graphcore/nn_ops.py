"""Functions of Graphcore's ``nn_ops`` on TensorFlow's graph: activations and convolutions beside each other."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.nn_ops import multi_conv
from ipusim.ipu.runtime import checks

__all__ = ["gelu", "hard_sigmoid", "multi_conv", "swish"]

tf = load()


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> Any:
    """Return gelu of each element.

    Args:
        x: tensor.
        approximate: whether tanh approximates the error function.
        name: name of the operation.
    """
    return tf.nn.gelu(x, checks.truth("approximate", approximate), name)


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """Return the logistic function of each element, in three straight lines.

    Args:
        x: tensor.
        name: name of the operation.
    """
    return tf.identity(tf.keras.activations.hard_sigmoid(x), name)


def swish(x: Any, name: str | None = None) -> Any:
    """Return x times the logistic function of x, for each element.

    Args:
        x: tensor.
        name: name of the operation.
    """
    value = tf.convert_to_tensor(x)
    return tf.multiply(value, tf.sigmoid(value), name)
