"""Export run folders as CSV or Parquet: spans, memory over time, IPUs."""

from __future__ import annotations

import io
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipusim.api import Timeline, analysis
from ipusim.app.render.window import window
from ipusim.app.run_folder.columns import Column, Columns, ipu_columns, memory_columns, span_columns
from ipusim.app.run_folder.memory_file import read_memory
from ipusim.app.study.result import parquet_package
from ipusim.base import csv_table
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file

if TYPE_CHECKING:
    import pyarrow as pa

#: File that identifies a run folder.
TIMELINE: Final = "timeline.npz"
#: File endings of tables.
TABLES: Final = (".csv", ".parquet")


def run_file(run: Path, name: str) -> Path:
    """Return a run folder's file, or ``run`` if already a file. Raises FileError for any other path."""
    if not run.exists() or (run.is_dir() and not has_run_file(run / name)):
        reason = "a folder without" if run.is_dir() else "no such file"
        raise FileError(f"{run}: expected a run folder with {name}, or the file {name}, got {reason}")
    return run / name if run.is_dir() else run


def table_names(out: Path) -> tuple[str, ...]:
    """Return the file names of spans, memory and IPUs, for spans in ``out``.

    Example:
        >>> table_names(Path("spans.csv")), table_names(Path("x.csv"))
        (('spans.csv', 'memory.csv', 'ipus.csv'), ('x.csv', 'x-memory.csv', 'x-ipus.csv'))
    """
    prefix = out.stem.removesuffix("spans") if out.stem.endswith("spans") else f"{out.stem}-"
    return (out.name, *(f"{prefix}{name}{out.suffix}" for name in ("memory", "ipus")))


#: Names of table files in a run folder.
TABLE_FILES: Final = tuple(name for ending in TABLES for name in table_names(Path(f"spans{ending}")))


def export_files(run: Path, out: Path, start: int | None = None, end: int | None = None) -> dict[str, bytes]:
    """Return the tables of a run folder or Timeline file, by name.

    ``out`` names the table of spans; ``start`` and ``end`` restrict it to spans between these cycles. The memory table
    exists if the run knows its stages' memory. Raises MissingPackageError for a missing Parquet package, FileError for
    a path without a run, TimelineError and FileError for damaged files, OptionError for cycles outside the run,
    OutputError for too many spans, and OSError for unreadable files.
    """
    path = run_file(run, TIMELINE)
    timeline = Timeline.load(path)
    if start is not None or end is not None:
        window(timeline, start, end)  # refuses an empty window
    curves = read_memory(path.parent, len(timeline.info.ipus))
    tables = (
        span_columns(timeline, start, end),
        memory_columns(curves, timeline.info.clock_hz) if curves else None,
        ipu_columns(analysis.run_times_of(timeline)),
    )
    encode = parquet_bytes if out.suffix.lower() == ".parquet" else csv_bytes
    return {name: encode(table) for name, table in zip(table_names(out), tables, strict=True) if table is not None}


def csv_bytes(columns: Columns) -> bytes:
    """Return columns as CSV: plain names, exact floats, empty cells for missing values."""
    return csv_table.csv_bytes(chain([columns], zip(*map(_cells, columns.values()), strict=True)))


def parquet_bytes(columns: Columns) -> bytes:
    """Return columns as Parquet, with dictionary-encoded names and nulls; raises MissingPackageError."""
    pyarrow, parquet = parquet_package()
    table = pyarrow.table({name: _array(pyarrow, column) for name, column in columns.items()})
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()


def _cells(column: Column) -> list[object]:
    """Return the CSV cells of a column; floats read back exactly."""
    values = column.values.tolist()
    if column.names is not None:
        return [column.names[value] if value >= 0 else "" for value in values]
    return ["" if value < 0 else value for value in values] if column.partial else values


def _array(pyarrow: Any, column: Column) -> pa.Array:
    if column.names is None:
        return pyarrow.array(column.values, mask=column.is_missing)
    # 32 bit codes, supported by other Parquet readers too.
    codes = pyarrow.array(column.values.astype("int32"), mask=column.is_missing)
    return pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(column.names, pyarrow.string()))
