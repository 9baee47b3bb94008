"""Read measured products from CSV: the package's rows, and user rows with the same columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.api import pricing
from ipusim.base.csv_table import Columns, CsvRow, checked_rows, wrong_positive, wrong_whole

#: CSV file of the package's rows.
PRODUCTS_FILE: Final = Path(__file__).parent / "measured" / "products.csv"
#: Columns of the product's shape.
_SIZES: Final = ("m", "k", "n")
_DTYPE, _RATE, _SOURCE = "dtype", "TFLOP/s", "source"
#: Required columns.
_COLUMNS: Final = (*_SIZES, _DTYPE, _RATE)
#: Accepted names of types, mapped to the names in the package's rows.
_TYPES: Final = {
    **dict.fromkeys(("fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "float"), "fp32"),
}
#: Bytes of an element, by type.
_ITEM_BYTES: Final = {"fp16": 2, "fp32": 4}
#: Maximum of m, k and n.
_LARGEST_SIZE: Final = 10**7
#: Maximum number of rows of a file.
_MOST_ROWS: Final = 100_000
#: Maximum number of bytes of a file.
_MOST_BYTES: Final = 10 * 2**20


@dataclass(frozen=True)
class ProductRow:
    """A measured product of an (m, k) matrix by a (k, n) matrix.

    Attributes:
        m, k, n: shape of the product.
        dtype: ``fp16`` or ``fp32``.
        tflops: 2 m k n over the measured time, in 10^12 a second.
        source: author of the measurement; empty if unstated.
    """

    m: int
    k: int
    n: int
    dtype: str
    tflops: float
    source: str = ""

    @property
    def product(self) -> pricing.PlannedProduct:
        """The product, with partial sums of the elements' type.

        The type of partial sums in the package's rows is unpublished. With single precision the best fit has a mean
        error of 6.9 % over the rows in half precision, instead of 4.0 %.
        """
        size = _ITEM_BYTES[self.dtype]
        return pricing.PlannedProduct(m=self.m, k=self.k, n=self.n, itemsize=size, partials_itemsize=size)

    def cycles(self, clock_hz: int) -> float:
        """Return the measured cycles at a clock."""
        return 2 * self.product.macs * clock_hz / (self.tflops * 1e12)


def read_rows(path: Path) -> tuple[ProductRow, ...]:
    """Return the rows of a CSV file with the columns m, k, n, dtype (fp16 or fp32) and TFLOP/s, in any order.

    A column ``source`` is optional, other columns are ignored. Raises FileError with every wrong line and column, and
    for a file without rows; OSError for an unreadable file.
    """
    columns = Columns((*_COLUMNS, _SOURCE), _COLUMNS, allows_others=True)
    return tuple(_row(row.cells) for row in checked_rows(path, columns, _MOST_BYTES, _MOST_ROWS, _problems))


def _problems(row: CsvRow) -> Iterator[str]:
    """Yield the error of every cell."""
    for name in _SIZES:
        yield from wrong_whole(name, row.cells[name], _LARGEST_SIZE)
    if row.cells[_DTYPE].lower() not in _TYPES:
        yield f"column {_DTYPE}: expected fp16 or fp32, got {row.cells[_DTYPE]!r}"
    yield from wrong_positive(_RATE, row.cells[_RATE])


def _row(cells: Mapping[str, str]) -> ProductRow:
    m, k, n = (int(cells[name]) for name in _SIZES)
    return ProductRow(m, k, n, _TYPES[cells[_DTYPE].lower()], float(cells[_RATE]), cells.get(_SOURCE, ""))
