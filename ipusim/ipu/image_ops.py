"""Functions of Graphcore's ``image_ops``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.api import Array, LayerCost, VectorWork, Work, functions, layers
from ipusim.ipu.runtime import checks
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


@dataclass(frozen=True)
class NormaliseImage:
    """(image * scale - offsets) * scales of (image, offsets, scales), with a fourth channel of zeros behind.

    Attributes:
        scale: of all channels.
    """

    scale: float

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the images with four channels: in float16 where they come as bytes, else as they come."""
        image, offsets, scales = arrays
        kind = np.dtype(np.float16) if image.dtype == np.uint8 else image.dtype
        difference = image.astype(kind) * kind.type(self.scale) - offsets.astype(kind)
        result = np.zeros((*image.shape[:-1], 4), kind)
        result[..., :3] = difference * scales.astype(kind)
        return (result,), (difference, offsets, scales)

    def backward(self, saved: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients of images, offsets and scales."""
        difference, offsets, scales = saved
        grad, over = grads[0][..., :3], tuple(range(difference.ndim - 1))
        scaled = grad * scales.astype(grad.dtype)
        return [
            scaled * grad.dtype.type(self.scale)
            if argument == 0
            else (-scaled.sum(axis=over)).astype(offsets.dtype)
            if argument == 1
            else (grad * difference).sum(axis=over).astype(scales.dtype)
            for argument in argnums
        ]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: a product, a difference and a product for each element there, and the same back."""
        image = arrays[0]
        size = image.dtype.itemsize if image.dtype.kind == "f" else 2
        written = image.size // 3 * 4 * size
        forward = Work(vector=VectorWork(3 * image.size), sram_bytes=image.nbytes + written, itemsize=size)
        sums = len({1, 2} & set(argnums))
        backward = Work(
            vector=VectorWork((2 + sums) * image.size, reductions=sums * image.size),
            sram_bytes=written + image.size * size * (1 + (2 in argnums)),
            itemsize=size,
            compute_sets=1 + 2 * sums,
        )
        return LayerCost(forward, backward)
