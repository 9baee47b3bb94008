"""Work of a split: what the busiest tile of each split receives, loads, multiplies and adds; and its cycles.

A product runs as one program or as several like it, one after another (steps), of which
each does a part of the outputs (output steps) or of the inputs (input steps), so that
what a tile needs at a time fits. Each is, for the busiest tile:

    exchange    it receives the rows and the weights that it has not; a pair of neighbours that
                share one operand receives that at double rate
    loading     each block of weights goes into the matrix unit
    matrix      rows stream past each block: start of the pass, then the rows, of which workers take turns
    reduction   where inputs are split, partial sums of the other tiles come in, each tile for its part of the outputs
    adding      they are added, or converted where nothing is to add but their type is another; sums of
                earlier input steps are added too
    launches    compute sets: operands brought into place, product, reduction, sums of input steps

Partial sums are added by the vector unit, at the rate of all vector work.

Sources: PopLibs lib/poplin/ConvModel.cpp and ExchangeEstimator (which cost terms there are, that pairs share
a bus, that serial splits repeat everything), ConvPerformanceEstimation.hpp (the matrix unit). That a
tile already has its even share of what it and others need, and that two compute sets are common to all, is assumed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.hardware.generations import IpuSpec
from ipusim.pricing.planner.matrix_unit import MatrixUnit
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.planner.splits import Splits

#: Bytes of the data path by which partial sums are added.
PATH_BYTES: Final = 8
#: Compute sets of every product: operands brought into place, and the product itself.
_COMMON_SETS: Final = 2

Numbers = npt.NDArray[Any]


class SplitWork(NamedTuple):
    """What the busiest tile does for each of many splits, of all steps together; every amount is whole.

    Attributes:
        received_bytes: of both operands, over a bus of nominal width.
        load_cycles: of weights into the matrix unit, which no rate touches.
        start_cycles: of vertices and passes, which no rate touches.
        row_cycles: of rows past blocks, at the matrix unit's peak.
        reduced_bytes: of partial sums, received.
        added_bytes: of partial sums, added or converted.
        compute_sets: launches.
        temporary_bytes: of a tile, held during a step: both operands in place, and partial sums that are no result yet.
    """

    received_bytes: Numbers
    load_cycles: Numbers
    start_cycles: Numbers
    row_cycles: Numbers
    reduced_bytes: Numbers
    added_bytes: Numbers
    compute_sets: Numbers
    temporary_bytes: Numbers


class SplitCycles(NamedTuple):
    """Cycles of each part of the work."""

    launches: Numbers
    exchange: Numbers
    loading: Numbers
    matrix: Numbers
    reduction: Numbers
    adding: Numbers

    @property
    def total(self) -> Numbers:
        """Return all together: one follows the other."""
        return sum(self, np.zeros(()))


def split_work(product: Product, split: Splits, unit: MatrixUnit, steps: int, input_steps: int) -> SplitWork:
    """Return the work of splits of one step, of ``steps`` in all, of which ``input_steps`` sum up one result."""
    row_bytes, weight_bytes, sums_bytes = _operands(product, split, unit)
    passes = split.groups * split.output_blocks * split.input_blocks
    worker_rows = -(-split.rows // unit.workers)
    zeroing = split.groups * split.output_blocks * unit.workers * unit.row_cycles * worker_rows * unit.zeroing
    reduces = split.input_parts > 1
    adds = reduces | (product.partials_itemsize != product.itemsize)
    sums_up = input_steps > 1
    added = np.where(adds, sums_bytes, 0) + np.where(sums_up, sums_bytes / split.input_parts, 0)
    sets = _COMMON_SETS + reduces + sums_up
    return SplitWork(
        received_bytes=steps * np.ceil(_received(split, row_bytes, weight_bytes)),
        load_cycles=steps * passes * unit.load_cycles,
        start_cycles=steps * (unit.vertex_cycles + passes * (unit.pass_cycles + unit.workers * unit.worker_cycles)),
        row_cycles=steps * (passes * unit.workers * unit.row_cycles * worker_rows + zeroing),
        reduced_bytes=steps * np.ceil(sums_bytes * (split.input_parts - 1) / split.input_parts),
        added_bytes=steps * np.ceil(added),
        compute_sets=steps * sets,
        temporary_bytes=np.ceil(row_bytes + weight_bytes + np.where(adds | sums_up, sums_bytes, 0)),
    )


def temporary_bytes(product: Product, split: Splits, unit: MatrixUnit, input_steps: int) -> Numbers:
    """Return the temporary bytes of splits alone, by which most of them can be left out."""
    row_bytes, weight_bytes, sums_bytes = _operands(product, split, unit)
    if input_steps == 1 and product.partials_itemsize == product.itemsize:
        sums_bytes = np.where(split.input_parts > 1, sums_bytes, 0)
    temporary: Numbers = np.ceil(row_bytes + weight_bytes + sums_bytes)
    return temporary


def _operands(product: Product, split: Splits, unit: MatrixUnit) -> tuple[Numbers, Numbers, Numbers]:
    """Return the bytes of the rows, the weights and the partial sums of a tile."""
    inputs = split.input_blocks * unit.inputs
    outputs = split.output_blocks * unit.outputs
    rows = split.groups * split.rows
    return (
        rows * inputs * product.itemsize * ((product.own_inputs or product.k) / product.k),
        split.groups * inputs * outputs * product.itemsize,
        rows * outputs * product.partials_itemsize,
    )


def _received(split: Splits, row_bytes: Numbers, weight_bytes: Numbers) -> Numbers:
    """Return the bytes of both operands that a tile receives, where a shared one counts half."""
    rows = row_bytes * (split.output_parts - 1) / split.output_parts
    weights = weight_bytes * (split.row_parts - 1) / split.row_parts
    share_rows = np.where(split.output_parts % 2 == 0, rows / 2, rows) + weights
    share_weights = np.where(split.row_parts % 2 == 0, weights / 2, weights) + rows
    received: Numbers = np.minimum(share_rows, share_weights)
    return received


def split_cycles(work: SplitWork, ipu: IpuSpec, rates: PlannerRates) -> SplitCycles:
    """Return the cycles of the work, each part rounded up once."""
    return SplitCycles(*map(np.ceil, smooth_cycles(work, ipu, rates)))


def smooth_cycles(work: SplitWork, ipu: IpuSpec, rates: PlannerRates) -> SplitCycles:
    """Return the cycles of the work before they are rounded up, which vary smoothly with every rate."""
    received = ipu.exchange_bytes_per_cycle_per_tile * rates.exchange_efficiency
    return SplitCycles(
        launches=work.compute_sets * rates.compute_set_cycles,
        exchange=work.received_bytes / received,
        loading=work.load_cycles,
        matrix=work.start_cycles + work.row_cycles / rates.amp_ceiling,
        reduction=work.reduced_bytes / received,
        adding=work.added_bytes * rates.vector_slowdown / PATH_BYTES,
    )
