"""Compare micro-benchmarks of links, collectives and the host: published against simulated figures.

A benchmark is a superstep, transfer or collective, priced by the System as in a run. Most benchmarks never occur in a
pipeline (traffic between every pair, a host working alone). Some figures were used to derive rates (``fitted``); other
figures are only compared (``held``).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise, permutations
from pathlib import Path
from typing import Final

from ipusim.api import System, hardware
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.tables import Table
from ipusim.app.study.result import rows_csv

#: CSV file of the package's rows.
BENCHMARKS_FILE: Final = Path(__file__).parent / "measured" / "micro_benchmarks.csv"
#: Factors from seconds, bytes per second or cycles to units.
_UNITS: Final = {"us": 1e6, "ms": 1e3, "GB/s": 1e-9, "cycles": 1.0}
#: IPUs per replica in the benchmark of all-reduces.
_SHARDS: Final = 4
#: Bytes per element in the benchmark of all-reduces.
_ELEMENT_BYTES: Final = 2


@dataclass(frozen=True)
class MicroBenchmark:
    """A micro-benchmark.

    Attributes:
        benchmark: a key of :data:`BENCHMARKS`.
        system: a name of :data:`ipusim.hardware.machines.MACHINES`.
        ipus: size of the device.
        source_ipu, target_ipu: physical IPUs of traffic between a pair; empty for other traffic.
        bytes: bytes per message, buffer or transfer; empty without data.
        published: the figure, or a range with a dash between its ends; empty if unpublished.
        unit: unit of the figure.
        use: ``fitted`` if a rate was derived from the figure, otherwise ``held``.
        source: publisher of the figure.
    """

    benchmark: str
    system: str
    ipus: str
    source_ipu: str
    target_ipu: str
    bytes: str
    published: str
    unit: str
    use: str
    source: str

    @property
    def label(self) -> str:
        """Benchmark with its shape: ``superstep with halo, 2 IPUs, 16,000 bytes``."""
        place = f"IPU {self.source_ipu} and {self.target_ipu}" if self.source_ipu else f"{self.ipus} IPUs"
        size = (f"{int(self.bytes):,} bytes",) if self.bytes else ()
        return ", ".join((self.benchmark, place.replace("1 IPUs", "1 IPU") if self.ipus == "1" else place, *size))

    @property
    def range(self) -> tuple[float, float] | None:
        """Smallest and largest published figure; None if unpublished."""
        if not self.published:
            return None
        least, _, most = self.published.partition("-")
        return float(least), float(most or least)

    @cached_property
    def simulated(self) -> float:
        """Simulated figure, in the row's unit."""
        count = int(self.ipus)
        system = hardware.build_system(self.system, mapping=range(min(count, 64)), ipus=count, selection_order="ZIGZAG")
        return BENCHMARKS[self.benchmark](self, system) * _UNITS[self.unit]

    @property
    def error(self) -> float | None:
        """(simulated - published) / published, with the nearest value of a published range; None if unpublished."""
        if self.range is None:
            return None
        return self.simulated / min(max(self.simulated, self.range[0]), self.range[1]) - 1


def read_benchmarks() -> tuple[MicroBenchmark, ...]:
    """Return the package's rows."""
    return tuple(
        MicroBenchmark(**row) for row in csv.DictReader(BENCHMARKS_FILE.read_text(encoding="utf-8").splitlines())
    )


def _copy_seconds(system: System, traffic: Mapping[tuple[int, int], int]) -> float:
    return system.merged_copy(traffic).total_cycles / system.clock_hz


def _both_ways(pairs: Sequence[tuple[int, int]], size: int) -> dict[tuple[int, int], int]:
    return dict.fromkeys([*pairs, *((target, source) for source, target in pairs)], size)


def _neighbours(row: MicroBenchmark, system: System) -> float:
    """Return bytes per second in each direction of a pair that sends both ways, without a superstep's fixed cost."""
    cost = system.merged_copy(_both_ways([_pair(row)], int(row.bytes)))
    return int(row.bytes) * system.clock_hz / cost.transfer_cycles


def _pair(row: MicroBenchmark) -> tuple[int, int]:
    return int(row.source_ipu), int(row.target_ipu)


