"""Read passes from NVTX ranges of Nsight Systems: a report exported as SQLite, or a summary in CSV.

``nsys export --type sqlite`` writes a table ``NVTX_EVENTS`` with ``start`` and ``end`` in nanoseconds, ``text`` or
``textId`` into ``StringIds``, and ``globalTid`` with the thread in bits 0 to 23 and the process in bits 24 to 47.
Ranges are pushed and popped (event type 59) or begun and ended (60), on the host.
``nsys stats --report nvtx_sum --format csv`` writes a median per name.
"""

from __future__ import annotations

import csv
import re
import sqlite3
from contextlib import closing
from fractions import Fraction
from typing import Final
from urllib.parse import quote

from ipusim.app.profiles.names import MEGATRON, TORCH, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Options, Recording, Span
from ipusim.app.profiles.workers import Lanes
from ipusim.base.errors import FileError

#: Beginning of an SQLite file.
REPORT: Final = re.compile(rb"SQLite format 3\x00")
#: Beginning of a summary: its header line.
SUMMARY: Final = re.compile(rb'"?Time \(%\)"?,')
_RANGES: Final = (
    "SELECT n.start, n.end, COALESCE(n.text, s.value), n.globalTid FROM NVTX_EVENTS n "
    "LEFT JOIN StringIds s ON n.textId = s.id WHERE n.eventType IN (59, 60) AND n.start IS NOT NULL"
)
_COLUMNS: Final = ("Instances", "Med (ns)", "Range")
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


def read_report(source: Source, options: Options) -> Recording:
    """Return the passes in the NVTX ranges of a report; raises FileError for other and damaged databases."""
    path = source.path
    recording = Recording(path, "Nsight Systems")
    lanes = Lanes(recording, Names(options.names, (*TORCH, *MEGATRON)))
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if missing_tables := {"NVTX_EVENTS", "StringIds"} - tables:
                raise FileError(
                    f"{path}: expected a report of nsys with tables NVTX_EVENTS and StringIds, got no "
                    f"{sorted(missing_tables)[0]}"
                )
            for start, end, name, thread in database.execute(_RANGES):
                source.event()
                if not isinstance(name, str) or not isinstance(start, int) or not isinstance(thread, int):
                    continue
                if isinstance(end, int) and end >= start:
                    lane = (str(thread >> 24 & 0xFFFFFF), str(thread & 0xFFFFFF), False)
                    lanes.add(name, lane, Fraction(start, 1000), Fraction(end - start, 1000))
                else:
                    lanes.leave_out("without an end")
    except sqlite3.Error as error:
        raise FileError(f"{path}: expected a report exported by nsys as SQLite: {error}") from None
    recording.notes.append(f"{path}: ranges of NVTX are times of the host.")
    return lanes.finish()


def read_summary(source: Source, options: Options) -> Recording:
    """Return the medians of a summary, as one span per instance. Raises FileError for another table."""
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
            recording.note_other_span(name)
            continue
        if meaning.is_part:
            raise FileError(
                f"{place}: expected passes in one range each, because a summary has no order, got a part: {name}"
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
