"""Compare measured dense products with the planner's model: errors as sentence, tables, CSV and picture.

The planner splits a product over the tiles of an IPU and estimates its cycles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from ipusim.api import hardware, pricing
from ipusim.app.fidelity.product_fit import MeasuredProduct, at_edge, fit_rates, rate_shares
from ipusim.app.fidelity.product_rows import ProductRow
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.figures import Chart
from ipusim.app.render.products import ShapePoint, product_chart
from ipusim.app.render.tables import Table
from ipusim.base.csv_table import csv_bytes

#: Chip on which the package's rows were measured, concluded from the rows as their source names no chip. A GC200 is too
#: slow: for m = k = 1024, n = 32768, multiplication at peak rate leaves 43,600 cycles of the measured time, but the
#: exchange of the necessary bytes takes 109,000 cycles at the nominal rate, even if pairs of tiles share their
#: exchange. The best fit for a GC200 is 18 % off, with every rate at the edge of its range. The best fit for a Bow has
#: no rate at an edge.
MEASURED_ON: Final = hardware.BOW


@dataclass(frozen=True)
class ValidatedRow:
    """A measured product and the planner's estimate.

    Attributes:
        row: the measurement.
        modelled_tflops: TFLOP/s with the planner's rates.
        unseen_tflops: TFLOP/s with rates fitted only to rows of other sizes (m, k); None without a fit.
    """

    row: ProductRow
    modelled_tflops: float
    unseen_tflops: float | None = None

    @property
    def error(self) -> float:
        """Relative error of the model; positive if too fast."""
        return self.modelled_tflops / self.row.tflops - 1

    @property
    def unseen_error(self) -> float | None:
        """Relative error of rates fitted without this size; None without a fit."""
        return None if self.unseen_tflops is None else self.unseen_tflops / self.row.tflops - 1


def validate_products(
    rows: Sequence[ProductRow], ipu: hardware.IpuSpec = MEASURED_ON, *, is_fitted: bool = False
) -> list[ValidatedRow]:
    """Return the rows with the planner's estimates.

    If the planner's rates were fitted to these rows (``is_fitted``), each row gets a second estimate: the rates are
    fitted again, without the rows of equal m and k.
    """
    rates_without_size = {}
    if is_fitted:
        for size in sorted({(row.m, row.k) for row in rows}):
            other_products = [
                MeasuredProduct(row.product, row.cycles(ipu.clock_hz)) for row in rows if (row.m, row.k) != size
            ]
            rates_without_size[size] = fit_rates(other_products, ipu)
    validated = []
    for row in rows:
        unseen_tflops = tflops(row, ipu, rates_without_size[row.m, row.k]) if is_fitted else None
        validated.append(ValidatedRow(row, tflops(row, ipu, pricing.DEFAULT_PLANNER_RATES), unseen_tflops))
    return validated


def tflops(row: ProductRow, ipu: hardware.IpuSpec, rates: pricing.PlannerRates) -> float:
    """Return the TFLOP/s of a row's product with the given rates."""
    return pricing.plan_product(row.product, ipu, rates).flops_per_s(ipu.clock_hz) / 1e12


def product_verdict(validated: Sequence[ValidatedRow]) -> str:
    """Return a sentence with the planner's mean and worst error per type."""
    parts = []
    for dtype in sorted({product.row.dtype for product in validated}):
        group = [product for product in validated if product.row.dtype == dtype]
        number, mean, worst = spread(product.error for product in group)
        unseen = [product.unseen_error for product in group if product.unseen_error is not None]
        left_out = f" ({spread(unseen)[2]} with its size left out)" if unseen else ""
        parts.append(f"{number} in {dtype} {mean} off on average, {worst} at worst{left_out}")
    return f"Dense products: {'; '.join(parts)}."


