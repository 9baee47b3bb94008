"""List the capabilities of each IPU generation, per tile and cycle, with the source of every figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Final

from ipusim.base.errors import QuantityError
from ipusim.base.near_names import did_you_mean
from ipusim.hardware.sourced import sourced


@dataclass(frozen=True)
class IpuSpec:
    """A generation of IPUs.

    Attributes:
        name: Graphcore's name of the chip.
        tiles: processor tiles on the chip.
        worker_threads: hardware worker threads per tile.
        sram_bytes_per_tile: In-Processor-Memory per tile.
        clock_hz: tile clock.
        fp16_macs_per_cycle_per_tile: multiply-accumulates of the matrix unit (AMP) on float16.
        fp16_single_macs_per_cycle_per_tile: multiply-accumulates on float16 with partial sums in single precision.
        fp32_macs_per_cycle_per_tile: multiply-accumulates on float32.
        exchange_bytes_per_cycle_per_tile: bytes received per tile over the on-chip exchange.
        sram_bytes_per_cycle_per_tile: bytes moved from and to tile memory.
        internal_sync_cycles: synchronisation of a single IPU's tiles.
        sources: origin of every numeric attribute, or ``assumed``.

    Raises QuantityError for a figure not above zero.
    """

    name: str
    tiles: int
    worker_threads: int
    sram_bytes_per_tile: int
    clock_hz: int
    fp16_macs_per_cycle_per_tile: int
    fp16_single_macs_per_cycle_per_tile: int
    fp32_macs_per_cycle_per_tile: int
    exchange_bytes_per_cycle_per_tile: int
    sram_bytes_per_cycle_per_tile: int
    internal_sync_cycles: int
    sources: Mapping[str, str] = field(repr=False, hash=False)

    def __post_init__(self) -> None:
        """Refuse impossible figures."""
        for figure in fields(self):
            value = getattr(self, figure.name)
            if isinstance(value, int) and value <= 0:
                raise QuantityError(f"{self.name}: expected {figure.name} above 0, got {value}")

    @property
    def sram_bytes(self) -> int:
        """The whole chip's In-Processor-Memory."""
        return self.tiles * self.sram_bytes_per_tile

    def macs_per_cycle(self, itemsize: int, partials_itemsize: int = 2) -> int:
        """Return the chip's multiply-accumulates per cycle on elements of ``itemsize`` bytes.

        Itemsize 2 is float16, with a separate rate for partial sums of 4 bytes; 4 is float32. Itemsize 8 (float64, used
        for checks, absent on IPUs) counts as float32. Raises QuantityError for another size.
        """
        match itemsize:
            case 2 if partials_itemsize > itemsize:
                return self.tiles * self.fp16_single_macs_per_cycle_per_tile
            case 2:
                return self.tiles * self.fp16_macs_per_cycle_per_tile
            case 4 | 8:
                return self.tiles * self.fp32_macs_per_cycle_per_tile
        raise QuantityError(f"{self.name}: expected elements of 2, 4 or 8 bytes, got {itemsize}")

    def without_tiles(self, count: int) -> IpuSpec:
        """Return this IPU with ``count`` fewer computing tiles; raises QuantityError if no tile remains."""
        return replace(self, tiles=self.tiles - count) if count else self

    def at_clock(self, clock_hz: int) -> IpuSpec:
        """Return this IPU with another tile clock, chosen by the caller."""
        return replace(self, clock_hz=clock_hz, sources={**self.sources, "clock_hz": "chosen by the user"})


_NET: Final = "PopLibs include/popnn/Net.hpp (commit 9115acb0)"
_GUIDE: Final = "Graphcore IPU Programmer's Guide, chapter 2"
_HOT_CHIPS: Final = "S. Knowles, Hot Chips 33 (2021)"
_HANLON: Final = "J. Hanlon, survey of AI chips"
_JIA: Final = "Z. Jia et al., Dissecting the Graphcore IPU (2019)"

