"""NVTX ranges in a report that Nsight Systems has exported as SQLite.

``nsys export --type sqlite`` writes a table ``NVTX_EVENTS`` with ``start`` and ``end`` in nanoseconds, ``text`` or
``textId`` into ``StringIds``, and ``globalTid``, whose bits from 24 to 47 are the process and below them the thread.
Ranges are pushed and popped (event type 59) or begun and ended (60), on the host.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from fractions import Fraction
from typing import Final
from urllib.parse import quote

from ipusim.app.profiles.names import MEGATRON, TORCH, Names
from ipusim.app.profiles.nesting import outermost
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import MOST, Options, Recording, Span
from ipusim.app.profiles.workers import by_worker
from ipusim.base.errors import FileError

#: How a file of SQLite begins.
STARTS: Final = b"SQLite format 3\x00"
_RANGES: Final = (
    "SELECT n.start, n.end, COALESCE(n.text, s.value), n.globalTid FROM NVTX_EVENTS n "
    "LEFT JOIN StringIds s ON n.textId = s.id WHERE n.eventType IN (59, 60) AND n.start IS NOT NULL"
)


def read(source: Source, options: Options) -> Recording:
    """Return the passes among the NVTX ranges of a report; raises FileError for another or a damaged database."""
    names, path = Names(options.names, (*TORCH, *MEGATRON)), source.path
    found = Recording(path, "Nsight Systems")
    lanes: dict[tuple[str, str, bool], list[Span]] = defaultdict(list)
    extents: dict[str, tuple[int, int]] = {}
    unended = count = 0
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if missing := {"NVTX_EVENTS", "StringIds"} - tables:
                raise FileError(
                    f"{path}: expected a report of nsys with tables NVTX_EVENTS and StringIds, got no "
                    f"{sorted(missing)[0]}"
                )
            for start, end, name, thread in database.execute(_RANGES):
                source.event()
                if not isinstance(name, str) or not isinstance(start, int) or not isinstance(thread, int):
                    continue
                called = names[name]
                if not isinstance(end, int) or end < start:
                    unended += called is not None
                    continue
                process = str(thread >> 24 & 0xFFFFFF)
                first, last = extents.get(process, (start, end))
                extents[process] = (min(first, start), max(last, end))
                if called is None:
                    found.pass_by(name, (end - start) / 1000)
                    continue
                count += 1
                if count > MOST:
                    raise FileError(f"{path}: expected at most {MOST:,} passes, got more: profile fewer steps")
                lane = (process, str(thread & 0xFFFFFF), False)
                span = Span(
                    called.what,
                    called.stage,
                    called.micro_batch,
                    *lane[:2],
                    Fraction(start, 1000),
                    Fraction(end - start, 1000),
                )
                span.kind, span.is_part = called.kind, called.is_part
                lanes[lane].append(span)
    except sqlite3.Error as error:
        raise FileError(f"{path}: expected a report that nsys has exported as SQLite: {error}") from None
    told: Counter[str] = Counter()
    try:
        kept = {lane: [*outermost(spans, told)] for lane, spans in lanes.items()}
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    spans, notes = by_worker(kept, found)
    for span in spans:
        found.add(span, span.what)
    if unused := names.unused(found.names):
        raise FileError(f"{path}: {unused}")
    found.notes += [*notes, *(f"{path}: {number:,} {text}." for text, number in told.items())]
    found.notes.append(f"{path}: ranges of NVTX are times of the host.")
    if unended:
        found.notes.append(f"{path}: {unended:,} ranges without an end are left out.")
    found.extents = {process: Fraction(last - first, 1000) for process, (first, last) in extents.items()}
    return found
