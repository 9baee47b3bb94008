"""An operation of one's own, for `custom_operation.py`: log(1 + exp(x)), with its gradient and its cycles."""

import numpy as np


def soft_plus(x, attributes):
    return np.logaddexp(0, x)


def soft_plus_grad(gradients, outputs, inputs, attributes):
    return [gradients[0] * -np.expm1(-outputs[0])]


def soft_plus_cost(x):
    """Two exponentials and a logarithm of each element, a vector of two on each tile at a time, and a launch."""
    rows = -(-x.size // (2 * 1472))
    return {"forward": 200 + 30 * rows, "backward": 200 + 20 * rows}
