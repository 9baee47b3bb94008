"""Images with each channel at an offset and a scale of its own, as PopLibs' ``NormaliseImage`` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.work import VectorWork, Work


@dataclass(frozen=True)
class NormaliseImage:
    """(image * scale - offsets) * scales of (image, offsets, scales), with a fourth channel of zeros behind.

    Attributes:
        scale: of all channels.
    """

    scale: float

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return the images with four channels: in float16 where they come as bytes, else as they come."""
        image, offsets, scales = arrays
        kind = np.dtype(np.float16) if image.dtype == np.uint8 else image.dtype
        difference = image.astype(kind) * kind.type(self.scale) - offsets.astype(kind)
        found = np.zeros((*image.shape[:-1], 4), kind)
        found[..., :3] = difference * scales.astype(kind)
        return (found,), (difference, offsets, scales)

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the gradients of images, offsets and scales."""
        difference, offsets, scales = saved
        grad, over = grads[0][..., :3], tuple(range(difference.ndim - 1))
        scaled = grad * scales.astype(grad.dtype)
        return [
            scaled * grad.dtype.type(self.scale)
            if place == 0
            else (-scaled.sum(axis=over)).astype(offsets.dtype)
            if place == 1
            else (grad * difference).sum(axis=over).astype(scales.dtype)
            for place in wanted
        ]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: a product, a difference and a product for each element there, and the same back."""
        image = arrays[0]
        size = image.dtype.itemsize if image.dtype.kind == "f" else 2
        written = image.size // 3 * 4 * size
        forward = Work(vector=VectorWork(3 * image.size), sram_bytes=image.nbytes + written, itemsize=size)
        sums = len({1, 2} & set(wanted))
        backward = Work(
            vector=VectorWork((2 + sums) * image.size, reductions=sums * image.size),
            sram_bytes=written + image.size * size * (1 + (2 in wanted)),
            itemsize=size,
            compute_sets=1 + 2 * sums,
        )
        return LayerCost(forward, backward)
