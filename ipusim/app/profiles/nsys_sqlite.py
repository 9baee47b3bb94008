"""NVTX ranges in an Nsight Systems report, exported as SQLite.

``nsys export --type sqlite`` writes a table ``NVTX_EVENTS`` with ``start`` and ``end`` in nanoseconds, ``text`` or
``textId`` into ``StringIds``, and ``globalTid`` with the thread in bits 0 to 23 and the process in bits 24 to 47.
Ranges are pushed and popped (event type 59) or begun and ended (60), on the host.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from typing import Final
from urllib.parse import quote

from ipusim.app.profiles.names import MEGATRON, TORCH, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Options, Recording
from ipusim.app.profiles.workers import Lanes
from ipusim.base.errors import FileError

#: Beginning of an SQLite file.
STARTS: Final = b"SQLite format 3\x00"
_RANGES: Final = (
    "SELECT n.start, n.end, COALESCE(n.text, s.value), n.globalTid FROM NVTX_EVENTS n "
    "LEFT JOIN StringIds s ON n.textId = s.id WHERE n.eventType IN (59, 60) AND n.start IS NOT NULL"
)


def read(source: Source, options: Options) -> Recording:
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
