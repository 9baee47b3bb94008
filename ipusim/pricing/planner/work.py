"""Compute work and cycles of the busiest tile for each split: bytes received, loaded, multiplied, added.

A product runs as one program or as several similar consecutive programs (steps). A step computes a part of the outputs
(output steps) or of the inputs (input steps), which reduces the tile memory in use. A step contains, for the busiest
tile:

    exchange    receipt of missing rows and weights; a pair of neighbours receives a shared operand at double rate
    loading     load of every weight block into the matrix unit
    matrix      stream of rows past every block: start of the pass, then the rows, distributed over workers
    reduction   with split inputs, receipt of other tiles' partial sums, each tile for its part of the outputs
    adding      sum of the partial sums, or conversion of their type; sums of earlier input steps are added too
    launches    compute sets: layout of operands, product, reduction, sums of input steps

The vector unit adds partial sums, at the rate of all vector work.

Sources: PopLibs lib/poplin/ConvModel.cpp and ExchangeEstimator (cost terms, bus shared by pairs, repetition in serial
splits), ConvPerformanceEstimation.hpp (matrix unit). Assumed: a tile already holds an even share of every operand, and
every product has two common compute sets.
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

#: Data path width for adding partial sums, in bytes.
PATH_BYTES: Final = 8
#: Compute sets of every product: layout of operands, and the product.
_PRODUCT_COMPUTE_SETS: Final = 2

Numbers = npt.NDArray[Any]


class SplitWork(NamedTuple):
    """Busiest tile's work per split, summed over steps; amounts are whole numbers.

    Attributes:
        received_bytes: bytes of both operands, over a bus of nominal width.
        load_cycles: load of weights into the matrix unit, independent of rates.
        start_cycles: start of vertices and passes, independent of rates.
        row_cycles: stream of rows past blocks, at the matrix unit's peak.
        reduced_bytes: received partial sums.
        added_bytes: added or converted partial sums.
        compute_sets: launches.
        temporary_bytes: tile memory held during a step: both operands, and partial sums that are not yet results.
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
    """Cycles per part of the work."""

    launches: Numbers
    exchange: Numbers
    loading: Numbers
    matrix: Numbers
    reduction: Numbers
    adding: Numbers

    @property
    def total(self) -> Numbers:
        """Return the total cycles; the parts run sequentially."""
        return sum(self, np.zeros(()))


def split_work(product: Product, split: Splits, unit: MatrixUnit, steps: int, input_steps: int) -> SplitWork:
    """Return the work of splits with ``steps`` steps, where ``input_steps`` steps sum up one result."""
    row_bytes, weight_bytes, sums_bytes = _operands(product, split, unit)
    passes = split.groups * split.output_blocks * split.input_blocks
    worker_rows = -(-split.rows // unit.workers)
    zeroing = split.groups * split.output_blocks * unit.workers * unit.row_cycles * worker_rows * unit.zeroing
    reduces = split.input_parts > 1
    adds = reduces | (product.partials_itemsize != product.itemsize)
    sums_up = input_steps > 1
    added = np.where(adds, sums_bytes, 0) + np.where(sums_up, sums_bytes / split.input_parts, 0)
    sets = _PRODUCT_COMPUTE_SETS + reduces + sums_up
    return SplitWork(
        received_bytes=steps * np.ceil(_operand_bytes(split, row_bytes, weight_bytes)),
        load_cycles=steps * passes * unit.load_cycles,
        start_cycles=steps * (unit.vertex_cycles + passes * (unit.pass_cycles + unit.workers * unit.worker_cycles)),
        row_cycles=steps * (passes * unit.workers * unit.row_cycles * worker_rows + zeroing),
        reduced_bytes=steps * np.ceil(sums_bytes * (split.input_parts - 1) / split.input_parts),
        added_bytes=steps * np.ceil(added),
        compute_sets=steps * sets,
        temporary_bytes=np.ceil(row_bytes + weight_bytes + np.where(adds | sums_up, sums_bytes, 0)),
    )


def temporary_bytes(product: Product, split: Splits, unit: MatrixUnit, input_steps: int) -> Numbers:
    """Return only the temporary bytes of splits, for an early selection by memory."""
    row_bytes, weight_bytes, sums_bytes = _operands(product, split, unit)
    if input_steps == 1 and product.partials_itemsize == product.itemsize:
        sums_bytes = np.where(split.input_parts > 1, sums_bytes, 0)
    temporary: Numbers = np.ceil(row_bytes + weight_bytes + sums_bytes)
    return temporary


def _operands(product: Product, split: Splits, unit: MatrixUnit) -> tuple[Numbers, Numbers, Numbers]:
    """Return the bytes of a tile's rows, weights and partial sums."""
    inputs = split.input_blocks * unit.inputs
    outputs = split.output_blocks * unit.outputs
    rows = split.groups * split.rows
    return (
        rows * inputs * product.itemsize * ((product.own_inputs or product.k) / product.k),
        split.groups * inputs * outputs * product.itemsize,
        rows * outputs * product.partials_itemsize,
    )


def _operand_bytes(split: Splits, row_bytes: Numbers, weight_bytes: Numbers) -> Numbers:
    """Return the received bytes of both operands of a tile; an operand shared by a pair of tiles counts half."""
    rows = row_bytes * (split.output_parts - 1) / split.output_parts
    weights = weight_bytes * (split.row_parts - 1) / split.row_parts
    share_rows = np.where(split.output_parts % 2 == 0, rows / 2, rows) + weights
    share_weights = np.where(split.row_parts % 2 == 0, weights / 2, weights) + rows
    byte_count: Numbers = np.minimum(share_rows, share_weights)
    return byte_count


def split_cycles(work: SplitWork, ipu: IpuSpec, rates: PlannerRates) -> SplitCycles:
    """Return the cycles of the work, each part rounded up once."""
    return SplitCycles(*map(np.ceil, smooth_cycles(work, ipu, rates)))


def smooth_cycles(work: SplitWork, ipu: IpuSpec, rates: PlannerRates) -> SplitCycles:
    """Return the unrounded cycles of the work, smooth in every rate."""
    byte_rate = ipu.exchange_bytes_per_cycle_per_tile * rates.exchange_efficiency
    return SplitCycles(
        launches=work.compute_sets * rates.compute_set_cycles,
        exchange=work.received_bytes / byte_rate,
        loading=work.load_cycles,
        matrix=work.start_cycles + work.row_cycles / rates.amp_ceiling,
        reduction=work.reduced_bytes / byte_rate,
        adding=work.added_bytes * rates.vector_slowdown / PATH_BYTES,
    )
