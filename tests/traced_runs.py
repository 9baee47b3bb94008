"""Runs as traces of a profiler: spans of passes and updates with the names that torch gives them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.replay.replay import Replay, replay
from ipusim.timeline.kinds import PASSES, SpanKind
from ipusim.timeline.timeline import Timeline

#: Rank, name, begin and length in microseconds.
Event = tuple[int, str, float, float]


def events_of(timeline: Timeline) -> Iterable[Event]:
    """Yield the passes and updates of a run."""
    us = 1_000_000 / timeline.info.clock_hz
    for span in timeline.expanded():
        kind = SpanKind(span.kind)
        if kind in PASSES:
            assert kind.row.of_pass is not None
            name = f"PP:{span.stage}{kind.row.of_pass.letter}{span.micro_batch}"
        elif kind == SpanKind.WEIGHT_UPDATE:
            name = "Optimizer.step#SGD.step"
        else:
            continue
        yield span.ipu, name, span.start * us, (span.end - span.start) * us


def write_trace(path: Path, events: Iterable[Event]) -> Path:
    """Write a trace in Chrome's format, in which each rank is a process that says its rank."""
    listed = [*events]
    data: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in sorted({rank for rank, *_ in listed})
    ]
    data += [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": name,
            "pid": rank,
            "tid": 0,
            "ts": round(at, 6),
            "dur": round(us, 6),
        }
        for rank, name, at, us in listed
    ]
    path.write_text(json.dumps({"traceEvents": data}))
    return path


def replayed(events: Iterable[Event]) -> Replay:
    """Return a measured step of a trace of such events beside its simulation."""
    with tempfile.TemporaryDirectory() as folder:
        return replayed_files([write_trace(Path(folder, "trace.json"), events)])


def replayed_files(files: list[Path]) -> Replay:
    """Return a measured step of traces beside its simulation."""
    with tempfile.TemporaryDirectory() as folder:
        return replay(stages_of(read_measured(files)), Path(folder), files)
