"""Read and write the memory of IPUs over time in a run folder: a curve per IPU, an entry per change."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.api import analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.base.errors import FileError
from ipusim.base.files import array_names, has_run_file, open_run_file, read_arrays

#: File name.
MEMORY_FILE: Final = "memory.npz"
#: Columns with an entry for each curve.
_CURVE_COLUMNS: Final = ("ipu", "resident_bytes", "entries")
#: Columns with an entry for each change of the concatenated curves.
_ENTRY_COLUMNS: Final = ("time", "live_bytes", "fifo_bytes")
#: Column of repeated blocks of entries: number of the curve, and block.
_BLOCKS: Final = "blocks"
#: Maximum size in bytes, unpacked: a pass or update makes two entries of three numbers, and most spans make none.
_MOST_BYTES: Final = timelines.MOST_SPANS * 2 * 3 * 8


def memory_file(curves: Sequence[analysis.MemoryCurve]) -> bytes:
    """Return curves as an npz archive; equal curves give equal bytes."""
    columns: dict[str, Any] = {
        name: np.array([getattr(curve, name) for curve in curves], dtype=np.int64) for name in _CURVE_COLUMNS[:-1]
    }
    columns["entries"] = np.array([len(curve.time) for curve in curves], dtype=np.int64)
    columns |= {name: np.concatenate([getattr(curve, name) for curve in curves]) for name in _ENTRY_COLUMNS}
    blocks = [(number, *block) for number, curve in enumerate(curves) for block in curve.repeats]
    if blocks:
        columns[_BLOCKS] = np.array(blocks, dtype=np.int64)
    file = io.BytesIO()
    np.savez_compressed(file, **columns)
    return file.getvalue()


def read_memory(folder: Path, ipus: int) -> tuple[analysis.MemoryCurve, ...]:
    """Return the memory curves in ``folder``; empty if the run wrote none.

    Args:
        folder: the run folder.
        ipus: the run's number of IPUs.

    Raises FileError for malformed curves, OSError for an unreadable file.
    """
    path = folder / MEMORY_FILE
    if not has_run_file(path):
        return ()
    try:
        with open_run_file(path) as file:
            blocks = [_BLOCKS] if _BLOCKS in array_names(file) else []
            arrays = read_arrays(file, (*_CURVE_COLUMNS, *_ENTRY_COLUMNS, *blocks), _MOST_BYTES)
        repeats = arrays.pop(_BLOCKS, np.empty((0, 1 + len(timelines.Repeat._fields)), np.int64))
        if any(array.dtype != np.int64 or array.ndim != 1 or (array < 0).any() for array in arrays.values()):
            raise FileError("columns without whole numbers from 0 up")
        ipu, resident, entries = (arrays[name] for name in _CURVE_COLUMNS)
        columns = [arrays[name] for name in _ENTRY_COLUMNS]
        if len({len(ipu), len(resident), len(entries)}) > 1 or len({int(entries.sum()), *map(len, columns)}) > 1:
            raise FileError("columns of different lengths")
        if (ipu >= ipus).any() or not entries.all():
            raise FileError(f"IPUs beyond the {ipus} of the run, or without memory")
        parts = [np.split(column, np.cumsum(entries)[:-1]) for column in columns]
        read_curves = tuple(
            map(analysis.MemoryCurve, ipu.tolist(), resident.tolist(), *parts, _repeats(repeats, entries.tolist()))
        )
        if any((np.diff(curve.time) < 0).any() or curve.time[0] for curve in read_curves):
            raise FileError("times that do not rise from 0")
        for curve in read_curves:
            timelines.check_apart(curve.time, curve.repeats)
    except FileError as error:
        raise FileError(
            f"{path}: expected the memory of IPUs in the format of a run, got another format: {error}"
        ) from None
    return read_curves


def _repeats(blocks: Integers, entries: Sequence[int]) -> Iterator[tuple[timelines.Repeat, ...]]:
    """Yield the repeated blocks of every memory curve; raises FileError for malformed blocks."""
    if blocks.dtype != np.int64 or blocks.ndim != 2 or not np.isin(blocks[:, 0], np.arange(len(entries))).all():
        raise FileError("blocks without a curve")
    for number, size in enumerate(entries):
        rows = blocks[blocks[:, 0] == number, 1:]
        yield timelines.read_repeats(rows, size) if len(rows) else ()
