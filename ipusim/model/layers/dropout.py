"""Drop elements by masks derived from a key: later passes over the same micro-batch repeat the mask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import numpy as np
from annotated_doc import Doc

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Rate
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameterless, Parameters, Saved, Shape
from ipusim.model.work import VectorWork, Work, work_of

#: Last part of a mask's seed, so that masks differ from the draws of weights and of the sample order.
_DOMAIN: Final = 0x44524F50

#: Work to drop an element: a single instruction draws, compares and selects, then a product follows in registers. For 8
#: bytes this takes 2 cycles (PopLibs lib/poprand/poprandCycleEstimators.cpp), like an element-wise operation.
DROP: Final = VectorWork(elementwise=1)
#: Compute sets of a dropout: read the tiles' seeds, set them from the micro-batch's seed, drop, and restore the seeds
#: (PopLibs lib/poprand/RandomGen.cpp).
DROP_SETS: Final = 4


def keep_mask(key: Key, shape: Shape, rate: float) -> Array:
    """Return the mask of kept elements, false with probability ``rate``; equal arguments give equal masks."""
    draws = np.random.default_rng([*key, _DOMAIN]).random(shape, dtype=np.float32)
    return draws >= np.float32(rate)


def check_rate(rate: float) -> None:
    """Raise ModelError unless ``rate`` is a probability below 1."""
    if not 0 <= rate < 1:
        raise ModelError(f"expected a dropout rate from 0 and below 1, got {rate}")


def drop(key: Key | None, x: Array, rate: float) -> Array:
    """Return ``x`` with elements set to 0 and others scaled by 1 / (1 - rate); without a key, ``x``.

    The same call pulls a gradient back, since dropout is linear in ``x``.
    """
    if key is None or rate == 0:
        return x
    y: Array = x * keep_mask(key, x.shape, rate)
    y *= 1 / (1 - rate)
    return y


@dataclass(frozen=True)
class Dropout(Parameterless):
    """Sets a share of the elements to zero in training and scales the others up.

    An element becomes 0 with probability ``rate``; others are scaled by 1 / (1 - rate), as in Graphcore's Keras
    ``Dropout`` (keras.ipu.layers). The backward pass draws the mask again from the seed of the forward pass, as
    Graphcore's layer does. Only the key is kept.
    """

    kind: ClassVar = "dropout"

    rate: Annotated[Rate, Doc("share of the elements that are dropped")]

    def __post_init__(self) -> None:
        """Raise ModelError unless the rate is a probability below 1."""
        check_rate(self.rate)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return input_shape

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x`` (batch, ...) with elements dropped; without a key, ``x``."""
        return drop(key, x, self.rate), key

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return ``grad`` dropped and scaled like the input."""
        return drop(saved_values, grad, self.rate)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of either pass: :data:`DROP`, a read and a write per element."""
        elements = batch * math.prod(input_shape)
        work = work_of(itemsize, vector=elements * DROP, accesses=2 * elements, compute_sets=DROP_SETS)
        return LayerCost(work, work if need_input_gradient else Work(itemsize=itemsize))
