"""Convert a pass's work to whole cycles of the tile clock: the cost model.

A layer's pass is a sequence of compute sets. Per compute set, the tiles sync, exchange operands, then compute from
local memory. Products are planned by :mod:`ipusim.pricing.planner`; vector work follows:

    cycles = for every run of every product: launches + exchange + loading + matrix + reduction + adding
           + ceil(compute_sets * compute_set_cycles)
           + ceil(products * product_layout_cycles), the new layout of operands; pool_layout_cycles of a pool,
             variable_layout_cycles of a variable at the weight update
           + ceil(exchange_bytes / (tiles * exchange bytes per cycle and tile * exchange_efficiency))
           + max(ceil(operations * itemsize * vector_slowdown / (tiles * 8)),
                 ceil(sram_bytes / (tiles * memory bytes per cycle and tile)) - loading - matrix)

    operations = elementwise + reductions + quotients + transcendentals * transcendental_operations

The order sync, exchange, compute follows the IPU Programmer's Guide (chapter 2). A compute set's cost includes
the sync. Two assumptions: bytes of vector work spread evenly over tiles, and products run one after another.
``sram_bytes`` only matter if even perfect vector code would wait for memory. ``sram_bytes`` include operands of
products. The matrix unit reads operands meanwhile; hence the subtraction of loading and matrix. Pools are distributed
over tiles and workers in units of a position with 8 bytes of channels, and the busiest worker of all tiles determines
the time. Terms are rounded up once, using exact arithmetic. Names such as ``vector_slowdown`` are attributes of
:class:`ipusim.hardware.rates.Rates`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Final

from ipusim.hardware.formulas import Amount, Cycles, Sum, product, total
from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.model.profile import PassCost
from ipusim.model.work import MeasuredWork, VectorWork, Work, WorkSequence
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.planner.plan import launch_cycles
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.planner.work import PATH_BYTES
from ipusim.pricing.products import plans

#: Laws of a product plan's parts.
_PRODUCT_LAWS: Final = {
    "launches": laws.LAUNCHES,
    "exchange": laws.EXCHANGE,
    "loading": laws.LOADING,
    "matrix": laws.MATRIX,
    "reduction": laws.REDUCTION,
    "adding": laws.ADDING,
}


def pass_cycles(cost: PassCost, ipu: IpuSpec, rates: Rates = DEFAULT_RATES) -> Sum:
    """Return a pass's cycles, a sum of terms over layers; measured cycles stay unchanged."""
    # Most layers are equal: a transformer's thousands of works are a few dozen distinct ones.
    works = Counter(leaves(cost))
    return Sum(tuple((leaf_cycles(work, ipu, rates), times) for work, times in works.items()))


def leaves(cost: PassCost) -> Iterator[Work]:
    """Yield a pass's elementary works in order, with sequences expanded."""
    if isinstance(cost, int):
        yield MeasuredWork(cycles=cost)
        return
    for work in cost:
        if isinstance(work, WorkSequence):
            yield from leaves(work.parts)
        else:
            yield work


@lru_cache(maxsize=4096)
def leaf_cycles(work: Work, ipu: IpuSpec, rates: Rates) -> Sum:
    """Return the terms of the module's formula; empty work costs nothing.

    Elements of 8 bytes, unsupported by IPUs, count as float32 throughout.
    """
    if isinstance(work, MeasuredWork):
        return Sum(((laws.MEASURED(work.cycles), 1),))
    if work.is_nothing:
        return Sum(())
    runs = tuple(plans(work, ipu, PlannerRates.from_rates(rates)))
    products = [(_PRODUCT_LAWS[term.name](term.cycles), way.times) for way in runs for term in way.plan.terms]
    terms, tiles = [], ipu.tiles
    arithmetic = sum(term * times for term, times in products if term.law in (laws.LOADING, laws.MATRIX))
    if work.compute_sets:
        terms.append(laws.LAUNCHES(Cycles(launch_cycles, work.compute_sets, rates.compute_set_cycles)))
    if times := sum(way.times for way in runs):
        terms.append(laws.LAYOUT(Cycles(launch_cycles, times, rates.product_layout_cycles)))
    if work.variables:
        terms.append(laws.LAYOUT(Cycles(launch_cycles, work.variables, rates.variable_layout_cycles)))
    if work.units:
        terms.append(laws.LAYOUT(Cycles(launch_cycles, 1, rates.pool_layout_cycles)))
    if size := work.exchange_bytes:
        bus = ipu.exchange_bytes_per_cycle_per_tile, rates.exchange_efficiency
        terms.append(laws.EXCHANGE(Cycles(_exchange_cycles, size, tiles, *bus)))
    if amount := operations(work.vector, rates):
        amounts = amount, min(work.itemsize, 4), rates.vector_slowdown, tiles, PATH_BYTES
        rows = (work.units, ipu.worker_threads) if work.units else ()
        terms.append(laws.VECTOR(Cycles(_in_rows if rows else _vector_cycles, *amounts, *rows)))
        arithmetic += terms[-1]
    memory = Cycles(_beyond, Fraction(work.sram_bytes), tiles, ipu.sram_bytes_per_cycle_per_tile, arithmetic)
    if memory > 0:
        terms.append(laws.MEMORY(memory))
    return Sum((*products, *((term, 1) for term in terms)))


def _vector_cycles(operations: Any, size: Any, slowdown: Any, tiles: Any, path: Any) -> Any:
    return ceil(operations * size * slowdown / (tiles * path))


def _in_rows(operations: Any, size: Any, slowdown: Any, tiles: Any, path: Any, units: Any, workers: Any) -> Any:
    """Return the cycles of the busiest worker when workers of all tiles share whole units."""
    return ceil(operations / units * size * slowdown / path * (workers * ceil(units / (tiles * workers))))


def _exchange_cycles(size: Any, tiles: Any, bus: Any, efficiency: Any) -> Any:
    return ceil(size / (tiles * bus * efficiency))


def _beyond(size: Any, tiles: Any, per_cycle: Any, arithmetic: Any) -> Any:
    return ceil(size / (tiles * per_cycle)) - arithmetic


def operations(vector: VectorWork, rates: Rates) -> Fraction | int:
    """Return the total vector unit operations of a tile for vector work."""
    kinds: list[Fraction | int] = [vector.elementwise, vector.reductions, vector.quotients]
    if vector.transcendentals:
        kinds.append(Amount(product, rates.transcendental_operations, vector.transcendentals))
    while len(kinds) > 1 and not kinds[-1]:
        kinds.pop()
    return Amount(total, *kinds) if len(kinds) > 1 else kinds[0]


def pass_costs(program: PipelineProgram, kind: int, stage: int) -> tuple[PassCost, ...]:
    """Return the works of a pass of a stage.

    With recomputation inside, a backward pass, or its input half, runs the forward pass again.
    """
    profile = program.stages[stage]
    match kind:
        case Pass.BACKWARD:
            cost = profile.backward
        case Pass.INPUT_GRADIENT:
            cost = profile.halves[0]
        case Pass.WEIGHT_GRADIENT:
            return (profile.halves[1],)
        case Pass.RECOMPUTE if program.shape.training and not profile.has_backward:
            return ()
        case _:
            return (profile.forward,)
    if not program.recomputes_inside(stage):
        return (cost,)
    return (cost, profile.forward if profile.recompute is None else profile.recompute)
