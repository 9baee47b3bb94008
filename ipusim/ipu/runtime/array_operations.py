"""Compute Graphcore's array operations: slices, serialized products, images, statistics, look-ups.

A class names its input arrays in parentheses; ``argnums`` are indices of the arrays whose gradients are wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipusim.api import Array, LayerCost, VectorWork, Work, layers, models
from ipusim.ipu.graph.half_precision import widened


@dataclass(frozen=True)
class SequenceSlice:
    """Copies of row slices, on arrays (dst, src, counts, sources, targets).

    Rows sources[i] to sources[i] + counts[i] of src replace rows of dst from targets[i] on. If
    slices overlap in dst, the last slice stays.

    Attributes:
        zero_unused: whether rows of dst outside the slices become zero.
    """

    zero_unused: bool

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return dst with the slices inserted."""
        dst, src, counts, sources, targets = arrays
        sources_of_rows = np.full(len(dst), -1)
        for count, source, target in zip(counts, sources, targets, strict=True):
            sources_of_rows[target : target + count] = np.arange(source, source + count)
        result = np.zeros_like(dst) if self.zero_unused else dst.copy()
        result[sources_of_rows >= 0] = src[sources_of_rows[sources_of_rows >= 0]]
        return (result,), (sources_of_rows, src.shape)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients of dst's rows outside the slices, and of src's rows, summed over copies of a row."""
        sources_of_rows, shape = saved_values
        (grad,) = grads
        dst_gradient, src_gradient = np.zeros_like(grad), np.zeros(shape, grad.dtype)
        if not self.zero_unused:
            dst_gradient[sources_of_rows < 0] = grad[sources_of_rows < 0]
        np.add.at(src_gradient, sources_of_rows[sources_of_rows >= 0], grad[sources_of_rows >= 0])
        return [(dst_gradient, src_gradient)[argument] for argument in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: dst is written once; rows are read, exchanged and written.

        The backward pass sums gradients into zeros in src's shape.
        """
        dst, src, counts = arrays[:3]
        elements, element_size = int(np.sum(counts)) * math.prod(src.shape[1:]), dst.dtype.itemsize
        forward = Work(
            sram_bytes=(2 * elements + dst.size) * element_size,
            exchange_bytes=elements * element_size,
            itemsize=max(element_size, 2),
            compute_sets=2,
        )
        backward = Work(
            vector=VectorWork(elements * (1 in argnums)),
            sram_bytes=(2 * elements + (src.size if 1 in argnums else 0) + (dst.size if 0 in argnums else 0))
            * element_size,
            exchange_bytes=elements * element_size,
            itemsize=max(element_size, 2),
            compute_sets=3,
        )
        return LayerCost(forward, backward)


@dataclass(frozen=True)
class SerializedProduct:
    """Products of (a, b), stacks of matrices, computed in parts like ipusim's serialized dense layer."""

    parts: layers.SerializedMatmul

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return a @ b for every pair of matrices."""
        a, b = arrays
        pairs = zip(_matrices(widened(a)), _matrices(widened(b)), strict=True)
        products = np.stack([self.parts.product(*pair) for pair in pairs])
        return (products.reshape(*a.shape[:-1], b.shape[-1]).astype(a.dtype, copy=False),), (a, b)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return grad @ b.T and a.T @ grad, also serialized."""
        a, b = saved_values
        gradients = self.parts.left_gradient, self.parts.right_gradient
        triples = list(zip(*(_matrices(widened(x)) for x in (a, b, grads[0])), strict=True))
        results = [np.stack([gradients[number](*item) for item in triples]) for number in argnums]
        return [
            result.reshape((a, b)[number].shape).astype((a, b)[number].dtype, copy=False)
            for number, result in zip(argnums, results, strict=True)
        ]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: one product forward, one per gradient backward.

        Operands are read and written once. Parts read or write extra elements in every product, as given by
        :meth:`SerializedMatmul.repeated`.
        """
        a, b = arrays
        (m, k), n, groups = a.shape[-2:], b.shape[-1], math.prod(a.shape[:-2])
        size, y = a.dtype.itemsize, groups * m * n
        traffic = a.size + b.size + y + self.parts.repeated_elements(a.size, b.size, y)
        full_products = (
            models.Product(m, k, n, groups),
            (models.Product(m, n, k, groups), models.Product(k, m, n, groups)),
        )
        products = tuple(self.parts.parts(full_products[1][number], ("mnk", "kmn")[number]) for number in argnums)
        return LayerCost(
            Work(
                (self.parts.parts(full_products[0], "mkn"),), sram_bytes=traffic * size, itemsize=size, compute_sets=0
            ),
            Work(products, sram_bytes=len(products) * traffic * size, itemsize=size, compute_sets=0),
        )


def _matrices(stack: Array) -> Array:
    return stack.reshape(-1, *stack.shape[-2:])


@dataclass(frozen=True)
class NormaliseImage:
    """(image * scale - offsets) * scales of (image, offsets, scales), plus a channel of zeros.

    Attributes:
        scale: scale for all channels.
    """

    scale: float

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return images with four channels; bytes become float16, other dtypes stay."""
        image, offsets, scales = arrays
        kind = np.dtype(np.float16) if image.dtype == np.uint8 else image.dtype
        difference = image.astype(kind) * kind.type(self.scale) - offsets.astype(kind)
        result = np.zeros((*image.shape[:-1], 4), kind)
        result[..., :3] = difference * scales.astype(kind)
        return (result,), (difference, offsets, scales)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients of images, offsets and scales."""
        difference, offsets, scales = saved_values
        grad, axes = grads[0][..., :3], tuple(range(difference.ndim - 1))
        scaled_grad = grad * scales.astype(grad.dtype)
        return [
            scaled_grad * grad.dtype.type(self.scale)
            if argument == 0
            else (-scaled_grad.sum(axis=axes)).astype(offsets.dtype)
            if argument == 1
            else (grad * difference).sum(axis=axes).astype(scales.dtype)
            for argument in argnums
        ]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: product, difference and product per element forward, and as much backward."""
        image = arrays[0]
        size = image.dtype.itemsize if image.dtype.kind == "f" else 2
        bytes_written = image.size // 3 * 4 * size
        forward = Work(vector=VectorWork(3 * image.size), sram_bytes=image.nbytes + bytes_written, itemsize=size)
        sums = len({1, 2} & set(argnums))
        backward = Work(
            vector=VectorWork((2 + sums) * image.size, reductions=sums * image.size),
            sram_bytes=bytes_written + image.size * size * (1 + (2 in argnums)),
            itemsize=size,
            compute_sets=1 + 2 * sums,
        )
        return LayerCost(forward, backward)


