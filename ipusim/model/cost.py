"""The cost model: the work of a pass becomes whole cycles of the tile clock on a given IPU.

One layer's pass is one bulk-synchronous step of one IPU, or a few that follow each
other: the tiles meet, exchange their operands, then compute from their own memory.

    cycles = supersteps * internal_sync_cycles
           + ceil(exchange_bytes / (tiles * exchange bytes per cycle and tile))
           + max(ceil(macs / (MACs per cycle * MATMUL_EFFICIENCY))
                   + ceil(flops / (tiles * vector width / itemsize)),
                 ceil(sram_bytes / (tiles * memory bytes per cycle and tile)))

The order sync, exchange, compute is the IPU Programmer's Guide's (chapter 2). The
exchange term is PopLibs' (lib/poplin/ExchangeEstimator.cpp), with the bytes spread
evenly over the tiles (assumed). The matrix term is PopLibs' lower bound
(lib/poplin/ConvModel.cpp, total MACs over the maximum per cycle) over an efficiency
(assumed). That arithmetic hides under memory traffic, or the other way round, is
assumed. Each term is rounded up once for all supersteps of a layer; the rest is
integer arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.hardware.generations import IpuSpec
from ipusim.model.profile import PassCost, Work

#: Share of the matrix unit's peak that a layer's products reach; assumed.
MATMUL_EFFICIENCY: Final = Fraction(1, 2)

#: Bytes of elements that a tile's vector unit works on in one cycle: its 64-bit data path
#: (PopLibs include/popnn/Net.hpp, commit 9115acb0), one operation on each element.
VECTOR_BYTES_PER_CYCLE_PER_TILE: Final = 8


@dataclass(frozen=True)
class MeasuredWork(Work):
    """A layer's pass whose cycles were measured: they are taken as they are, on any IPU."""

    cycles: int = 0


@dataclass(frozen=True)
class WorkSequence(Work):
    """A layer's pass that is made of other layers' passes; the other fields are the sums of theirs."""

    parts: tuple[Work, ...] = ()


def in_turn(parts: tuple[Work, ...], itemsize: int) -> WorkSequence:
    """Return ``parts`` as one pass, which costs what they cost one after another."""
    return WorkSequence(
        macs=sum(work.macs for work in parts),
        flops=sum(work.flops for work in parts),
        sram_bytes=sum(work.sram_bytes for work in parts),
        exchange_bytes=sum(work.exchange_bytes for work in parts),
        itemsize=itemsize,
        supersteps=sum(work.supersteps for work in parts),
        parts=parts,
    )


def pass_cycles(cost: PassCost, ipu: IpuSpec) -> int:
    """Return the cycles of one pass: the sum over its layers, or the measured cycles unchanged."""
    if isinstance(cost, int):
        return cost
    return sum(work_cycles(work, ipu) for work in cost)


def work_cycles(work: Work, ipu: IpuSpec) -> int:
    """Return the cycles of one layer's pass by the formula above; a layer that does nothing costs nothing.

    Elements of 8 bytes, which no IPU computes on, count as float32 in both arithmetic terms.
    """
    if isinstance(work, MeasuredWork):
        return work.cycles
    if isinstance(work, WorkSequence):
        return sum(work_cycles(part, ipu) for part in work.parts)
    if not (work.macs or work.flops or work.sram_bytes or work.exchange_bytes):
        return 0
    tiles = ipu.tiles
    exchange = _ceil_div(work.exchange_bytes, tiles * ipu.exchange_bytes_per_cycle_per_tile)
    matrix = _ceil_div(
        work.macs * MATMUL_EFFICIENCY.denominator, ipu.macs_per_cycle(work.itemsize) * MATMUL_EFFICIENCY.numerator
    )
    lanes = VECTOR_BYTES_PER_CYCLE_PER_TILE // min(work.itemsize, 4)
    vector = _ceil_div(work.flops, tiles * lanes)
    memory = _ceil_div(work.sram_bytes, tiles * ipu.sram_bytes_per_cycle_per_tile)
    return work.supersteps * ipu.internal_sync_cycles + exchange + max(matrix + vector, memory)


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
