"""Functions of Graphcore's ``image_ops``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import NormaliseImage
from ipusim.ipu.tensorflow.array_functions import tensor


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: str | None = None
) -> Any:
    """Return (image * scale - offset) * channel scale for each of three channels, and a fourth one of zeros.

    Images (batch, height, width, 3) of bytes come out in float16, others in their own type. Raises ProgramError for
    others.
    """
    x, offsets, scales = tensor(image), tensor(channel_offsets), tensor(channel_scales)
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        checks.wrong_value("image", "uint8, float32 or float16", x.dtype)
    if x.ndim != 4 or x.shape[3] != 3:
        checks.wrong_value("image", "a tensor of shape [X,Y,Z,3]", x.shape)
    for argument, value in (("channel_offsets", offsets), ("channel_scales", scales)):
        if value.shape != (3,):
            checks.wrong_value(argument, "an array or tensor of shape [3]", value.shape)
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.number):
        checks.wrong_type("scale", "a number", scale)
    return functions.operate(NormaliseImage(float(scale)), x, offsets, scales)[0]
