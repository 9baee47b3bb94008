"""Collect the data of a run for the scripts of a page: trace, memory, bars and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from ipusim.api import Span, SpanKind, Timeline, analysis, pipelines, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.memory_layers import HOLDERS
from ipusim.app.render.page.columns import pack
from ipusim.app.render.page.fills import LANES, page_looks
from ipusim.app.render.page.sort_keys import sort_key
from ipusim.app.render.tables import Table
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.render.trace_tracks import physical_ipus
from ipusim.base.looks import Look

#: Tracks of spans that pictures leave out, from the top down.
_OFF_IPU_TRACKS: Final = (timelines.Track.SEND, timelines.Track.LINK, timelines.Track.HOST)
_MICROSECONDS: Final = re.compile(r"(?<=\d) us\b")


def tables_of_looks() -> dict[str, Any]:
    """Return data shared by all runs of a page: span kinds, memory holders and colours."""
    return {
        "looks": page_looks(_span_looks()),
        "kinds": [_kind(kind) for kind in sorted(SpanKind)],
        "holders": page_looks(pipelines.LAYERS),
        "lanes": LANES._asdict(),
    }


def trace_data(
    timeline: Timeline, path: Integers, curves: Sequence[analysis.MemoryCurve]
) -> tuple[dict[str, Any], str]:
    """Return the JSON data and packed columns from which scripts draw a run's trace and memory.

    Args:
        timeline: spans that the page shows.
        path: rows of the critical path, in order of time.
        curves: memory of every IPU over time; empty if unknown.
    """
    info, trace = timeline.info, TraceContent(timeline)
    slices, texts = _slices(trace)
    used_tracks, slices["slice.track"] = np.unique(slices["slice.track"], return_inverse=True)
    columns, content = _pack_run(timeline, path, curves, slices)
    data = {
        "clock_hz": info.clock_hz,
        "cycles": timeline.makespan_cycles,
        "count": info.count,
        "segments": info.segments,
        "executions": info.executions,
        "replicas": info.replicas,
        "stages": _stages(info),
        "links": list(info.links),
        "physical": list(physical_ipus(timeline)),
        "phases": [asdict(phase) for phase in analysis.phases_of(timeline)],
        "tracks": [_track(trace, number) for number in used_tracks.tolist()],
        "texts": texts,
        "columns": columns,
    }
    return data, content


def _stages(info: timelines.TimelineInfo) -> list[str]:
    """Return the names of stages with their layers."""
    pairs = zip(info.stages, info.layers_of, strict=True)
    return [f"{name} ({layers})" if layers else name for name, layers in pairs]


def table_data(table: Table) -> dict[str, Any]:
    """Return a table whose cells have sort keys; tables without headers keep their order."""
    rows = [[{"text": micro(cell), "sort": sort_key(cell)} for cell in row] for row in table.rows]
    return {"title": micro(table.title), "header": list(table.header), "rows": rows, "sorts": any(table.header)}


def micro(text: str) -> str:
    """Replace ``us``, written for terminals, by ``µs``."""
    return _MICROSECONDS.sub(" µs", text)


def _span_looks() -> tuple[Look, ...]:
    """Return all looks of spans; links, host and sends share their category's first look."""
    off_ipu = []
    for track in _OFF_IPU_TRACKS:
        category = next(kind.row.category for kind in SpanKind if kind.row.look is None and kind.row.track is track)
        like = next(kind.row.look for kind in sorted(SpanKind) if kind.row.look and kind.row.category == category)
        off_ipu.append(Look(track.value, like.face, like.ink, like.hatch, like.number))
    return (*timelines.LOOKS, *off_ipu)


def _kind(kind: SpanKind) -> dict[str, Any]:
    row = kind.row
    look = (
        timelines.LOOKS.index(row.look)
        if row.look is not None
        else len(timelines.LOOKS) + _OFF_IPU_TRACKS.index(row.track)
    )
    return {
        "name": kind.name.lower().replace("_", " "),
        "doc": row.doc,
        "look": look,
        "track": row.track.value,
        "pass": row.is_pass,
        "numbered": row.names_micro_batch,
        "letter": "" if row.of_pass is None else row.of_pass.letter,
    }


