"""How large the arrays are that a layer makes inside a pass, besides its input and its output."""

from __future__ import annotations

import math
from typing import NamedTuple

from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.chain import Chain
from ipusim.model.layers.convolution import Conv2D
from ipusim.model.layers.layer import Described, Shape
from ipusim.model.layers.network import chain_shapes
from ipusim.model.layers.parallel import Branch, Parallel
from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
from ipusim.model.layers.recurrent import Recurrent
from ipusim.model.layers.residual import Residual


class InnerSizes(NamedTuple):
    """Elements for one sample: ``kept`` from the forward pass to the backward, and ``passing`` within a pass."""

    kept: int = 0
    passing: int = 0


def inner_sizes(layer: Described, input_shape: Shape) -> InnerSizes:
    """Return the sizes of what this simulator's arithmetic makes; zero for layers that only make their output."""
    match layer:
        case MultiHeadAttention():
            positions, elements = input_shape
            inner = layer.parameter_shapes(input_shape)["Wo"][0]
            return InnerSizes(layer.num_heads * positions**2 + 4 * positions * inner, positions * elements)
        case Recurrent():
            return InnerSizes(input_shape[0] * layer.units * (layer.gates + 3))
        case Conv2D():
            *field, filters = layer.output_shape(input_shape)
            kernel = layer.parameter_shapes(input_shape)["W"]
            return InnerSizes(0, math.prod(field) * math.prod(kernel) // filters)
        case MaxPool2D() | AveragePool2D():
            return InnerSizes(0, math.prod(layer.padded_shape(input_shape)))
        case Residual() | Parallel() | Branch():
            kept, passing = 0, 0
            for branch in _chains(layer):
                shapes = chain_shapes(branch, input_shape)
                inside = [inner_sizes(named.layer, shape) for named, shape in zip(branch, shapes, strict=False)]
                kept += sum(math.prod(shape) for shape in shapes[1:]) + sum(sizes.kept for sizes in inside)
                passing = max(passing, *(sizes.passing for sizes in inside)) if inside else passing
            return InnerSizes(kept, passing)
    return InnerSizes()


def _chains(layer: Residual | Parallel | Branch) -> tuple[Chain, ...]:
    """Return the layers in order that a layer holds."""
    match layer:
        case Residual():
            return layer.layers, layer.shortcut
        case Parallel():
            return layer.branches
        case Branch():
            return (layer.layers,)