def product_table(validated: Sequence[ValidatedRow]) -> Table:
    """Return measured and modelled figures and errors of the rows."""
    rows = (
        {
            "m x k x n": f"{product.row.m} x {product.row.k} x {product.row.n}",
            "type": product.row.dtype,
            "measured TFLOP/s": f"{product.row.tflops:.4g}",
            "modelled": f"{product.modelled_tflops:.4g}",
            "error": f"{product.error:+.1%}",
            **({} if product.unseen_error is None else {"error, unseen": f"{product.unseen_error:+.1%}"}),
        }
        for product in validated
    )
    return Table.of("Dense products, measured and modelled", rows)


def error_table(validated: Sequence[ValidatedRow]) -> Table:
    """Return mean and worst error by type; and by size (m, k), with rates fitted without this size."""
    rows = []
    for dtype in sorted({product.row.dtype for product in validated}):
        group = [product for product in validated if product.row.dtype == dtype]
        rows.append((dtype, *spread(product.error for product in group)))
        unseen: dict[tuple[int, int], list[float]] = defaultdict(list)
        for product in group:
            if product.unseen_error is not None:
                unseen[product.row.m, product.row.k].append(product.unseen_error)
        for (m, k), errors in sorted(unseen.items()):
            rows.append((f"{dtype}, {m} x {k} unseen", *spread(errors)))
    return Table("Absolute errors", ("rows", "number", "mean", "worst"), tuple(rows))


def planner_rate_table(rows: Sequence[ProductRow], ipu: hardware.IpuSpec = MEASURED_ON) -> Table:
    """Return the planner's rates with value, plausible range, and mean share of the rows' cycles."""
    products = [MeasuredProduct(row.product, row.cycles(ipu.clock_hz)) for row in rows]
    shares = rate_shares(products, ipu)
    edges = at_edge(pricing.DEFAULT_PLANNER_RATES)
    body = []
    for rate, share in zip(pricing.PLANNER_RATES, shares, strict=True):
        value = getattr(pricing.DEFAULT_PLANNER_RATES, rate.attribute)
        plausible = rate.plausible_text() + (" (at its edge)" if rate.attribute in edges else "")
        body.append((rate.attribute, f"{value:g} {rate.unit}", plausible, f"{share:.0%}", rate.meaning))
    return Table("Rates of the planner", ("rate", "value", "plausible", "of cycles", "meaning"), tuple(body))


def words(rows: Sequence[ProductRow], ipu: hardware.IpuSpec, *, is_fitted: bool) -> Iterator[str]:
    """Yield the notes on the tables."""
    yield (
        f"On the {ipu.tiles} tiles of one {ipu.name} at {ipu.clock_hz / 1e9:g} GHz; partial sums have the type of the "
        f"elements; temporary memory at most {pricing.AVAILABLE_MEMORY_PROPORTION * 100:g} % of a tile's."
    )
    if is_fitted:
        yield (
            "The rates were fitted to these rows; errors of unseen sizes are with rates fitted only to rows of "
            "other m and k."
        )
        for source in sorted({row.source for row in rows if row.source}):
            yield (
                f"Source: {source}. The figures are read off a picture, with errors of 2 to 3 %. The source names no "
                f"chip; the figures fit a {ipu.name}."
            )
    else:
        yield "Nothing was fitted to these rows."


def products_csv(validated: Sequence[ValidatedRow]) -> bytes:
    """Return the rows as CSV, with modelled TFLOP/s and error."""
    rows: list[tuple[object, ...]] = [("m", "k", "n", "dtype", "TFLOP/s", "source", "modelled_TFLOP/s", "error")]
    for product in validated:
        modelled = (f"{product.modelled_tflops:.5g}", f"{product.error:.5f}")
        rows.append((*astuple(product.row), *modelled))
    return csv_bytes(rows)


def products_chart(validated: Sequence[ValidatedRow]) -> Chart:
    """Return the picture of measured and modelled TFLOP/s by shape."""
    rows = [(product.row, product.modelled_tflops) for product in validated]
    points = [ShapePoint(row.m, row.k, row.n, row.dtype, row.tflops, modelled) for row, modelled in rows]
    return product_chart(points, "Dense products of m x k by k x n, measured and modelled")