def _slices(content: TraceContent) -> tuple[dict[str, Integers], list[str]]:
    """Return the slices on tracks as columns, and their distinct texts.

    The columns name, sends and receives hold indices into the texts. The first text is empty.
    """
    texts: dict[str, int] = {"": 0}
    lists: dict[str, list[Any]] = {"row": [], "track": [], "name": [], "sends": [], "receives": []}
    for slices in content.slices():
        lists["row"].append(slices.row)
        lists["track"].append(slices.track)
        for name in ("name", "sends", "receives"):
            lists[name].append([texts.setdefault(text, len(texts)) for text in getattr(slices, name)])
    columns = {
        f"slice.{name}": np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
        for name, parts in lists.items()
    }
    return columns, list(texts)


def _pack_run(
    timeline: Timeline, path: Integers, curves: Sequence[analysis.MemoryCurve], slices: Mapping[str, Integers]
) -> tuple[list[dict[str, Any]], str]:
    columns: dict[str, Integers] = {name: getattr(timeline, name) for name in Span._fields if name != "end"}
    columns["cycles"] = timeline.end - timeline.start
    if not timeline.info.has_time_steps:
        columns["time_step"] = np.full(len(timeline), timelines.NONE)
    columns |= slices
    columns["path"] = path
    if curves:
        columns["memory.entries"] = np.array([len(curve.time) for curve in curves])
        columns["memory.time"] = np.concatenate([curve.time for curve in curves])
        columns["memory.live"] = np.concatenate([curve.live_bytes for curve in curves])
        columns["memory.fifo"] = np.concatenate([curve.fifo_bytes for curve in curves])
    return pack(columns, differences=("start", "slice.row", "path", "memory.time"))


def _track(content: TraceContent, number: int) -> dict[str, Any]:
    """Return a track; IPUs show at first, links and the host on request."""
    tracks = content.tracks
    of_ipu = number in tracks.ipu
    off_ipu = not of_ipu and tracks.group_of(number) == 0
    name = tracks.path(number)
    label, _, detail = name.partition(", ") if of_ipu else (tracks.entries[number].name, "", "")
    if of_ipu and label.startswith("replica"):
        replica, (label, _, detail) = label, detail.partition(", ")
        detail = f"{replica}, {detail}"
    return {"name": name, "label": label, "detail": detail, "main": of_ipu or off_ipu, "beside": off_ipu}


def memory_row(
    curve: analysis.MemoryCurve, holders: Mapping[pipelines.Holder, int], info: timelines.TimelineInfo
) -> dict[str, Any]:
    """Return the layers of an IPU's memory, from its bytes by holder."""
    layers = []
    for holder in HOLDERS:
        look, size = pipelines.LAYERS.index(holder.look), holders.get(holder, 0)
        if holder is pipelines.Holder.LIVE:
            layers.append({"look": look, "holds": "live", "bytes": 0})
        elif holder is pipelines.Holder.FIFOS and size:
            layers.append({"look": look, "holds": "held", "bytes": size})
            layers.append({"look": pipelines.LAYERS.index(holder.empty), "holds": "empty", "bytes": size})
        elif size:  # the full room of a holder that is not always full
            look = pipelines.LAYERS.index(holder.empty or holder.look)
            layers.append({"look": look, "holds": "constant", "bytes": size})
    replica = f"replica {curve.ipu // info.shards}" if info.replicas > 1 else ""
    peak = int(curve.allocated_bytes.max())
    return {"label": f"IPU {curve.ipu}", "replica": replica, "peak_bytes": peak, "layers": layers}


def bars_data(
    title: str, parts: Sequence[Look], rows: Mapping[str, Sequence[int]], total: int, clock_hz: int
) -> dict[str, Any]:
    """Return a stacked bar for every row.

    Args:
        title: headline of the bars.
        parts: looks of the parts, in order.
        rows: cycles of the parts, by name of the row.
        total: cycles at a bar's full length.
        clock_hz: cycles per second.
    """
    rows_data = [{"label": label, "parts": list(cycles)} for label, cycles in rows.items()]
    return {"title": title, "looks": page_looks(parts), "rows": rows_data, "total": total, "unit_s": 1 / clock_hz}
