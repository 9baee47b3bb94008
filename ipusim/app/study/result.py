"""The result of a study for every face: sentences and tables, rows, plain data and charts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ipusim.app.render.tables import Table, text_of
from ipusim.base.csv_table import csv_bytes
from ipusim.base.errors import MissingPackageError, OptionError, install_command

if TYPE_CHECKING:
    from ipusim.app.render.figures import Chart

#: Rows of a result: values by the names of their columns.
Rows = Sequence[Mapping[str, Any]]


class Preformatted(str):
    """Lines that are printed as they are, such as a grid."""


class Result:
    """The findings of a study, as every face of the application prints them.

    Attributes:
        names: every file that a folder of results may have, the main one first.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def shown(self) -> Iterator[str | Table]:
        """Yield sentences and tables, in the order in which people read them; an empty text is a blank line."""
        raise NotImplementedError

    def data(self) -> Any:
        """Return everything as plain data for JSON, in a fixed order; by default the rows."""
        return self.rows()

    def rows(self) -> Rows:
        """Return the rows of CSV files and DataFrames."""
        raise NotImplementedError

    def charts(self) -> Mapping[str, Callable[[], Chart]]:
        """Return a function that draws each chart, by file names without ending, the main chart first."""
        return {}

    def text(self, form: str) -> bytes:
        """Return everything as ``.json``, the rows as ``.csv`` or ``.parquet``, or sentences and tables as ``.md``."""
        return _TEXTS[form](self)

    def files(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """Return the content of the files ``names``, by default of all; files of missing charts are left out.

        Raises:
            MissingPackageError: for Parquet without the package for it.
        """
        return self.folder_files() if names is None or {*names} == {*self.names} else self.single_files(names)

    def folder_files(self) -> dict[str, bytes]:
        """Return the content of every file of a folder of results; files of missing charts are left out."""
        return self.single_files(self.names)

    def single_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the content of files by their endings: all data, the rows, all text, or the chart of the name.

        A picture with another name than those of the folder has the main chart.
        """
        charts = self.charts()
        drawn: dict[str, Chart] = {}
        files = {}
        for name in names:
            form = Path(name).suffix.lower()
            if form in _TEXTS:
                files[name] = self.text(form)
                continue
            stem = Path(name).stem if name in self.names else next(iter(charts), "")
            if stem in charts:
                drawn[stem] = drawn.get(stem) or charts[stem]()
                files[name] = picture_bytes(drawn[stem], form)
        return files


def picture_bytes(chart: Chart, form: str) -> bytes:
    """Return a chart as ``.png``, ``.svg`` or ``.pdf``."""
    from ipusim.app.render import figures  # noqa: PLC0415 - matplotlib is slow to import

    return {".png": figures.to_png, ".svg": figures.to_svg, ".pdf": figures.to_pdf}[form](chart)


def json_bytes(data: object) -> bytes:
    """Return data as JSON that people can read and tools can compare."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def columns_of(rows: Rows) -> dict[str, list[Any]]:
    """Return rows by column; None where a row has no such column."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def rows_csv(rows: Rows) -> bytes:
    """Return rows as CSV, the names of the columns first; a missing value is empty."""
    columns = columns_of(rows)
    cells = (
        [("" if value is None else text_of(value)) for value in row] for row in zip(*columns.values(), strict=True)
    )
    return csv_bytes([columns, *cells])


def rows_parquet(rows: Rows) -> bytes:
    """Return rows as Parquet: numbers as numbers, values of several kinds and lists as text.

    Raises:
        MissingPackageError: without the package for it.
    """
    arrow, parquet = parquet_package()
    columns = {name: _array(arrow, values) for name, values in columns_of(rows).items()}
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def parquet_package() -> tuple[Any, Any]:
    """Return pyarrow and its module of Parquet; raises MissingPackageError without the package."""
    try:
        import pyarrow  # noqa: PLC0415 - an extra, and slow to import
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingPackageError(f"Parquet needs pyarrow: {install_command('parquet')}") from None
    return pyarrow, parquet


def _array(arrow: Any, values: Sequence[Any]) -> Any:
    """Return a column of Parquet."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return arrow.array([None if value is None else float(value) for value in values], arrow.float64())
    if len(kinds) <= 1 and kinds <= {int, float, bool, str}:
        return arrow.array(values)
    return arrow.array([None if value is None else text_of(value) for value in values], arrow.string())


def markdown(parts: Sequence[str | Table]) -> bytes:
    """Return sentences and tables as Markdown."""
    return "\n".join(filter(None, map(_markdown, parts))).encode()


def _markdown(part: str | Table) -> str:
    if isinstance(part, Preformatted):
        return f"```text\n{part.rstrip()}\n```\n"
    if isinstance(part, str):
        return f"{part}\n" if part else ""
    return f"{part.title}:\n\n{table_markdown(part)}"


def table_markdown(table: Table) -> str:
    """Return a table as Markdown, without its title."""
    lines = [table.header, tuple("---" for _ in table.header), *table.rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


#: Texts by their endings, and the endings of pictures.
_TEXTS: Final[Mapping[str, Callable[[Result], bytes]]] = {
    ".json": lambda result: json_bytes(result.data()),
    ".csv": lambda result: rows_csv(result.rows()),
    ".md": lambda result: markdown([*result.shown()]),
    ".parquet": lambda result: rows_parquet(result.rows()),
}
_PICTURES: Final = (".png", ".svg", ".pdf")


def place_of(out: Path, result: type[Result]) -> tuple[Path, tuple[str, ...]]:
    """Return the folder of results, and the names of its files: all files of a study, or the single file ``out``.

    Raises:
        OptionError: for a picture of a study that draws none.
        MissingPackageError: for Parquet without the package for it.

    Example:
        >>> place_of(Path("results/points.csv"), Result)
        (PosixPath('results'), ('points.csv',))
    """
    form = out.suffix.lower()
    if form not in (*_TEXTS, *_PICTURES) or out.is_dir():
        return out, result.names
    if form == ".parquet":
        parquet_package()
    if form in _PICTURES and not any(name.endswith(_PICTURES) for name in result.names):
        raise OptionError("out", f"expected a folder, or a file named {', '.join(_TEXTS)}, got {out}")
    return out.parent, (out.name,)
