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
from functools import lru_cache
from typing import Final

from ipusim.hardware.generations import IpuSpec
from ipusim.model.work import Convolution
from ipusim.pricing.planner.matrix_unit import matrix_unit
from ipusim.pricing.planner.plan import AVAILABLE_MEMORY_PROPORTION, ProductPlan, plan_product
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES, PlannerRates

#: Groups that are combined at most, those of PopLibs' vertex for combined groups.
_MOST_COMBINED: Final = 16


def products(
    convolution: Convolution, ipu: IpuSpec, itemsize: int = 2, partials_itemsize: int = 4
) -> Iterator[Product]:
    """Yield every product that computes it on an IPU: tap by tap or expanded, with groups combined or not.

    ``itemsize`` and ``partials_itemsize`` are those of :class:`ipusim.pricing.planner.product.Product`, which raises
    QuantityError for sizes below 1.
    """
    block = matrix_unit(ipu, itemsize, partials_itemsize).inputs
    taps, combined = convolution.taps, 1
    while combined <= min(_MOST_COMBINED, convolution.groups):
        channels = combined * convolution.channels
        padded = -(-channels // block) * block
        for inputs, own in ((taps * padded, padded * min(convolution.stride, taps)), (taps * channels, 0)):
            yield Product(
                m=combined * convolution.filters,
                k=inputs,
                n=convolution.positions,
                groups=-(-convolution.groups // combined),
                itemsize=itemsize,
                partials_itemsize=partials_itemsize,
                own_inputs=own,
            )
        combined *= 2


@lru_cache(maxsize=4096)
def plan_convolution(
    convolution: Convolution,
    ipu: IpuSpec,
    rates: PlannerRates = DEFAULT_PLANNER_RATES,
    memory_proportion: float = AVAILABLE_MEMORY_PROPORTION,
    itemsize: int = 2,
    partials_itemsize: int = 4,
) -> ProductPlan:
    """Return the plan of the product that computes a convolution in the fewest cycles, of those that fit if any does.

    Bytes of an element and of a partial sum are those of the product. Raises QuantityError as
    :func:`ipusim.pricing.planner.plan.plan_product` does.
    """
    ways = products(convolution, ipu, itemsize, partials_itemsize)
    plans = [plan_product(product, ipu, rates, memory_proportion) for product in ways]
    return min(plans, key=lambda plan: (not plan.fits, plan.cycles))
