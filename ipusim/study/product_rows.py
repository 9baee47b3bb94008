"""Measured products from CSV: those of the package, and a person's own in the same columns."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.errors import FileError
from ipusim.files import open_file, read_up_to
from ipusim.near_names import nearest
from ipusim.pricing.planner.product import Product

#: The package's own rows.
MEASURED: Final = Path(__file__).parent / "measured" / "products.csv"
_SIZES: Final = ("m", "k", "n")
_DTYPE, _RATE, _SOURCE = "dtype", "TFLOP/s", "source"
_COLUMNS: Final = (*_SIZES, _DTYPE, _RATE)
#: What a type may be called, as the package's rows call it.
_TYPES: Final = {
    **dict.fromkeys(("fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "float"), "fp32"),
}
_BYTES: Final = {"fp16": 2, "fp32": 4}
_MOST_SIZE: Final = 10**7
_MOST_ROWS: Final = 100_000
_MOST_BYTES: Final = 10 * 2**20
#: Problems that a message lists.
_LISTED: Final = 20


@dataclass(frozen=True)
class ProductRow:
    """One measured product of an (m, k) matrix by a (k, n) matrix.

    Attributes:
        m, k, n: its shape.
        dtype: ``fp16`` or ``fp32``.
        tflops: 2 m k n over the time that it took, in 10^12 a second.
        source: who measured it; empty where the file does not say.
    """

    m: int
    k: int
    n: int
    dtype: str
    tflops: float
    source: str = ""

    @property
    def product(self) -> Product:
        """The product; its partial sums have the type of its elements.

        Which type those of the package's rows had is not published. With partial sums in single precision
        the best fit is 6.9 % off on average over the rows in half precision, instead of 4.0 %.
        """
        size = _BYTES[self.dtype]
        return Product(m=self.m, k=self.k, n=self.n, itemsize=size, partials_itemsize=size)

    def cycles(self, clock_hz: int) -> float:
        """Return the cycles that it took at a clock."""
        return 2 * self.product.macs * clock_hz / (self.tflops * 1e12)


def read_rows(path: Path) -> tuple[ProductRow, ...]:
    """Return the rows of a CSV file with the columns m, k, n, dtype (fp16 or fp32) and TFLOP/s, in any order.

    A column ``source`` is kept, others are left alone. Raises FileError that names every line and column
    that is wrong, and for a file without rows; OSError for one that cannot be read.
    """
    with open_file(path) as file:
        data = bytes(read_up_to(file, _MOST_BYTES + 1))
    if len(data) > _MOST_BYTES:
        raise FileError(f"{path}: expected a CSV file of at most {_MOST_BYTES >> 20} MiB")
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: not a CSV file in UTF-8: {error}") from error
    place, problems = _columns(lines[0] if lines else [])
    if problems:
        raise FileError("\n".join(f"{path}:1: {problem}" for problem in problems))
    rows = []
    for number, cells in enumerate(lines[1:], 2):
        if any(cell.strip() for cell in cells):
            row, found = _row(cells, place)
            rows += [row] if row else []
            problems += [f"{path}:{number}: {problem}" for problem in found]
    if problems:
        more = [f"and {len(problems) - _LISTED} more"] if len(problems) > _LISTED else []
        raise FileError("\n".join(problems[:_LISTED] + more))
    if not 0 < len(rows) <= _MOST_ROWS:
        raise FileError(f"{path}: expected from 1 to {_MOST_ROWS} rows below the names of the columns, got {len(rows)}")
    return tuple(rows)


def _columns(header: list[str]) -> tuple[dict[str, int], list[str]]:
    """Return where each column is, and what is wrong with the header."""
    names = [name.strip().lower() for name in header]
    wanted = {name.lower(): name for name in (*_COLUMNS, _SOURCE)}
    place = {wanted[name]: at for at, name in reversed(list(enumerate(names))) if name in wanted}
    problems = [f"column {name!r} is there twice" for name in wanted if names.count(name) > 1]
    others = [name for name in names if name not in wanted]
    for name in _COLUMNS:
        if name not in place:
            near = nearest(name, others)
            found = f", got {near!r}" if near else ""
            problems.append(f"expected a column {name!r} beside {', '.join(_COLUMNS)}{found}")
    return place, problems


def _row(cells: list[str], place: dict[str, int]) -> tuple[ProductRow | None, list[str]]:
    """Return the row, or what is wrong with it."""
    said = {name: cells[at].strip() if at < len(cells) else "" for name, at in place.items()}
    problems = [
        f"column {name}: expected a whole number from 1 to {_MOST_SIZE}, got {said[name]!r}"
        for name in _SIZES
        if not (said[name].isascii() and said[name].isdigit() and 1 <= int(said[name][:20]) <= _MOST_SIZE)
    ]
    dtype = _TYPES.get(said[_DTYPE].lower())
    if dtype is None:
        problems.append(f"column {_DTYPE}: expected fp16 or fp32, got {said[_DTYPE]!r}")
    try:
        tflops = float(said[_RATE])
    except ValueError:
        tflops = math.nan
    if not 0 < tflops < math.inf:
        problems.append(f"column {_RATE}: expected a number above 0, got {said[_RATE]!r}")
    if problems or dtype is None:
        return None, problems
    m, k, n = (int(said[name]) for name in _SIZES)
    return ProductRow(m, k, n, dtype, tflops, said.get(_SOURCE, "")), []
