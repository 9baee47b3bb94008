"""Read and write a Timeline's file, with checks of untrusted files.

The file holds rows of spans, and blocks of rows that happen several times in succession: the copies of a block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, BinaryIO, Final, get_type_hints

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import FileError, TimelineError
from ipusim.base.files import array_names, open_file, read_arrays
from ipusim.base.units import format_bytes
from ipusim.pipeline.plan import Sync
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.info import TimelineInfo
from ipusim.timeline.kinds import IPU_KINDS, SpanKind, of_kinds
from ipusim.timeline.repeats import Blocks, Column, Repeat
from ipusim.timeline.span import ALL_IPUS, NONE, Span

#: Maximum cycle of a span's end, and maximum bytes of a copy.
_LATEST_CYCLE: Final = 2**62
#: Maximum of any count in the info, and of the clock in Hz.
_LARGEST_COUNT: Final = 2**53
#: Maximum number of IPUs, stages or links in the info, and of characters in a name.
_MOST_ENTRIES: Final = 4096
#: Maximum number of spans of a run; more spans would exceed the memory available to a run.
MOST_SPANS: Final = 5_000_000
#: Maximum size of the info text in bytes.
_MOST_INFO_BYTES: Final = 1 << 23
#: Maximum size of the unpacked arrays together, in bytes.
_MOST_BYTES: Final = MOST_SPANS * 12 * 8 + _MOST_INFO_BYTES
#: Name of the array of blocks.
_REPEATS: Final = "repeats"
#: Maximum number of blocks.
_MOST_BLOCKS: Final = 4096
#: Maximum number of characters of a wrong value in a message.
_MOST_SHOWN_CHARACTERS: Final = 60

#: Entries of the info that a file omits if empty.
_OMITTED_IF_EMPTY: Final = ("ipus_at_end", "slow_ipus")
#: Parts of a Timeline: info, columns as a table, blocks.
Parts = tuple[TimelineInfo, Column, tuple[Repeat, ...]]


def write_timeline(
    file: Path | BinaryIO, info: TimelineInfo, table: npt.NDArray[np.int64], repeats: Sequence[Repeat]
) -> None:
    """Write a Timeline as an npz archive. Equal Timelines of equal title give equal bytes."""
    # Few runs have replaced or slow IPUs.
    entries = {name: value for name, value in asdict(info).items() if value or name not in _OMITTED_IF_EMPTY}
    header = np.frombuffer(json.dumps(entries, ensure_ascii=False).encode(), dtype=np.uint8)
    columns: dict[str, Any] = {name: np.ascontiguousarray(table[:, index]) for index, name in enumerate(Span._fields)}
    columns["ipu"] = np.where(columns["ipu"] == ALL_IPUS, NONE, columns["ipu"])
    if repeats:
        columns[_REPEATS] = np.array(repeats, dtype=np.int64)
    np.savez_compressed(file, info=header, **columns)


def read_timeline(file: Path | BinaryIO) -> Parts:
    """Return the parts of a Timeline written by :func:`write_timeline`.

    Raises TimelineError for a file of another kind, OSError for an unreadable file.
    """
    try:
        with open_file(file) if isinstance(file, Path) else nullcontext(file) as archive:
            repeats = [_REPEATS] if _REPEATS in array_names(archive) else []
            arrays = read_arrays(archive, ("info", *Span._fields, *repeats), _MOST_BYTES)
        table = _read_columns(arrays)
        info = _read_info(arrays["info"])
        blocks = read_repeats(arrays[_REPEATS], len(table)) if repeats else ()
        columns = {name: table[:, index] for index, name in enumerate(Span._fields)}
        _check_ranges(info, columns, blocks)
    except FileError as error:
        name = file if isinstance(file, Path) else getattr(file, "name", "the file")
        raise TimelineError(f"{name}: expected a Timeline saved by ipusim, got another format: {error}") from error
    is_shared = (columns["ipu"] == NONE) & of_kinds(columns["kind"], IPU_KINDS)
    columns["ipu"][is_shared] = ALL_IPUS
    return info, table, blocks


def _check_ranges(info: TimelineInfo, columns: dict[str, Column], repeats: Sequence[Repeat]) -> None:
    """Refuse values that no run records; raises FileError."""
    rows = len(columns["start"])
    ends = {
        "start": _LATEST_CYCLE,
        "end": _LATEST_CYCLE,
        "kind": len(SpanKind),
        "ipu": len(info.ipus),
        "stage": len(info.stages),
        "micro_batch": info.count,
        "time_step": info.time_steps + 1,  # the weight update follows the last time-step
        "execution": info.executions,
        "link": max(len(info.links), len(HostTrack)),
        "bytes": _LATEST_CYCLE,
        "cause": rows,
        "replica": info.replicas,
    }
    lowest = {"start": 0, "end": 0, "kind": 0}
    wrong_names = [
        name
        for name, end in ends.items()
        if ((column := columns[name]) < lowest.get(name, NONE)).any() or (column >= end).any()
    ]
    if wrong_names:
        raise FileError(f"columns that point outside the run: {', '.join(wrong_names)}")
    if (columns["start"] > columns["end"]).any() or (np.diff(columns["start"]) < 0).any():
        raise FileError("spans that end before they start, or are out of order")
    if repeats:
        _check_copies(
            info, columns, repeats, {name: ends[name] for name in ("end", "micro_batch", "time_step", "execution")}
        )
    spans = Blocks(repeats, rows).spans
    if not info.executions <= spans:
        raise FileError(f"{spans} spans of {info.executions} executions")


def _check_copies(
    info: TimelineInfo, columns: dict[str, Column], repeats: Sequence[Repeat], ends: dict[str, int]
) -> None:
    """Refuse blocks with copies that overlap later rows or point outside the run; raises FileError."""
    check_apart(columns["start"], repeats)
    latest = {name: columns[name].copy() for name in ends}
    has_negative_numbers = False
    for repeat in repeats:
        rows, further_copies = slice(repeat.first, repeat.last), repeat.times - 1
        numbers = (repeat.cycles, repeat.micro_batches, repeat.time_steps, repeat.executions)
        for column, number in zip(latest.values(), numbers, strict=True):
            values = column[rows]
            has_negative_numbers |= bool(((values != NONE) & (values + further_copies * number < 0)).any())
            column[rows] = np.where(values == NONE, NONE, values + further_copies * number)
    wrong_names = [name for name, column in latest.items() if (column >= ends[name]).any()]
    wrong_names += ["micro_batch"] * has_negative_numbers
    if wrong_names:
        raise FileError(f"blocks whose copies point outside the run: {', '.join(wrong_names)}")
    _check_counts(info, columns, repeats)


def check_apart(start: Column, repeats: Sequence[Repeat]) -> None:
    """Refuse blocks whose copies overlap each other or later rows; raises FileError.

    Args:
        start: begin of every row, in cycles, rising.
        repeats: blocks of rows, outer before inner.
    """
    last_copies = start.copy()
    for repeat in reversed(repeats):  # inner blocks first, to know the last row of an outer copy
        rows, cycles_to_last_copy = slice(repeat.first, repeat.last), (repeat.times - 1) * repeat.cycles
        last = int(last_copies[rows].max())
        if int(start[repeat.first]) + repeat.cycles < last:
            raise FileError(f"copies of the block of rows {repeat.first} to {repeat.last} that overlap")
        if repeat.last < len(start) and int(start[repeat.last]) < last + cycles_to_last_copy:
            raise FileError(f"a block from row {repeat.first} on that does not end before row {repeat.last}")
        last_copies[rows] += cycles_to_last_copy


def _check_counts(info: TimelineInfo, columns: dict[str, Column], repeats: Sequence[Repeat]) -> None:
    """Refuse rows after a block that have a number of one of the block's copies; raises FileError.

    The run with one copy of every block must be valid: no more executions than rows.
    """
    added = Blocks(repeats, len(columns["start"])).added_by_copies(columns)
    for name, added_numbers in zip(("start", "micro_batch", "time_step", "execution"), added, strict=True):
        if ((columns[name] != NONE) & (columns[name] < added_numbers)).any():
            raise FileError(f"rows after a block with {name} inside the block")
    _, micro_batches, time_steps, executions = (int(added_numbers.max()) for added_numbers in added)
    own_counts = (info.count - micro_batches, info.time_steps - time_steps, info.executions - executions)
    if min(own_counts) < 1 or own_counts[-1] > len(columns["start"]):
        raise FileError(f"{len(columns['start'])} rows of {own_counts[-1]} executions of {own_counts[0]} micro-batches")


def _read_columns(arrays: dict[str, npt.NDArray[Any]]) -> Column:
    """Return the columns as a table. Raises FileError unless they are whole numbers of equal length."""
    shape = arrays["start"].shape
    for name in Span._fields:
        if arrays[name].dtype != np.int64 or arrays[name].shape != shape or len(shape) != 1:
            raise FileError(f"column {name} is {arrays[name].dtype} of {arrays[name].shape}, start has {shape}")
    return np.stack([arrays[name] for name in Span._fields]).T


def _read_info(text: npt.NDArray[Any]) -> TimelineInfo:
    """Return the TimelineInfo of a JSON text. Raises FileError for wrong keys and impossible runs."""
    if text.nbytes > _MOST_INFO_BYTES:
        raise FileError(f"info of {format_bytes(text.nbytes)}, expected at most {format_bytes(_MOST_INFO_BYTES)}")
    try:
        data = json.loads(text.tobytes())
    except (ValueError, RecursionError) as error:
        raise FileError(f"info is not JSON: {error}") from error
    base_keys = {field.name for field in fields(TimelineInfo) if field.default is MISSING}
    types = get_type_hints(TimelineInfo)
    if not isinstance(data, dict) or not base_keys <= data.keys() <= types.keys():
        raise FileError(f"info has not the keys {', '.join(types)}")
    for name, value in data.items():
        if not _TYPE_CHECKS[types[name]](value):
            raise FileError(f"info has {name} {str(value)[:_MOST_SHOWN_CHARACTERS]}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    values["sync"] = Sync(values.get("sync", Sync.LOCK_STEP))
    info = TimelineInfo(**values)
    if not (
        info.ipus
        and info.stages
        and len(info.ipus) % info.replicas == 0
        and len(info.mapping) == len(info.position_of) == len(info.stages) > max(info.position_of)
        and max(info.mapping) < info.shards
        and len(info.layers) in (0, len(info.stages))
        and sorted(info.ipus_at_end) in ([], sorted(info.ipus))
    ):
        raise FileError("info of IPUs, stages, mapping and replicas that do not go together")
    return info


def read_repeats(array: npt.NDArray[Any], rows: int) -> tuple[Repeat, ...]:
    """Return the blocks of a file's array, for a Timeline of ``rows`` rows.

    Raises FileError for blocks that overlap without nesting, are out of order, or exceed the run.
    """
    if array.dtype != np.int64 or array.ndim != 2 or array.shape[1] != len(Repeat._fields):
        raise FileError(f"blocks of {array.dtype} and shape {array.shape}")
    if not 0 < len(array) <= _MOST_BLOCKS:
        raise FileError(f"{len(array)} blocks, expected 1 to {_MOST_BLOCKS}")
    blocks = tuple(Repeat(*row) for row in array.tolist())
    enclosing: list[Repeat] = []
    total, largest_sum = rows, 0
    for repeat in blocks:
        if not (0 <= repeat.first < repeat.last <= rows and repeat.times > 1 and min(_sizes(repeat)) >= 0):
            raise FileError(f"a block of rows {repeat.first} to {repeat.last}, {repeat.times} times")
        while enclosing and enclosing[-1].last <= repeat.first:
            enclosing.pop()
        if enclosing and (repeat.last > enclosing[-1].last or repeat[:2] == enclosing[-1][:2]):
            raise FileError(f"blocks that overlap in row {repeat.first}")
        enclosing.append(repeat)
        total += repeat.times * (repeat.last - repeat.first) * math.prod(outer.times for outer in enclosing[:-1])
        largest_sum += math.prod(outer.times for outer in enclosing) * max(_sizes(repeat))
        if max(total, largest_sum) > _LATEST_CYCLE:
            raise FileError(f"a block of {repeat.times} copies")
    if list(blocks) != sorted(blocks, key=lambda repeat: (repeat.first, -repeat.last)):
        raise FileError("blocks out of order")
    return blocks


def _sizes(repeat: Repeat) -> tuple[int, ...]:
    """Return the cycles, micro-batches, time-steps and executions of a block's copy."""
    return repeat.cycles, repeat.length, repeat.time_steps, repeat.executions


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_COUNT


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= _MOST_ENTRIES


#: Check of a JSON value per type of field.
_TYPE_CHECKS: Final[dict[Any, Callable[[Any], bool]]] = {
    int: lambda value: _is_count(value) and value > 0,
    str: _is_text,
    bool: lambda value: isinstance(value, bool),
    Sync: lambda value: value in [*Sync],
    tuple[int, ...]: lambda value: (
        isinstance(value, list) and len(value) <= _MOST_ENTRIES and all(map(_is_count, value))
    ),
    tuple[str, ...]: lambda value: (
        isinstance(value, list) and len(value) <= _MOST_ENTRIES and all(map(_is_text, value))
    ),
}
