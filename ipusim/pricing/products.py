"""Plan the matrix products and convolutions in the work of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ipusim.hardware.generations import IpuSpec
from ipusim.model.work import Product, Work
from ipusim.pricing.planner import product
from ipusim.pricing.planner.convolution import plan_convolution
from ipusim.pricing.planner.plan import AVAILABLE_MEMORY_PROPORTION, ProductPlan, plan_product
from ipusim.pricing.planner.rates import PlannerRates


class PlannedProduct(NamedTuple):
    """A product's plan, and number of runs."""

    plan: ProductPlan
    times: int


def plans(work: Work, ipu: IpuSpec, rates: PlannerRates) -> Iterator[PlannedProduct]:
    """Yield plans and run counts of the products in ``work``; empty products are left out.

    The matrix unit holds the second operand (the weights) and streams the rows of the first operand past it. Elements
    of 8 bytes, unsupported by IPUs, count as float32.
    """
    size = min(work.itemsize, 4)
    partials = max(size, work.partials_itemsize)
    share = work.memory_proportion
    proportion = AVAILABLE_MEMORY_PROPORTION if share is None else float(share)
    for operation in work.products:
        if not operation.macs:
            continue
        if isinstance(operation, Product):
            yield PlannedProduct(
                plan_product(_dense(operation, size, partials), ipu, rates, proportion), operation.times
            )
        else:
            yield PlannedProduct(plan_convolution(operation, ipu, rates, proportion, size, partials), 1)


def _dense(dense: Product, size: int, partials: int) -> product.Product:
    own_inputs = -(-dense.k // dense.shared_rows) if dense.shared_rows > 1 else 0
    return product.Product(
        m=dense.n,
        k=dense.k,
        n=dense.m,
        groups=dense.groups,
        itemsize=size,
        partials_itemsize=partials,
        own_inputs=own_inputs,
    )