def _ring(row: MicroBenchmark, system: System) -> float:
    """Return the seconds of a ring of sends, up one side of the ladder of IPUs and down the other (order HOOF)."""
    ring = hardware.physical_ipus(system.topology.ipus, "HOOF", system.count)
    return _copy_seconds(system, dict.fromkeys(pairwise((*ring, ring[0])), int(row.bytes)))


def _all_reduce(row: MicroBenchmark, system: System) -> float:
    """Return the seconds of simultaneous all-reduces between replicas' corresponding IPUs."""
    groups = [range(shard, system.count, _SHARDS) for shard in range(_SHARDS)]
    elements = [int(row.bytes) // _ELEMENT_BYTES] * _SHARDS
    return hardware.fastest_all_reduce(system, groups, elements, _ELEMENT_BYTES)[1].total_cycles / system.clock_hz


def _host(cycles: Callable[[System, int], int]) -> Callable[[MicroBenchmark, System], float]:
    """Return a function for the rate of a row's transfer, by an IPU or the host.

    ``cycles`` returns the transfer's cycles for a System and a number of bytes.
    """
    return lambda row, system: int(row.bytes) * system.clock_hz / cycles(system, int(row.bytes))


#: Functions that simulate benchmarks on a System: seconds, bytes per second or cycles.
BENCHMARKS: Final[Mapping[str, Callable[[MicroBenchmark, System], float]]] = {
    # Every IPU exchanges with its two neighbours.
    "superstep with halo": lambda row, system: _copy_seconds(
        system, _both_ways(list(pairwise(range(system.count))), int(row.bytes))
    ),
    "sync of a superstep": lambda _, system: system.sync_cycles,
    "pre-copy of a superstep": lambda _, system: system.exchanging.pre_copy_cycles,
    "fixed exchange of a superstep": lambda _, system: system.exchanging.exchange_cycles,
    "post-copy of a superstep": lambda _, system: system.exchanging.post_copy_cycles,
    "neighbours both ways": _neighbours,
    "one message": lambda row, system: _copy_seconds(system, {_pair(row): int(row.bytes)}),
    "all pairs": lambda row, system: _copy_seconds(
        system, dict.fromkeys(permutations(range(system.count), 2), int(row.bytes))
    ),
    "ring of all": _ring,
    "all-reduce of 4-IPU replicas": _all_reduce,
    "tiles read from the host": _host(System.infeed_cycles),
    "tiles write to the host": _host(System.outfeed_cycles),
    "host writes its buffer": _host(System.host_fill_cycles),
    "host reads its buffer": _host(System.host_drain_cycles),
    "sync with the host": lambda _, system: system.host_sync_cycles / system.clock_hz,
}


def benchmark_verdict(rows: Sequence[MicroBenchmark]) -> str:
    """Return a sentence with the errors of the figures not used to derive rates."""
    errors = [row.error for row in rows if row.use == "held" and row.error is not None]
    number, mean, worst = spread(errors)
    return (
        f"Micro-benchmarks of links and the host: {number} figures not used to derive a rate, with an error of {mean} "
        f"on average and {worst} at worst."
    )


def benchmark_table(rows: Sequence[MicroBenchmark]) -> Table:
    """Return published and simulated figures and errors of the micro-benchmarks."""
    cells = (
        {
            "micro-benchmark": row.label,
            "system": row.system,
            "published": row.published,
            "simulated": f"{row.simulated:.4g} {row.unit}",
            "error": "" if row.error is None else f"{row.error:+.1%}",
            "figure is": row.use,
        }
        for row in rows
    )
    return Table.of("Micro-benchmarks, published and simulated", cells)


def benchmark_words(rows: Sequence[MicroBenchmark]) -> Iterator[str]:
    """Yield the notes below the table."""
    yield (
        "A figure is fitted if a rate was derived from the figure, and held if the figure was only compared; a range "
        "is met by any value in the range; an empty figure is not published."
    )
    for source in dict.fromkeys(row.source for row in rows if row.source):
        yield f"Source: {source}."


def benchmarks_csv(rows: Sequence[MicroBenchmark]) -> bytes:
    """Return the rows as CSV, with simulated figures and errors."""
    errors = ["" if row.error is None else f"{row.error:.5f}" for row in rows]
    pairs = zip(rows, errors, strict=True)
    return rows_csv([asdict(row) | {"simulated": f"{row.simulated:.5g}", "error": error} for row, error in pairs])
