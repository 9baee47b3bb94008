"""All that is held against the world at once: products, whole trainings, links and the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ipusim.api import hardware, runs
from ipusim.app.fidelity import micro_benchmarks as micro
from ipusim.app.fidelity import products, throughput_report
from ipusim.app.fidelity.product_rows import MEASURED, ProductRow, read_rows
from ipusim.app.fidelity.throughput_fit import with_sources_left_out
from ipusim.app.fidelity.throughput_rows import PUBLISHED, read_throughputs
from ipusim.app.fidelity.throughputs import Prepared, SimulatedRow, prepare_rows, simulate_rows
from ipusim.app.render.tables import Table

#: Every file that a validation may write.
VALIDATION_FILES: Final = (
    "products.csv",
    "products.png",
    "throughputs.csv",
    "throughputs.png",
    "micro_benchmarks.csv",
)


@dataclass(frozen=True)
class Part:
    """The tables of what is held against one kind of measurement, and what to know of them."""

    tables: tuple[Table, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """What was measured, and what is simulated of it; none of a kind that was not asked for.

    Attributes:
        products: dense products.
        chip: what they were measured on.
        fitted: whether the rates come from them.
        throughputs: of whole trainings.
        benchmarks: links, collectives and the host.
        felt: what each rate does to a training; None where that was not asked.
        dials: the rates that were fitted, and what tells each.
        prepared: the trainings laid out, to be priced by other rates.
        ranges: the file of errors by kind of model, by which runs say how far off they may be.
    """

    products: Sequence[products.ValidatedRow]
    chip: hardware.IpuSpec
    fitted: bool
    throughputs: Sequence[SimulatedRow]
    benchmarks: Sequence[micro.MicroBenchmark]
    felt: Table | None = None
    dials: Table | None = None
    prepared: Sequence[Prepared] = ()
    ranges: bytes = b""

    def verdicts(self) -> Iterator[str]:
        """Yield in a sentence for each kind how far off the simulation is."""
        if self.throughputs:
            yield throughput_report.verdict(self.throughputs)
        if self.products:
            yield products.product_verdict(self.products)
        if self.benchmarks:
            yield micro.benchmark_verdict(self.benchmarks)

    def parts(self) -> Iterator[Part]:
        """Yield the tables of each kind."""
        if self.throughputs:
            yield Part(
                (
                    throughput_report.throughput_table(self.throughputs),
                    throughput_report.throughput_error_table(self.throughputs),
                    *(table for table in (self.dials, self.felt) if table is not None),
                ),
                tuple(throughput_report.throughput_words(self.throughputs)),
            )
        if self.products:
            rows = [product.row for product in self.products]
            tables = (
                products.product_table(self.products),
                products.error_table(self.products),
                products.planner_rate_table(rows, self.chip),
            )
            yield Part(tables, tuple(products.words(rows, self.chip, fitted=self.fitted)))
        if self.benchmarks:
            yield Part((micro.benchmark_table(self.benchmarks),), tuple(micro.benchmark_words(self.benchmarks)))

    def files(self) -> dict[str, bytes]:
        """Return the content of every file, by name."""
        files: dict[str, bytes] = {}
        if self.products:
            files |= {"products.csv": products.products_csv(self.products)}
            files |= {"products.png": products.products_png(self.products)}
        if self.throughputs:
            files |= {"throughputs.csv": throughput_report.throughputs_csv(self.throughputs)}
            files |= {"throughputs.png": throughput_report.throughputs_png(self.throughputs)}
        if self.benchmarks:
            files |= {"micro_benchmarks.csv": micro.benchmarks_csv(self.benchmarks)}
        return files


def validated(own_products: Path | None = None, own_rows: Path | None = None, ipu: str | None = None) -> Validation:
    """Return what is simulated of a person's own rows, or of all of the package's where there are none.

    Raises FileError and OSError for files that cannot be read, QuantityError for a chip that there is not, and what
    :func:`ipusim.app.fidelity.throughputs.prepare` does.
    """
    everything = own_products is None and own_rows is None
    chip = products.MEASURED_ON if ipu is None else hardware.find_ipu(ipu)
    measured: Sequence[ProductRow] = read_rows(own_products or MEASURED) if everything or own_products else ()
    published = read_throughputs(own_rows or PUBLISHED) if everything or own_rows else ()
    prepared = prepare_rows(published)
    simulated = simulate_rows(prepared)
    if everything:
        unseen = with_sources_left_out(prepared, simulated)
        simulated = [replace(each, unseen=other) for each, other in zip(simulated, unseen, strict=True)]
    return Validation(
        products.validate_products(measured, chip, fitted=everything),
        chip,
        everything,
        simulated,
        micro.read_benchmarks() if everything else (),
        throughput_report.sensitivity_table(prepared) if everything else None,
        throughput_report.dial_table(prepared, simulated) if everything else None,
        prepared,
        _ranges_csv(prepared, simulated) if everything else b"",
    )


def _ranges_csv(prepared: Sequence[Prepared], rows: Sequence[SimulatedRow]) -> bytes:
    """Return a table of the least and the most error of each kind of model, of rows that no input holds back."""
    errors: dict[str, list[float]] = {}
    for each, row in zip(prepared, rows, strict=True):
        if row.row.use != "input":
            errors.setdefault(runs.kind_of(each.jobs[0]), []).append(row.judged)
    lines = [f"{kind},{len(of)},{min(of):.3f},{max(of):.3f}" for kind, of in errors.items()]
    return "\n".join([",".join(runs.COLUMNS), *lines, ""]).encode()
