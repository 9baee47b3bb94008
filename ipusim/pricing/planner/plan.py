"""The planner: the split of a product over tiles that takes the fewest cycles and fits their memory.

The space is searched whole: every number of parts of n, m, k and the groups that differs
in the largest part, with as many tiles in use as there are, or fewer; and, where the best
of all needs more memory than it may take, in 1, 2, 4, ... steps over the outputs or the inputs,
64 at most. (Steps only add work to a split, so none is looked at where the best split fits as
it is.) Some 10,000 splits of a product are priced at once, in about a millisecond; where memory
binds, 30 times as many are looked at, of which those that keep to it are priced.
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

#: Share of a tile's memory that a product may take for itself, of all that is there: PopLibs' own default.
AVAILABLE_MEMORY_PROPORTION: Final = 0.6
_MOST_STEPS: Final = 64


@dataclass(frozen=True)
class Split:
    """How a product is laid over tiles.

    Attributes:
        row_parts, output_parts, input_parts, group_parts: parts of n, m, k and the groups, side by side.
        rows, outputs, inputs, groups: the busiest tile's share in one step, m and k in whole blocks.
        output_steps, input_steps: parts of m and of k one after another.
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
        """Tiles that have work."""
        return self.row_parts * self.output_parts * self.input_parts * self.group_parts


@dataclass(frozen=True)
class ProductTerm:
    """One part of a product's cycles.

    Attributes:
        name: a field of :class:`ipusim.pricing.planner.work.SplitCycles`.
        cycles: of all steps.
    """

    name: str
    cycles: int


@dataclass(frozen=True)
class ProductPlan:
    """The best split of a product, with its cycles and memory.

    Attributes:
        product: what was planned.
        split: how it is laid over tiles.
        terms: what its cycles are made of, one after another.
        temporary_bytes: of the busiest tile, while the product runs.
        fits: whether those are within the share of memory that was allowed; if not, no split needs fewer.
        work: what the busiest tile does, before any rate.
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
        """Compute sets of one step; those of further steps are the same again."""
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
    """Return the split of a product over the tiles of an IPU that takes the fewest cycles.

    ``memory_proportion`` of each tile's memory is the most that the product may hold for itself; where no
    split keeps to that, the plan is the one that holds least. Raises QuantityError for a proportion not above 0.
    """
    if not memory_proportion > 0:
        raise QuantityError(f"product: expected a proportion of memory above 0, got {memory_proportion:g}")
    unit = matrix_unit(ipu, product.itemsize, product.partials_itemsize)
    limit = memory_proportion * ipu.sram_bytes_per_tile
    best: tuple[tuple[float, float], Split, SplitWork] | None = None
    for output_steps, input_steps in _steps(product, unit):
        table, work, least, excess = _worked(product, unit, ipu.tiles, output_steps, input_steps, limit)
        if best is not None and excess > best[0][0]:
            continue
        cycles = split_cycles(work, ipu, rates).total
        which = int(least[cycles[least].argmin()])
        key = (excess, float(cycles[which]))
        if best is None or key < best[0]:
            split = _split(table, which, unit, output_steps, input_steps)
            best = key, split, SplitWork(*(np.broadcast_to(column, cycles.shape)[which] for column in work))
        if output_steps * input_steps == 1 and not excess and cycles[which] == cycles.min():
            break  # the fastest of all fits as it is
    assert best is not None
    return _plan(product, ipu, rates, *best)


def _steps(product: Product, unit: MatrixUnit) -> Iterator[tuple[int, int]]:
    """Yield steps over outputs and inputs, none without a block, in the order of their number."""
    outputs, inputs = -(-product.m // unit.outputs), -(-product.k // unit.inputs)
    powers = [1 << power for power in range(_MOST_STEPS.bit_length())]
    both = [(a, b) for a in powers for b in powers if a <= outputs and b <= inputs and a * b <= _MOST_STEPS]
    yield from sorted(both, key=lambda pair: pair[0] * pair[1])


@lru_cache(maxsize=64)  # a megabyte each, where rates are fitted with the same few products again and again
def _worked(
    product: Product, unit: MatrixUnit, tiles: int, output_steps: int, input_steps: int, limit: float
) -> tuple[Splits, SplitWork, npt.NDArray[np.intp], float]:
    """Return the splits of so many steps and their work, which no rate touches.

    Then which of them keep closest to ``limit`` bytes, and by how many they are beyond it. Of several steps the others
    are left out.
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


def _split(table: Splits, which: int, unit: MatrixUnit, output_steps: int, input_steps: int) -> Split:
    one = Splits(*(column[which] for column in table))
    return Split(
        row_parts=int(one.row_parts),
        output_parts=int(one.output_parts),
        input_parts=int(one.input_parts),
        group_parts=int(one.group_parts),
        rows=int(one.rows),
        outputs=int(one.output_blocks) * unit.outputs,
        inputs=int(one.input_blocks) * unit.inputs,
        groups=int(one.groups),
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
    """Yield each part in exact numbers; the search compares splits in floating point, where rounding up may err."""
    ceiling, efficiency, launch, slowdown = (Fraction(repr(getattr(rates, field.name))) for field in fields(rates))
    bus = ipu.exchange_bytes_per_cycle_per_tile, efficiency
    yield ProductTerm("launches", Cycles(launched, work["compute_sets"], launch))
    yield ProductTerm("exchange", Cycles(_received, work["received_bytes"], *bus))
    yield ProductTerm("loading", work["load_cycles"])
    yield ProductTerm("matrix", Cycles(_multiplied, work["start_cycles"], work["row_cycles"], ceiling))
    yield ProductTerm("reduction", Cycles(_received, work["reduced_bytes"], *bus))
    yield ProductTerm("adding", Cycles(_added, work["added_bytes"], slowdown, PATH_BYTES))


def launched(compute_sets: Any, cycles: Any) -> Any:
    """Return the cycles in which so many compute sets are launched."""
    return ceil(compute_sets * cycles)


def _received(size: Any, bus: Any, efficiency: Any) -> Any:
    return ceil(size / (bus * efficiency))


def _multiplied(started: Any, rows: Any, ceiling: Any) -> Any:
    return ceil(started + rows / ceiling)


def _added(size: Any, slowdown: Any, path: Any) -> Any:
    return ceil(size * slowdown / path)
