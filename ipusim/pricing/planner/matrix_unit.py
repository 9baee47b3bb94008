"""The matrix unit of a tile: its block of weights, and the cycles of a pass of rows over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.hardware.generations import IpuSpec

#: Bytes of the inputs that one output channel's unit holds: 16 halves or 8 singles (PopLibs, weights per unit).
_BLOCK_BYTES: Final = 32
#: Bytes of weights that go into the unit in a cycle (PopLibs include/popnn/Net.hpp, of GC2; later chips assumed).
_LOADED_BYTES_PER_CYCLE: Final = 16
#: Units of a tile by bytes of elements and partial sums, where they are not 16: GC2 has 8 for halves and 4 for singles
#: (PopLibs include/popnn/Net.hpp); others have 8 for halves whose partial sums are singles, by their rate.
_UNITS: Final = {("GC2", 2, 2): 8, ("GC2", 2, 4): 8, ("GC2", 4, 4): 4}
_UNITS_OF_OTHERS: Final = {(2, 2): 16, (2, 4): 8, (4, 4): 16}


@dataclass(frozen=True)
class MatrixUnit:
    """What PopLibs' estimate of the vertex for such products says of the unit and of the code around it.

    Source: PopLibs lib/poplin/ConvPerformanceEstimation.hpp, the vertex of 1 x 1 convolutions with inputs
    of 16 or 32 bits. A worker's pass takes its count for one row, and a row's cycles for each further. Of singles it
    has the first three rows hide in the start, which products measured at n = 4, 8 and 16 do not show.

    Attributes:
        inputs, outputs: the block of weights that it holds.
        row_cycles: a worker's cycles for a row of inputs over the block, were it alone on the tile.
        workers: threads of the tile, which take turns: a pass lasts as long as the busiest, times all of them.
        worker_cycles: of a worker's pass beside its rows.
        zeroing: whether the first pass over a block of outputs sets them to zero with as many cycles again.
        pass_cycles: of the supervisor for each pass, beside the loading of the weights.
        vertex_cycles: of the supervisor around all passes.
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
        """Cycles in which the block of weights is loaded."""
        return self.outputs * _BLOCK_BYTES // _LOADED_BYTES_PER_CYCLE


def matrix_unit(ipu: IpuSpec, itemsize: int, partials_itemsize: int) -> MatrixUnit:
    """Return the matrix unit of a generation's tile for elements and partial sums of 2 or 4 bytes."""
    inputs = _BLOCK_BYTES // itemsize
    types = itemsize, partials_itemsize
    outputs = _UNITS.get((ipu.name, *types), _UNITS_OF_OTHERS[types])
    macs = ipu.macs_per_cycle(*types) // ipu.tiles
    return MatrixUnit(
        inputs=inputs,
        outputs=outputs,
        row_cycles=-(-inputs * outputs // macs),
        workers=ipu.worker_threads,
        worker_cycles=27 if itemsize == 2 else 39,
        zeroing=itemsize == 4,
    )