@dataclass(frozen=True)
class FixedWidthBins:
    """Evenly spaced levels between minimum and maximum of (values,)."""

    levels: int

    def forward(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the levels."""
        (values,) = arrays
        return (np.linspace(values.min(), values.max(), self.levels, dtype=values.dtype),)

    def cost(self, arrays: Sequence[Array]) -> Work:
        """Return the work: minimum, maximum, then product and sum per level."""
        (values,) = arrays
        size = values.dtype.itemsize
        return Work(
            vector=VectorWork(2 * self.levels, reductions=2 * values.size),
            sram_bytes=(2 * values.size + self.levels) * size,
            itemsize=size,
            compute_sets=2 * 2 + 1,
        )


@dataclass(frozen=True)
class Histogram:
    """Histogram of (values, levels, old counts), added to the old counts.

    The first count is for values below the first level.

    Attributes:
        absolute: whether to count magnitudes.
    """

    absolute: bool

    def forward(self, *arrays: Array) -> tuple[Array, ...]:
        """Return (levels + 1,) counts in float32, like popops with ``useFloatArithmetic``."""
        values, levels, old_counts = arrays
        bins = np.searchsorted(levels, np.abs(values) if self.absolute else values, side="right")
        return (old_counts + np.bincount(bins, minlength=len(levels) + 1).astype(np.float32),)

    def cost(self, arrays: Sequence[Array]) -> Work:
        """Return the work: compare values with levels, then sum the tiles' counts."""
        values, levels, old_counts = arrays
        size = values.dtype.itemsize
        return Work(
            vector=VectorWork(values.size * (levels.size + self.absolute) + old_counts.size, reductions=values.size),
            sram_bytes=(values.size + levels.size) * size + 2 * old_counts.nbytes,
            exchange_bytes=levels.nbytes,
            itemsize=size,
            compute_sets=1 + 2,
        )


@dataclass(frozen=True)
class SerializedLookup:
    """Rows of (table, ids), looked up in successive parts of the table."""

    parts: int

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the rows, (..., elements); raises ModelError for ids outside the table."""
        table, ids = arrays
        rows, _ = layers.Embedding(*table.shape).forward({"W": table}, ids)
        return (rows,), (table, ids)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the table's gradient, summed over uses of a row."""
        table, ids = saved_values
        result = layers.Embedding(*table.shape).backward_weights({"W": table}, (ids, grads[0]))
        return [result["W"] for _ in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: a full look-up per part, plus the sums over parts."""
        table, ids = arrays
        size, elements = table.dtype.itemsize, ids.size * table.shape[1]
        lookup = layers.Embedding(table.shape[0] // self.parts, table.shape[1]).cost((), ids.size, size)
        add = Work(vector=VectorWork(elements), sram_bytes=3 * elements * size, itemsize=size)
        passes = (lookup.forward,) * self.parts + (add,) * (self.parts - 1)
        return LayerCost(models.in_turn(passes, size), models.in_turn((lookup.backward,) * self.parts, size))
