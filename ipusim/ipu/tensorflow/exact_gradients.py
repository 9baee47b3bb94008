"""Functions whose gradients autograd takes otherwise than TensorFlow at ties, at bounds and at zero.

Each is TensorFlow's (python/ops/math_grad.py): of equal elements the first operand of a maximum or minimum has the
whole gradient; that of a product is the product of all others, so that zeros are no quotients; that of a power by its
exponent is 0 unless the base is positive, and that by its base is y * x^(y - 1), which is NaN for x = y = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f

maximum, minimum, power, sqrt, prod = map(primitive, (np.maximum, np.minimum, np.power, np.sqrt, np.prod))

defvjp(
    maximum,
    lambda _, x, y: unbroadcast_f(x, lambda g: g * (x >= y)),
    lambda _, x, y: unbroadcast_f(y, lambda g: g * anp.logical_not(x >= y)),
)
defvjp(
    minimum,
    lambda _, x, y: unbroadcast_f(x, lambda g: g * (x <= y)),
    lambda _, x, y: unbroadcast_f(y, lambda g: g * anp.logical_not(x <= y)),
)


def _logarithm(x: Any) -> Any:
    """Return the logarithm of positive numbers, and 0 for others."""
    return anp.where(x > 0, anp.log(anp.where(x > 0, x, anp.ones_like(x))), anp.zeros_like(x))


defvjp(
    power,
    lambda _, x, y: unbroadcast_f(x, lambda g: g * y * anp.power(x, y - 1)),
    lambda ans, x, y: unbroadcast_f(y, lambda g: g * ans * _logarithm(x)),
)


defvjp(sqrt, lambda ans, _: lambda g: g * 0.5 / ans)


def _pull_prod(_: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Callable[[Any], Any]:
    count = len(anp.shape(x))
    chosen = range(count) if axis is None else np.atleast_1d(axis).tolist()
    reduced = sorted(item % count for item in chosen)
    order = [item for item in range(count) if item not in reduced] + reduced

    def pull(grad: Any) -> Any:
        moved = anp.transpose(x, order)
        outer, inner = moved.shape[: count - len(reduced)], moved.shape[count - len(reduced) :]
        rows = anp.reshape(moved, (*outer, math.prod(inner)))
        others = _before(rows) * _before(rows[..., ::-1])[..., ::-1]
        result = anp.reshape(grad, (*outer, 1)) * others
        return anp.transpose(anp.reshape(result, moved.shape), np.argsort(order))

    return pull


def _before(rows: Any) -> Any:
    """Return for each element the product of those before it in its row."""
    return anp.concatenate([anp.ones_like(rows[..., :1]), anp.cumprod(rows, axis=-1)[..., :-1]], axis=-1)


defvjp(prod, _pull_prod)
