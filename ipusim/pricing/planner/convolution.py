"""Convolutions, planned as products: the taps of the kernel are inputs beside each other, positions are rows.

PopLibs lays one out in several ways, of which the fastest is taken here as there:

- tap by tap: the channels of each tap fill whole blocks of the matrix unit, and rows share what they stream;
- expanded: taps and channels together fill the blocks, for which every row gets a copy of its own of what it sees
  (worth it where channels are few, as in a network's first layer);
- with groups combined: several groups become one whose weights are zero off the diagonal, so that depthwise
  convolutions fill blocks at all.

Sources: PopLibs lib/poplin/ConvTransforms.cpp (expanded dimensions, combined groups). Vertices for depthwise and
short kernels (SLIC, vertical multiply-accumulate) are left out: such convolutions may be faster than planned. That
inputs at the rim of a tile's positions are received twice is left out as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

from ipusim.base.errors import QuantityError
from ipusim.hardware.generations import IpuSpec
from ipusim.pricing.planner.matrix_unit import matrix_unit
from ipusim.pricing.planner.plan import AVAILABLE_MEMORY_PROPORTION, ProductPlan, plan_product
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES, PlannerRates

#: Groups that are combined at most, those of PopLibs' vertex for combined groups.
_MOST_COMBINED: Final = 16


@dataclass(frozen=True)
class Convolution:
    """The shape of one convolution, in any number of dimensions.

    Attributes:
        positions: outputs of one channel: micro-batch times positions in all dimensions.
        in_channels, out_channels: of one group.
        taps: positions of the kernel.
        stride: input positions to an output position, in all dimensions together.
        groups: convolutions side by side that share nothing; each channel by itself if it is depthwise.
        itemsize, partials_itemsize: as of :class:`ipusim.pricing.planner.product.Product`.

    Raises QuantityError for sizes below 1.
    """

    positions: int
    in_channels: int
    out_channels: int
    taps: int
    stride: int = 1
    groups: int = 1
    itemsize: int = 2
    partials_itemsize: int = 4

    def __post_init__(self) -> None:
        """Raise QuantityError for a shape of no convolution."""
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise QuantityError(
                    f"convolution: expected {field.name} of at least 1, got {getattr(self, field.name)}"
                )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all groups."""
        return self.groups * self.positions * self.in_channels * self.out_channels * self.taps

    def products(self, ipu: IpuSpec) -> Iterator[Product]:
        """Yield every product that computes it on an IPU: tap by tap or expanded, with groups combined or not."""
        block = matrix_unit(ipu, self.itemsize, self.partials_itemsize).inputs
        combined = 1
        while combined <= min(_MOST_COMBINED, self.groups):
            channels = combined * self.in_channels
            padded = -(-channels // block) * block
            for inputs, own in (
                (self.taps * padded, padded * min(self.stride, self.taps)),
                (self.taps * channels, 0),
            ):
                yield Product(
                    m=combined * self.out_channels,
                    k=inputs,
                    n=self.positions,
                    groups=-(-self.groups // combined),
                    itemsize=self.itemsize,
                    partials_itemsize=self.partials_itemsize,
                    own_inputs=own,
                )
            combined *= 2


@lru_cache(maxsize=4096)
def plan_convolution(
    convolution: Convolution,
    ipu: IpuSpec,
    rates: PlannerRates = DEFAULT_PLANNER_RATES,
    memory_proportion: float = AVAILABLE_MEMORY_PROPORTION,
) -> ProductPlan:
    """Return the plan of the product that computes a convolution in the fewest cycles, of those that fit if any does.

    Raises QuantityError as :func:`ipusim.pricing.planner.plan.plan_product` does.
    """
    plans = [plan_product(product, ipu, rates, memory_proportion) for product in convolution.products(ipu)]
    return min(plans, key=lambda plan: (not plan.fits, plan.cycles))
