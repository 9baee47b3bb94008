"""Describe a tile's matrix unit: size of its weight block, and cycles of a pass over the block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.hardware.generations import IpuSpec

#: Input bytes per output channel unit: 16 halves or 8 singles (PopLibs, weights per unit).
_BLOCK_BYTES: Final = 32
#: Bytes of weights loaded per cycle (PopLibs include/popnn/Net.hpp for GC2; assumed for later chips).
_LOADED_BYTES_PER_CYCLE: Final = 16
#: Units of a tile by chip, bytes of elements and bytes of partial sums. GC2 has 8 for halves and 4 for singles (PopLibs
#: include/popnn/Net.hpp). Other chips have 8 for halves with single partial sums, derived from rates, else 16.
_UNITS: Final = {("GC2", 2, 2): 8, ("GC2", 2, 4): 8, ("GC2", 4, 4): 4}
_DEFAULT_UNITS: Final = {(2, 2): 16, (2, 4): 8, (4, 4): 16}


@dataclass(frozen=True)
class MatrixUnit:
    """Estimate of PopLibs for the matrix unit and the code around it.

    Source: PopLibs lib/poplin/ConvPerformanceEstimation.hpp, the vertex of 1 x 1 convolutions with inputs of 16 or 32
    bits. A worker's pass costs ``worker_cycles``, which include the first row, and ``row_cycles`` per further row. For
    singles PopLibs includes the first three rows; products measured at n = 4, 8 and 16 do not confirm this.

    Attributes:
        inputs, outputs: dimensions of the weight block.
        row_cycles: a worker's cycles for a row of inputs over the block, if alone on the tile.
        workers: threads of the tile, which run in turn. A pass takes the busiest worker's cycles times the number of
            workers.
        worker_cycles: cycles of a worker's pass, rows excluded.
        zeroing: whether the first pass over a block of outputs first zeroes the block, which doubles its cycles.
        pass_cycles: supervisor's cycles per pass, weight loading excluded.
        vertex_cycles: supervisor's cycles around all passes.
    """

    inputs: int
    outputs: int
    row_cycles: int
    workers: int
    worker_cycles: int
    zeroing: bool
    pass_cycles: int = 7
    vertex_cycles: int = 50

    @property
    def load_cycles(self) -> int:
        """Cycles to load the weight block."""
        return self.outputs * _BLOCK_BYTES // _LOADED_BYTES_PER_CYCLE


def matrix_unit(ipu: IpuSpec, itemsize: int, partials_itemsize: int) -> MatrixUnit:
    """Return the matrix unit of a generation's tile for elements and partial sums of 2 or 4 bytes."""
    inputs = _BLOCK_BYTES // itemsize
    types = itemsize, partials_itemsize
    outputs = _UNITS.get((ipu.name, *types), _DEFAULT_UNITS[types])
    macs = ipu.macs_per_cycle(*types) // ipu.tiles
    return MatrixUnit(
        inputs=inputs,
        outputs=outputs,
        row_cycles=-(-inputs * outputs // macs),
        workers=ipu.worker_threads,
        worker_cycles=27 if itemsize == 2 else 39,
        zeroing=itemsize == 4,
    )