GC2: Final = sourced(
    partial(IpuSpec, "GC2"),
    tiles=(1216, f"{_NET}; {_HANLON}"),
    worker_threads=(6, _HANLON),
    sram_bytes_per_tile=(256 * 1024, _NET),
    clock_hz=(1_600_000_000, f"derived: 124.5 TFLOP/s of float16 ({_JIA}) over 1216 tiles x 32 MACs x 2"),
    fp16_macs_per_cycle_per_tile=(32, f"{_NET}: 8 convolution units of 4 halves"),
    fp16_single_macs_per_cycle_per_tile=(32, f"{_NET}: the same number of units"),
    fp32_macs_per_cycle_per_tile=(8, f"derived: 31.1 TFLOP/s of float32 ({_JIA}) over 1216 tiles x 1.6 GHz x 2"),
    exchange_bytes_per_cycle_per_tile=(4, f"{_NET}: ipuExchangeBandwidth"),
    sram_bytes_per_cycle_per_tile=(24, "assumed: the published 45 TB/s are 23 bytes, taken as 24 as on GC200"),
    internal_sync_cycles=(150, f"assumed as on GC200 ({_HOT_CHIPS})"),
)

GC200: Final = sourced(
    partial(IpuSpec, "GC200"),
    tiles=(1472, _GUIDE),
    worker_threads=(6, f"{_HOT_CHIPS}: 8832 threads on 1472 tiles"),
    sram_bytes_per_tile=(624 * 1024, f"{_GUIDE}; PopLiner's --mem-per-tile"),
    clock_hz=(
        1_330_000_000,
        "MLPerf Training v1.0 to v2.0, system files of Graphcore's submissions: accelerator_frequency 1330 "
        f"MHz; {_HOT_CHIPS} says 1.325, gc-monitor 1.30 GHz",
    ),
    fp16_macs_per_cycle_per_tile=(64, _GUIDE),
    fp16_single_macs_per_cycle_per_tile=(
        32,
        "PopLibs tools/single_conv_layer.cpp: a unit is as wide as the numbers that it stores; "
        "large layers in PopLibs' benchmarks take 1216 / 1472 of GC2's cycles (tests/benchmark_results.csv)",
    ),
    fp32_macs_per_cycle_per_tile=(16, f"derived: 62.4 TFLOP/s ({_HOT_CHIPS}) over 1472 tiles x 1.325 GHz x 2"),
    exchange_bytes_per_cycle_per_tile=(4, f"derived: 7.8 TB/s ({_HOT_CHIPS}) over 1472 tiles x 1.325 GHz"),
    sram_bytes_per_cycle_per_tile=(
        24,
        f"C. Blake's IPU notes: 47.5 TB/s; {_HOT_CHIPS} says 62 TB/s, which are 32 bytes",
    ),
    internal_sync_cycles=(150, f"{_HOT_CHIPS}: about 150 cycles on chip"),
)

BOW: Final = replace(
    GC200,
    name="BOW",
    clock_hz=1_850_000_000,
    sources={
        **dict.fromkeys(GC200.sources, "assumed as on GC200"),
        "tiles": "Graphcore glossary",
        "clock_hz": "MLPerf Training v2.0, system files of Graphcore's submissions: accelerator_frequency 1850 MHz",
        "fp32_macs_per_cycle_per_tile": "derived: 87 TFLOP/s (Graphcore's Pod datasheets) over 1472 tiles and 1.85 GHz",
    },
)

#: Generations, oldest first.
GENERATIONS: Final = (GC2, GC200, BOW)


def find_ipu(name: str) -> IpuSpec:
    """Return a generation by Graphcore's chip name, ignoring case; raises QuantityError for another name."""
    for ipu in GENERATIONS:
        if ipu.name == name.upper():
            return ipu
    names = [ipu.name for ipu in GENERATIONS]
    hint = did_you_mean(name, names)
    raise QuantityError(f"unknown IPU {name!r}: expected {', '.join(names[:-1])} or {names[-1]}{hint}")
