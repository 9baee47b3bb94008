"""The cost model: the work of a pass becomes whole cycles of the tile clock on a given IPU.

A layer's pass is a row of compute sets, one after another: the tiles meet, exchange what each
needs, then compute from their own memory. Its products are planned (:mod:`ipusim.pricing.planner`);
then comes the vector work:

    cycles = for each product, as often as it runs: launches + exchange + loading + matrix + reduction + adding
           + ceil(compute_sets * compute_set_cycles)
           + ceil(exchange_bytes / (tiles * exchange bytes per cycle and tile * exchange_efficiency))
           + max(ceil(operations * itemsize * vector_slowdown / (tiles * 8)),
                 ceil(sram_bytes / (tiles * memory bytes per cycle and tile)) - loading - matrix)

    operations = elementwise + reductions + quotients + transcendentals * transcendental_operations

The order sync, exchange, compute is the IPU Programmer's Guide's (chapter 2), and sync is part of what a compute set
costs. That the bytes of vector work are spread evenly over the tiles is assumed, as is that products follow each
other. ``sram_bytes`` only tell where even perfect vector code would wait for memory: operands of products are among
them, which the matrix unit reads at the same time. Each term is rounded up once; all of it is exact arithmetic. Names
of :class:`ipusim.hardware.rates.Rates` are rates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.model.profile import PassCost
from ipusim.model.work import MeasuredWork, VectorWork, Work, WorkSequence
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.planner.work import PATH_BYTES
from ipusim.pricing.products import plans


@dataclass(frozen=True)
class WorkCycles:
    """What the terms of the formula come to, in cycles.

    Attributes:
        launches: compute sets are launched, those of products among them.
        exchange: operands travel between tiles.
        loading, matrix: weights go into the matrix unit, rows past them.
        reduction, adding: partial sums of products travel, and are added or converted.
        vector: arithmetic of the vector unit.
        memory: traffic of the tiles' memory, beside the arithmetic.
        measured: cycles that were given, which are taken as they are.
    """

    launches: int = 0
    exchange: int = 0
    loading: int = 0
    matrix: int = 0
    reduction: int = 0
    adding: int = 0
    vector: int = 0
    memory: int = 0
    measured: int = 0

    @property
    def memory_beyond(self) -> int:
        """Cycles of memory traffic that no arithmetic hides."""
        return max(0, self.memory - self.loading - self.matrix - self.vector)

    @property
    def total(self) -> int:
        """Cycles of the whole."""
        products = self.loading + self.matrix + self.reduction + self.adding
        return self.launches + self.exchange + products + self.vector + self.memory_beyond + self.measured


def pass_cycles(cost: PassCost, ipu: IpuSpec, rates: Rates = DEFAULT_RATES) -> int:
    """Return the cycles of one pass: the sum over its layers, or the measured cycles unchanged."""
    # Layers are alike: a transformer's thousands of works are a few dozen.
    works = Counter(leaves(cost))
    return sum(times * leaf_cycles(work, ipu, rates).total for work, times in works.items())


def leaves(cost: PassCost) -> Iterator[Work]:
    """Yield the works that a pass is made of, one after another, none of which is made of others."""
    if isinstance(cost, int):
        yield MeasuredWork(cycles=cost)
        return
    for work in cost:
        if isinstance(work, WorkSequence):
            yield from leaves(work.parts)
        else:
            yield work


@lru_cache(maxsize=4096)
def leaf_cycles(work: Work, ipu: IpuSpec, rates: Rates) -> WorkCycles:
    """Return the terms of the formula above; work of nothing costs nothing.

    Elements of 8 bytes, which no IPU computes on, count as float32 in all arithmetic.
    """
    if isinstance(work, MeasuredWork):
        return WorkCycles(measured=work.cycles)
    if work.is_nothing:
        return WorkCycles()
    tiles, size = ipu.tiles, min(work.itemsize, 4)
    found = Counter(
        launches=vector_launches(work, rates),
        exchange=vector_exchange(work, ipu, rates),
        vector=_over(operations(work.vector, rates) * size, tiles, PATH_BYTES / rates.vector_slowdown),
        memory=-(-work.sram_bytes // (tiles * ipu.sram_bytes_per_cycle_per_tile)),
    )
    planning = PlannerRates.of(rates)
    for planned in plans(work, ipu, planning):
        for term in planned.plan.terms:
            found[term.name] += planned.times * term.cycles
    return WorkCycles(**found)


def vector_launches(work: Work, rates: Rates) -> int:
    """Return the cycles in which the compute sets of the vector work are launched."""
    return math.ceil(work.compute_sets * rates.compute_set_cycles)


def vector_exchange(work: Work, ipu: IpuSpec, rates: Rates) -> int:
    """Return the cycles in which tiles receive what the vector work takes from others."""
    received = ipu.exchange_bytes_per_cycle_per_tile * rates.exchange_efficiency
    return _over(work.exchange_bytes, ipu.tiles, received)


def _over(amount: int | Fraction, units: int, rate: Fraction) -> int:
    """Return the whole cycles that ``amount`` takes; most layers have no work of some kind, and fractions are slow."""
    return math.ceil(amount / (units * rate)) if amount else 0


def operations(vector: VectorWork, rates: Rates) -> int | Fraction:
    """Return the operations of a tile's vector unit that vector work of all kinds comes to."""
    others = vector.elementwise + vector.reductions + vector.quotients
    if not vector.transcendentals:
        return others
    return others + vector.transcendentals * rates.transcendental_operations


def pass_costs(program: PipelineProgram, kind: int, stage: int) -> tuple[PassCost, ...]:
    """Return what a pass of a stage is made of.

    A backward pass, or the half of it for the input, may run the forward pass again inside it.
    """
    profile = program.stages[stage]
    match kind:
        case Pass.BACKWARD:
            cost = profile.backward
        case Pass.INPUT_GRADIENT:
            cost = profile.halves[0]
        case Pass.WEIGHT_GRADIENT:
            return (profile.halves[1],)
        case _:
            return (profile.forward,)
    if not program.recomputes_inside(stage):
        return (cost,)
    return (cost, profile.forward if profile.recompute is None else profile.recompute)
