"""Dropout, whose mask follows from a key alone: any later pass over the same micro-batch finds the same mask."""

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

#: Ends the seed of every mask, so that none shares its draws with weights or the order of samples.
_DOMAIN: Final = 0x44524F50

#: To drop one element: one instruction draws, compares and chooses, and a product follows in registers;
#: 2 cycles for 8 bytes (PopLibs lib/poprand/poprandCycleEstimators.cpp), as an operation on elements takes.
DROP: Final = VectorWork(elementwise=1)
#: Compute sets of any dropout: the tiles' seeds are read, set from the micro-batch's and put back around it (PopLibs
#: lib/poprand/RandomGen.cpp).
DROP_SETS: Final = 4


def keep_mask(key: Key, shape: Shape, rate: float) -> Array:
    """Return an array of truth values, each false with probability ``rate``, that depends on the arguments alone."""
    draws = np.random.default_rng([*key, _DOMAIN]).random(shape, dtype=np.float32)
    return draws >= np.float32(rate)


def check_rate(rate: float) -> None:
    """Raise ModelError unless ``rate`` is a probability below 1."""
    if not 0 <= rate < 1:
        raise ModelError(f"expected a dropout rate from 0 and below 1, got {rate}")


def drop(key: Key | None, x: Array, rate: float) -> Array:
    """Return ``x`` with elements set to 0 and the others scaled by 1 / (1 - rate); without a key ``x`` itself.

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

    Each element becomes 0 with probability ``rate``; the others are scaled by
    1 / (1 - rate), as by Graphcore's Keras ``Dropout`` (keras.ipu.layers). The backward pass draws the
    mask anew, as Graphcore's does from the seed that its forward pass hands on, so
    nothing but the key is kept.
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
        """Return ``x`` (batch, ...) with elements dropped; without a key, ``x`` itself."""
        return drop(key, x, self.rate), key

    def input_gradient(self, saved: Saved, grad: Array) -> Array:
        """Return ``grad`` dropped and scaled like the input."""
        return drop(saved, grad, self.rate)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of either pass: :data:`DROP` of each element, a read and a write."""
        elements = batch * math.prod(input_shape)
        work = work_of(itemsize, vector=elements * DROP, touched=2 * elements, compute_sets=DROP_SETS)
        return LayerCost(work, work if need_input_gradient else Work(itemsize=itemsize))
