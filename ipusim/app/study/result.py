"""Define results of studies for command, notebook and files: sentences, tables, rows, data and charts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ipusim.app.render.tables import Table, text_of
from ipusim.app.study.forms import FORMS
from ipusim.base.csv_table import csv_bytes
from ipusim.base.errors import MissingPackageError, OptionError, install_command

if TYPE_CHECKING:
    from ipusim.app.render.figures import Chart

#: Rows of a result: values by column name.
Rows = Sequence[Mapping[str, Any]]


class Preformatted(str):
    """Lines printed unchanged, such as a grid."""


class Result:
    """Findings of a study, printed in the same way by command, notebook and files.

    Attributes:
        names: possible files of a results folder, main file first.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def printout(self) -> Iterator[str | Table]:
        """Yield sentences and tables in reading order; an empty text is a blank line."""
        raise NotImplementedError

    def data(self) -> Any:
        """Return plain data for JSON, in a fixed order; by default the rows."""
        return self.rows()

    def rows(self) -> Rows:
        """Return the rows of CSV files and DataFrames."""
        raise NotImplementedError

    def charts(self) -> Mapping[str, Callable[[], Chart]]:
        """Return functions that draw the charts, by file name without ending, main chart first."""
        return {}

    def text(self, form: str) -> bytes:
        """Return the result in the form of a file ending in ``FORMS``, such as ``.json``."""
        return FORMS[form].text(self)

    def to_json(self) -> bytes:
        """Return the data as JSON."""
        return json_bytes(self.data())

    def to_csv(self) -> bytes:
        """Return the rows as CSV."""
        return rows_csv(self.rows())

    def to_markdown(self) -> bytes:
        """Return sentences and tables as Markdown."""
        return markdown([*self.printout()])

    def to_parquet(self) -> bytes:
        """Return the rows as Parquet; raises MissingPackageError without its package."""
        return rows_parquet(self.rows())

    def files(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """Return the content of the files ``names``, by default every file; missing charts have no files.

        Raises:
            MissingPackageError: for Parquet without its package.
        """
        return self.folder_files() if names is None or {*names} == {*self.names} else self.single_files(names)

    def folder_files(self) -> dict[str, bytes]:
        """Return the content of a results folder; missing charts have no files."""
        return self.single_files(self.names)

    def single_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the content of files by ending: data, rows, text, or the chart of this name.

        Pictures with other names show the main chart.
        """
        charts = self.charts()
        chart_of: dict[str, Chart] = {}
        files = {}
        for name in names:
            form = Path(name).suffix.lower()
            if form in FORMS:
                files[name] = self.text(form)
                continue
            stem = Path(name).stem if name in self.names else next(iter(charts), "")
            if stem in charts:
                chart_of[stem] = chart_of.get(stem) or charts[stem]()
                files[name] = picture_bytes(chart_of[stem], form)
        return files


def picture_bytes(chart: Chart, form: str) -> bytes:
    """Return a chart as ``.png``, ``.svg`` or ``.pdf``."""
    from ipusim.app.render import figures  # noqa: PLC0415 - matplotlib is slow to import

    return {".png": figures.to_png, ".svg": figures.to_svg, ".pdf": figures.to_pdf}[form](chart)


def json_bytes(data: object) -> bytes:
    """Return data as indented JSON."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def columns_of(rows: Rows) -> dict[str, list[Any]]:
    """Return rows by column; None for a missing value."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def rows_csv(rows: Rows) -> bytes:
    """Return rows as CSV with a header; missing values are empty."""
    columns = columns_of(rows)
    cells = (
        [("" if value is None else text_of(value)) for value in row] for row in zip(*columns.values(), strict=True)
    )
    return csv_bytes([columns, *cells])


def rows_parquet(rows: Rows) -> bytes:
    """Return rows as Parquet: numbers as numbers, mixed types and lists as text.

    Raises:
        MissingPackageError: without the package for Parquet.
    """
    arrow, parquet = parquet_package()
    columns = {name: _array(arrow, values) for name, values in columns_of(rows).items()}
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def parquet_package() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module; raises MissingPackageError without the package."""
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


#: File endings of pictures.
_PICTURES: Final = (".png", ".svg", ".pdf")


def folder_and_names(out: Path, result: type[Result]) -> tuple[Path, tuple[str, ...]]:
    """Return the folder and file names of results: a whole study, or the single file ``out``.

    Raises:
        OptionError: for a picture of a study without charts.
        MissingPackageError: for Parquet without its package.

    Example:
        >>> folder_and_names(Path("results/points.csv"), Result)
        (PosixPath('results'), ('points.csv',))
    """
    form = out.suffix.lower()
    if form not in (*FORMS, *_PICTURES) or out.is_dir():
        return out, result.names
    if form == ".parquet":
        parquet_package()
    if form in _PICTURES and not any(name.endswith(_PICTURES) for name in result.names):
        raise OptionError("out", f"expected a folder, or a file named {', '.join(FORMS)}, got {out}")
    return out.parent, (out.name,)


def written(out: Path, files: Iterable[str]) -> str:
    """Return the line that names written files: the single file ``out``, or the folder ``out`` and its files.

    Example:
        >>> written(Path("results"), ["points.csv", "points.json"])
        'results: points.csv, points.json'
    """
    names = [*files]
    return str(out) if names == [out.name] else f"{out}: {', '.join(names)}"
