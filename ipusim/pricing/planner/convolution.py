"""Plan convolutions as products: taps and channels become summed inputs, positions become rows.

PopLibs lays out a convolution in several ways and takes the fastest, like this module:

- tap by tap: the channels of each tap fill whole blocks of the matrix unit, and rows share streamed inputs;
- expanded: taps and channels fill the blocks together, and every row gets a private copy of its inputs (faster with
  few channels, for example in a network's first layer);
- combined groups: several groups become one group. Its kernel is zero between different groups. Even depthwise
  convolutions fill blocks in this way.

Sources: PopLibs lib/poplin/ConvTransforms.cpp (expanded dimensions, combined groups). Vertices for depthwise and short
kernels (SLIC, vertical multiply-accumulate) are left out: such convolutions may run faster than planned. Tiles with
neighbouring positions both receive the inputs at the border; the second copy is not counted.
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

#: Largest number of combined groups, from PopLibs' vertex for combined groups.
_MOST_COMBINED_GROUPS: Final = 16


def products(
    convolution: Convolution, ipu: IpuSpec, itemsize: int = 2, partials_itemsize: int = 4
) -> Iterator[Product]:
    """Yield the products that compute a convolution, for every layout.

    Products are tap by tap or expanded, with and without combined groups. ``itemsize`` and ``partials_itemsize`` are
    described in :class:`ipusim.pricing.planner.product.Product`, which raises QuantityError for sizes below 1.
    """
    block = matrix_unit(ipu, itemsize, partials_itemsize).inputs
    taps, combined = convolution.taps, 1
    while combined <= min(_MOST_COMBINED_GROUPS, convolution.groups):
        channels = combined * convolution.channels
        padded = -(-channels // block) * block
        for inputs, own_inputs in ((taps * padded, padded * min(convolution.stride, taps)), (taps * channels, 0)):
            yield Product(
                m=combined * convolution.filters,
                k=inputs,
                n=convolution.positions,
                groups=-(-convolution.groups // combined),
                itemsize=itemsize,
                partials_itemsize=partials_itemsize,
                own_inputs=own_inputs,
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
    """Return the fastest plan of a convolution, preferring plans that fit in memory.

    ``itemsize`` and ``partials_itemsize`` are the bytes of an element and of a partial sum. Raises QuantityError like
    :func:`ipusim.pricing.planner.plan.plan_product`.
    """
    ways = products(convolution, ipu, itemsize, partials_itemsize)
    plans = [plan_product(product, ipu, rates, memory_proportion) for product in ways]
    return min(plans, key=lambda plan: (not plan.fits, plan.cycles))
