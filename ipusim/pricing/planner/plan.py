"""Plan a product of an (m, k) by a (k, n) matrix: find the fastest split over an IPU's tiles that fits in memory.

The search is exhaustive. A split divides n, m, k and groups into parts; of all numbers of parts with equal largest
part, only the useful ones are candidates (:func:`ipusim.pricing.planner.splits.parts`), on any number of tiles. If the
best split exceeds its memory, the search adds 1, 2, 4, ... up to 64 steps over outputs or inputs. Steps only add work,
so the search tries none if the best split without steps fits. About 10,000 splits of a product are priced at once in
about a millisecond. With scarce memory the search examines 30 times as many splits, and prices those within the memory
limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import QuantityError
from ipusim.hardware.formulas import Cycles
from ipusim.hardware.generations import IpuSpec
from ipusim.pricing.planner.matrix_unit import MatrixUnit, matrix_unit
from ipusim.pricing.planner.product import Product
from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES, PlannerRates
from ipusim.pricing.planner.splits import Splits, splits
from ipusim.pricing.planner.work import PATH_BYTES, SplitWork, split_cycles, split_work, temporary_bytes

#: Share of a tile's memory available to a product: PopLibs' default.
AVAILABLE_MEMORY_PROPORTION: Final = 0.6
_MOST_STEPS: Final = 64


@dataclass(frozen=True)
class Split:
    """Layout of a product over tiles.

    Attributes:
        row_parts, output_parts, input_parts, group_parts: numbers of parallel parts of n, m, k and groups.
        rows, outputs, inputs, groups: busiest tile's share in one step, m and k in whole blocks.
        output_steps, input_steps: numbers of sequential parts of m and k.
    """

    row_parts: int
    output_parts: int
    input_parts: int
    group_parts: int
    rows: int
    outputs: int
    inputs: int
    groups: int
    output_steps: int
    input_steps: int

    @property
    def tiles(self) -> int:
        """Number of tiles with work."""
        return self.row_parts * self.output_parts * self.input_parts * self.group_parts


@dataclass(frozen=True)
class ProductTerm:
    """Part of a product's cycles.

    Attributes:
        name: a field of :class:`ipusim.pricing.planner.work.SplitCycles`.
        cycles: cycles of all steps.
    """

    name: str
    cycles: int


@dataclass(frozen=True)
class ProductPlan:
    """A product's best split, with cycles and memory.

    Attributes:
        product: planned product.
        split: layout over tiles.
        terms: consecutive parts of the cycles.
        temporary_bytes: temporary memory of the busiest tile while the product runs.
        fits: whether temporary_bytes are within the allowed share of memory; if not, no split needs fewer bytes.
        work: busiest tile's work, before any rate.
    """

    product: Product
    split: Split
    terms: tuple[ProductTerm, ...]
    temporary_bytes: int
    fits: bool
    work: tuple[float, ...]

    @property
    def cycles(self) -> int:
        """Cycles of the whole product."""
        return sum(term.cycles for term in self.terms)

    @property
    def compute_sets(self) -> int:
        """Compute sets of one step; further steps reuse them."""
        sets = self.work[SplitWork._fields.index("compute_sets")]
        return int(sets) // (self.split.output_steps * self.split.input_steps)

    def flops_per_s(self, clock_hz: int) -> float:
        """Return the FLOP/s at a clock, counting two operations for each multiply-accumulate of the product."""
        return 2 * self.product.macs * clock_hz / self.cycles


@lru_cache(maxsize=4096)
def plan_product(
    product: Product,
    ipu: IpuSpec,
    rates: PlannerRates = DEFAULT_PLANNER_RATES,
    memory_proportion: float = AVAILABLE_MEMORY_PROPORTION,
) -> ProductPlan:
    """Return the fastest split of a product over an IPU's tiles.

    ``memory_proportion`` of each tile's memory limits the product's temporary bytes. If no split meets the limit, the
    split with the least memory wins. Raises QuantityError for a proportion not above 0.
    """
    if not memory_proportion > 0:
        raise QuantityError(f"product: expected a proportion of memory above 0, got {memory_proportion:g}")
    unit = matrix_unit(ipu, product.itemsize, product.partials_itemsize)
    limit = memory_proportion * ipu.sram_bytes_per_tile
    best: tuple[tuple[float, float], Split, SplitWork] | None = None
    for output_steps, input_steps in _steps(product, unit):
        table, work, least, excess = _splits_and_work(product, unit, ipu.tiles, output_steps, input_steps, limit)
        if best is not None and excess > best[0][0]:
            continue
        cycles = split_cycles(work, ipu, rates).total
        index = int(least[cycles[least].argmin()])
        key = (excess, float(cycles[index]))
        if best is None or key < best[0]:
            split = _split(table, index, unit, output_steps, input_steps)
            best = key, split, SplitWork(*(np.broadcast_to(column, cycles.shape)[index] for column in work))
        if output_steps * input_steps == 1 and not excess and cycles[index] == cycles.min():
            break  # the fastest split fits without steps
    assert best is not None
    return _plan(product, ipu, rates, *best)


def _steps(product: Product, unit: MatrixUnit) -> Iterator[tuple[int, int]]:
    """Yield (output steps, input steps), ordered by product; every step has a block."""
    outputs, inputs = -(-product.m // unit.outputs), -(-product.k // unit.inputs)
    powers = [1 << power for power in range(_MOST_STEPS.bit_length())]
    pairs = [(a, b) for a in powers for b in powers if a <= outputs and b <= inputs and a * b <= _MOST_STEPS]
    yield from sorted(pairs, key=lambda pair: pair[0] * pair[1])


@lru_cache(maxsize=64)  # a megabyte each; fitting of rates asks for the same few products repeatedly
def _splits_and_work(
    product: Product, unit: MatrixUnit, tiles: int, output_steps: int, input_steps: int, limit: float
) -> tuple[Splits, SplitWork, npt.NDArray[np.intp], float]:
    """Return the splits for given step counts, their work, and which of them exceed the memory limit least.

    The result does not depend on rates. The third item are the indices of the splits with the least excess over
    ``limit`` bytes, the fourth is this excess in bytes. With several steps, all other splits are left out.
    """
    table = splits(
        product.n,
        -(-product.m // (unit.outputs * output_steps)),
        -(-product.k // (unit.inputs * input_steps)),
        product.groups,
        tiles,
    )
    beyond = np.maximum(temporary_bytes(product, table, unit, input_steps) - limit, 0)
    excess = beyond.min()
    least = np.flatnonzero(beyond == excess)
    if output_steps * input_steps > 1:
        table, least = Splits(*(column[least] for column in table)), np.arange(len(least))
    return table, split_work(product, table, unit, output_steps * input_steps, input_steps), least, float(excess)


def _split(table: Splits, index: int, unit: MatrixUnit, output_steps: int, input_steps: int) -> Split:
    best = Splits(*(column[index] for column in table))
    return Split(
        row_parts=int(best.row_parts),
        output_parts=int(best.output_parts),
        input_parts=int(best.input_parts),
        group_parts=int(best.group_parts),
        rows=int(best.rows),
        outputs=int(best.output_blocks) * unit.outputs,
        inputs=int(best.input_blocks) * unit.inputs,
        groups=int(best.groups),
        output_steps=output_steps,
        input_steps=input_steps,
    )


def _plan(
    product: Product, ipu: IpuSpec, rates: PlannerRates, key: tuple[float, float], split: Split, work: SplitWork
) -> ProductPlan:
    whole = {name: int(value) for name, value in work._asdict().items()}
    return ProductPlan(
        product=product,
        split=split,
        terms=tuple(_terms(whole, ipu, rates)),
        temporary_bytes=whole["temporary_bytes"],
        fits=not key[0],
        work=tuple(float(number) for number in work),
    )


def _terms(work: dict[str, int], ipu: IpuSpec, rates: PlannerRates) -> Iterator[ProductTerm]:
    """Yield every part of the cycles, computed exactly: the search's floating-point numbers may round up wrongly."""
    ceiling, efficiency, launch, slowdown = (Fraction(repr(getattr(rates, field.name))) for field in fields(rates))
    bus = ipu.exchange_bytes_per_cycle_per_tile, efficiency
    yield ProductTerm("launches", Cycles(launch_cycles, work["compute_sets"], launch))
    yield ProductTerm("exchange", Cycles(_exchange_cycles, work["received_bytes"], *bus))
    yield ProductTerm("loading", work["load_cycles"])
    yield ProductTerm("matrix", Cycles(_matrix_cycles, work["start_cycles"], work["row_cycles"], ceiling))
    yield ProductTerm("reduction", Cycles(_exchange_cycles, work["reduced_bytes"], *bus))
    yield ProductTerm("adding", Cycles(_adding_cycles, work["added_bytes"], slowdown, PATH_BYTES))


def launch_cycles(compute_sets: Any, cycles: Any) -> Any:
    """Return the cycles to launch ``compute_sets`` compute sets."""
    return ceil(compute_sets * cycles)


def _exchange_cycles(size: Any, bus: Any, efficiency: Any) -> Any:
    return ceil(size / (bus * efficiency))


def _matrix_cycles(start: Any, rows: Any, ceiling: Any) -> Any:
    return ceil(start + rows / ceiling)


def _adding_cycles(size: Any, slowdown: Any, path: Any) -> Any:
    return ceil(size * slowdown / path)
