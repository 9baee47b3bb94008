"""Drop elements at random: Graphcore's ``rand_ops``."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


def dropout(
    x: Any, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, name: str | None = None, **kwargs: Any
) -> Any:
    """Zero a share of the elements of ``x``, and scale up the rest.

    Args:
        x: tensor.
        rate: share of the elements to zero.
        noise_shape: shape of the mask; size 1 on an axis draws one value for the whole axis.
        seed: seed of the draws; seeds that are not whole numbers have no effect.
        name: name of the operation.
        kwargs: without effect, such as ``ref``: the gradient always uses the mask of its forward pass.

    Raises:
        ProgramTypeError: unless noise_shape is a list of sizes.
        ProgramError: if the mask does not broadcast to ``x``.
    """
    value = tf.convert_to_tensor(x)
    if noise_shape is not None:
        checks.instance("noise_shape", noise_shape, list | tuple | tf.TensorShape, "a list of sizes")
        axes, mask = value.shape.as_list(), list(noise_shape)
        if len(mask) != len(axes) or any(size not in (None, 1, axis) for size, axis in zip(mask, axes, strict=True)):
            checks.wrong_value("noise_shape", f"1, or the size of x, for each axis of {tuple(axes)}", noise_shape)
    return tf.nn.dropout(value, rate, noise_shape, seed if isinstance(seed, int) else None, name)
