"""Summaries of NVTX ranges by ``nsys stats --report nvtx_sum --format csv``: a median per name."""

from __future__ import annotations

import csv
import re
from fractions import Fraction
from typing import Final

from ipusim.app.profiles.names import MEGATRON, TORCH, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Options, Recording, Span
from ipusim.base.errors import FileError

#: Beginning of the header line.
STARTS: Final = re.compile(rb'"?Time \(%\)"?,')
_COLUMNS: Final = ("Instances", "Med (ns)", "Range")
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


def read(source: Source, options: Options) -> Recording:
    """Return the medians of a summary, as one span per instance.

    Raises FileError for another table.
    """
    names, path = Names(options.names, (*TORCH, *MEGATRON)), source.path
    recording = Recording(path, "Nsight Systems")
    rows = csv.DictReader(line for _, line in source.lines())
    if absent := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
        raise FileError(
            f"{path}:1: expected columns {', '.join(_COLUMNS)} of nsys's nvtx_sum, got none named {absent[0]}"
        )
    for row in rows:
        name, place = (row["Range"] or "").removeprefix(":"), f"{path}:{rows.line_num}"
        meaning = names[name]
        if meaning is None:
            recording.pass_by(name)
            continue
        if meaning.is_part:
            raise FileError(
                f"{place}: expected passes in one range each, as a summary has no order, got a part: {name}"
            )
        median, number = row["Med (ns)"] or "", row["Instances"] or ""
        if not _NUMBER.fullmatch(median) or not re.fullmatch(r"\d{1,6}", number):
            raise FileError(
                f"{place}: expected a median in nanoseconds and a number of instances, got {median!r}, {number!r}"
            )
        for _ in range(int(number)):
            recording.add(Span.from_meaning(meaning, meaning.micro_batch, "", None, Fraction(median) / 1000), name)
    names.refuse_unused(path, recording.names)
    recording.notes.append(f"{path}: a summary has only medians; minimum and maximum are not known.")
    return recording
