"""Normalise images: Graphcore's ``image_ops``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import NormaliseImage
from ipusim.ipu.traced.operations import operate

tf = load()


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> Any:
    """Normalise three channels to (image * scale - offset) * channel scale; add a fourth channel of zeros.

    Args:
        image: (batch, height, width, 3); bytes become float16, other types stay.
        channel_offsets, channel_scales: three numbers, one per channel.
        scale: factor of all channels.
        name: name of the operation.

    Raises:
        ProgramError: if a tensor has a wrong type or shape.
    """
    x = tf.convert_to_tensor(image)
    offsets, scales = (
        tf.convert_to_tensor(tensor, None if hasattr(tensor, "dtype") else tf.float32)
        for tensor in (channel_offsets, channel_scales)
    )
    if x.dtype != tf.uint8 and not x.dtype.is_floating:
        checks.wrong_value("image", "uint8, float32 or float16", x.dtype.name)
    if x.shape.rank != 4 or x.shape[3] != 3:
        checks.wrong_value("image", "a tensor of shape [X,Y,Z,3]", tuple(x.shape.as_list()))
    for argument, value in (("channel_offsets", offsets), ("channel_scales", scales)):
        if value.shape.as_list() != [3]:
            checks.wrong_value(argument, "an array or tensor of shape [3]", tuple(value.shape.as_list()))
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.number):
        checks.wrong_type("scale", "a number", scale)
    dtype = tf.float16 if x.dtype == tf.uint8 else x.dtype
    form = (dtype, [*x.shape.as_list()[:-1], 4])
    (result,) = operate(NormaliseImage(float(scale)), [x, offsets, scales], [form], name or "normalise_image")
    return result
