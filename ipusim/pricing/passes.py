"""The cost model: the work of a pass becomes whole cycles of the tile clock on a given IPU.

One layer's pass is one bulk-synchronous step of one IPU, or a few that follow each
other: the tiles meet, exchange their operands, then compute from their own memory.

    cycles = ceil(supersteps * (internal_sync_cycles + launch_cycles))
           + ceil(exchange_bytes / (tiles * exchange bytes per cycle and tile * exchange_share))
           + max(ceil(macs / (MACs per cycle * matrix_unit_share))
                   + ceil(operations * itemsize / (tiles * vector_bytes_per_cycle)),
                 ceil(sram_bytes / (tiles * memory bytes per cycle and tile)))

    operations = elementwise + reductions + quotients + transcendentals * transcendental_operations

The order sync, exchange, compute is the IPU Programmer's Guide's (chapter 2). The
exchange term is PopLibs' (lib/poplin/ExchangeEstimator.cpp), with the bytes spread
evenly over the tiles (assumed). The matrix term is PopLibs' lower bound
(lib/poplin/ConvModel.cpp, total MACs over the maximum per cycle) over the share of it
that is reached. That arithmetic hides under memory traffic, or the other way round, is
assumed. Each term is rounded up once for all supersteps of a layer; the rest is
integer arithmetic. Names of :class:`ipusim.hardware.rates.Rates` are rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.model.profile import PassCost
from ipusim.model.work import MeasuredWork, VectorWork, Work, WorkSequence
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PipelineProgram


@dataclass(frozen=True)
class WorkCycles:
    """What the terms of the formula come to, in cycles.

    Attributes:
        sync: the tiles meet and start the code, in every superstep.
        exchange: operands travel between tiles.
        matrix, vector: arithmetic of either unit, one after the other.
        memory: traffic of the tiles' memory, beside the arithmetic.
        measured: cycles that were given, which are taken as they are.
    """

    sync: int = 0
    exchange: int = 0
    matrix: int = 0
    vector: int = 0
    memory: int = 0
    measured: int = 0

    @property
    def memory_beyond(self) -> int:
        """Cycles of memory traffic that no arithmetic hides."""
        return max(0, self.memory - self.matrix - self.vector)

    @property
    def total(self) -> int:
        """Cycles of the whole."""
        return self.sync + self.exchange + self.matrix + self.vector + self.memory_beyond + self.measured


def pass_cycles(cost: PassCost, ipu: IpuSpec, rates: Rates = DEFAULT_RATES) -> int:
    """Return the cycles of one pass: the sum over its layers, or the measured cycles unchanged."""
    return sum(leaf_cycles(leaf, ipu, rates).total for leaf in leaves(cost))


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


def leaf_cycles(work: Work, ipu: IpuSpec, rates: Rates) -> WorkCycles:
    """Return the terms of the formula above; work of nothing costs nothing.

    Elements of 8 bytes, which no IPU computes on, count as float32 in both arithmetic terms.
    """
    if isinstance(work, MeasuredWork):
        return WorkCycles(measured=work.cycles)
    if work.is_nothing:
        return WorkCycles()
    tiles, size = ipu.tiles, min(work.itemsize, 4)
    received = ipu.exchange_bytes_per_cycle_per_tile * rates.exchange_share
    return WorkCycles(
        sync=math.ceil(work.supersteps * (ipu.internal_sync_cycles + rates.launch_cycles)),
        exchange=_over(work.exchange_bytes, tiles, received),
        matrix=_over(work.macs, ipu.macs_per_cycle(work.itemsize), rates.matrix_unit_share),
        vector=_over(operations(work.vector, rates) * size, tiles, rates.vector_bytes_per_cycle),
        memory=-(-work.sram_bytes // (tiles * ipu.sram_bytes_per_cycle_per_tile)),
    )


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
