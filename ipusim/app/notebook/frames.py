"""Convert spans, IPUs, memory and losses to pandas DataFrames."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipusim.app.run_folder.columns import Column, Columns
from ipusim.base.errors import MissingPackageError, install_command

if TYPE_CHECKING:
    import pandas as pd


def frame(columns: Columns) -> pd.DataFrame:
    """Return columns as a DataFrame: names as categories, columns with missing numbers as nullable integers.

    Raises MissingPackageError without pandas.
    """
    pandas = _pandas()
    return pandas.DataFrame({name: _column(pandas, column) for name, column in columns.items()})


def memory_frame(memory: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for every IPU with a stage: peak, cycle of the peak, and bytes by holder, such as parameters.

    ``memory`` is the part ``memory`` of ``summary.json``; columns keep its names. Raises MissingPackageError without
    pandas.
    """
    rows = [
        {
            **{key: value for key, value in ipu.items() if key != "holders"},
            "sram_bytes": memory["sram_bytes"],
            **{f"{holder}_bytes": size for holder, size in ipu["holders"].items()},
        }
        for ipu in memory["ipus"]
    ]
    return _pandas().DataFrame(rows)


def losses_frame(content: bytes) -> pd.DataFrame:
    """Return ``losses.csv`` as a DataFrame with exact losses; raises MissingPackageError without pandas."""
    header, *rows = csv.reader(io.StringIO(content.decode()))
    types = {name: float if name.startswith("loss") else int for name in header}
    return _pandas().DataFrame(rows, columns=header).astype(types)


def rows_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a DataFrame; None becomes missing; raises MissingPackageError without pandas."""
    return _pandas().DataFrame(rows).convert_dtypes()


def _pandas() -> Any:
    try:
        import pandas  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingPackageError(f"DataFrames need pandas: {install_command('notebook')}") from None
    return pandas


def _column(pandas: Any, column: Column) -> Any:
    if column.names is not None:
        # value_counts() of a column would list unused names with 0
        return pandas.Categorical.from_codes(np.maximum(column.values, -1), column.names).remove_unused_categories()
    return pandas.arrays.IntegerArray(column.values.copy(), column.is_missing) if column.partial else column.values
