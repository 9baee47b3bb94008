"""Validate against measurements: dense products, whole trainings, links, collectives and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ipusim.api import hardware
from ipusim.app.fidelity import micro_benchmarks as micro
from ipusim.app.fidelity import products, throughput_report
from ipusim.app.fidelity.product_rows import PRODUCTS_FILE, ProductRow, read_rows
from ipusim.app.fidelity.throughput_fit import with_sources_left_out
from ipusim.app.fidelity.throughput_rows import PUBLISHED, read_throughputs
from ipusim.app.fidelity.throughputs import SimulatedRow, prepare_rows, simulate_rows
from ipusim.app.render.figures import Chart
from ipusim.app.render.tables import Table
from ipusim.app.study.result import Result
from ipusim.base.errors import QuantityError, as_option_error

_COLUMNS: Final = ("kind", "name", "unit", "measured", "simulated", "error")


@dataclass(frozen=True)
class Validation(Result):
    """Measured and simulated figures by kind of measurement; unrequested kinds are empty.

    Attributes:
        products: dense products.
        chip: chip of the measured products.
        is_fitted: whether the products were used to fit the rates.
        throughputs: throughputs of whole trainings.
        benchmarks: micro-benchmarks of links, collectives and the host.
        sensitivities: sensitivity of a training to the rates; None for a user's rows.
        fitted_rates: table of fitted rates; None for a user's rows.
    """

    products: Sequence[products.ValidatedRow]
    chip: hardware.IpuSpec
    is_fitted: bool
    throughputs: Sequence[SimulatedRow]
    benchmarks: Sequence[micro.MicroBenchmark]
    sensitivities: Table | None = None
    fitted_rates: Table | None = None

    names = ("products.csv", "products.png", "throughputs.csv", "throughputs.png", "micro_benchmarks.csv")

    def verdicts(self) -> Iterator[str]:
        """Yield a sentence with the simulation's errors per kind of measurement."""
        if self.throughputs:
            yield throughput_report.verdict(self.throughputs)
        if self.products:
            yield products.product_verdict(self.products)
        if self.benchmarks:
            yield micro.benchmark_verdict(self.benchmarks)

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdicts, then tables and notes per kind of measurement."""
        yield from self.verdicts()
        yield ""
        if self.throughputs:
            yield throughput_report.throughput_table(self.throughputs)
            yield throughput_report.throughput_error_table(self.throughputs)
            yield from (table for table in (self.fitted_rates, self.sensitivities) if table is not None)
            yield from throughput_report.throughput_words(self.throughputs)
            yield ""
        if self.products:
            rows = [product.row for product in self.products]
            yield products.product_table(self.products)
            yield products.error_table(self.products)
            yield products.planner_rate_table(rows, self.chip)
            yield from products.words(rows, self.chip, is_fitted=self.is_fitted)
            yield ""
        if self.benchmarks:
            yield micro.benchmark_table(self.benchmarks)
            yield from micro.benchmark_words(self.benchmarks)
            yield ""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per measurement: kind, name, unit, measured, simulated and error."""
        lines: list[tuple[object, ...]] = []
        for training in self.throughputs:
            head = "throughput", throughput_report.row_name(training.row), "items/s"
            lines.append((*head, training.row.items_per_s, training.items_per_s, training.error))
        for product in self.products:
            row = product.row
            head = "product", f"{row.m} x {row.k} by {row.k} x {row.n}, {row.dtype}", "TFLOP/s"
            lines.append((*head, row.tflops, product.modelled_tflops, product.error))
        for benchmark in self.benchmarks:
            head = "micro-benchmark", f"{benchmark.label}, {benchmark.system}", benchmark.unit
            lines.append((*head, benchmark.published or None, benchmark.simulated, benchmark.error))
        return [dict(zip(_COLUMNS, row, strict=True)) for row in lines]

    def data(self) -> dict[str, Any]:
        """Return the verdicts and the rows."""
        return {"verdicts": [*self.verdicts()], "rows": self.rows()}

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the charts of throughputs and of products, if any."""
        charts: dict[str, Callable[[], Chart]] = {}
        if self.throughputs:
            charts["throughputs"] = lambda: throughput_report.throughputs_chart(self.throughputs)
        if self.products:
            charts["products"] = lambda: products.products_chart(self.products)
        return charts

    def folder_files(self) -> dict[str, bytes]:
        """Return the contents of the files, separate per kind of measurement."""
        files = self.single_files([name for name in self.names if name.endswith(".png")])
        if self.products:
            files["products.csv"] = products.products_csv(self.products)
        if self.throughputs:
            files["throughputs.csv"] = throughput_report.throughputs_csv(self.throughputs)
        if self.benchmarks:
            files["micro_benchmarks.csv"] = micro.benchmarks_csv(self.benchmarks)
        return {name: files[name] for name in self.names if name in files}


def validation_of(own_products: Path | None = None, own_rows: Path | None = None, ipu: str | None = None) -> Validation:
    """Return the comparison with a user's rows, or else with the package's rows.

    Raises FileError for mistakes in a file, and with the row's position for errors of a row's scenario and for a
    pipeline that is never full; OSError for an unreadable file; OptionError for an unknown chip.
    """
    is_of_package = own_products is None and own_rows is None
    with as_option_error("ipu", QuantityError):
        chip = products.MEASURED_ON if ipu is None else hardware.find_ipu(ipu)
    product_rows: Sequence[ProductRow] = (
        read_rows(own_products or PRODUCTS_FILE) if is_of_package or own_products else ()
    )
    published = read_throughputs(own_rows or PUBLISHED) if is_of_package or own_rows else ()
    if own_rows:  # held out: no rates are fitted to a user's rows, even rows copied from the package's file
        published = tuple(replace(row, use="held") if row.use == "fitted" else row for row in published)
    trainings = prepare_rows(published)
    results = simulate_rows(trainings)
    if is_of_package:
        fitted_without_source = with_sources_left_out(results)
        pairs = zip(results, fitted_without_source, strict=True)
        results = [replace(row, unseen_items_per_s=figure) for row, figure in pairs]
    return Validation(
        products.validate_products(product_rows, chip, is_fitted=is_of_package),
        chip,
        is_of_package,
        results,
        micro.read_benchmarks() if is_of_package else (),
        throughput_report.sensitivity_table(trainings) if is_of_package else None,
        throughput_report.fitted_rate_table(results) if is_of_package else None,
    )
