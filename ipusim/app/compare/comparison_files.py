"""A comparison as files: its numbers, and one figure with traces and memory under each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ipusim.api import Timeline, analysis, timelines
from ipusim.app.compare.compare import Row
from ipusim.app.compare.comparison import Comparison
from ipusim.app.render.comparison import Compared, common_title, comparison
from ipusim.app.render.figures import Chart, to_png, to_svg
from ipusim.app.render.memory_strip import MemoryStrip, memory_strip
from ipusim.app.run_folder.report import json_bytes
from ipusim.base.units import format_bytes

#: Every file that a comparison may write.
COMPARISON_FILES: Final = ("comparison.json", "comparison.png", "comparison.svg")
#: Runs that one figure shows: the fastest of them, and the first, which they are measured by.
_MOST_RUNS: Final = 8


def comparison_chart(found: Comparison) -> Chart:
    """Return the traces of a comparison under each other, each with its memory over time as far as that is known."""
    shown = found.ran
    title = common_title([row.timeline for row in shown if row.timeline is not None]) or found.title
    if len(shown) > _MOST_RUNS:
        chosen = {found.first, *found.ranked(found.ran[1:])[: _MOST_RUNS - 1]}
        shown = tuple(row for row in found.ran if row in chosen)
        title = f"{title} (the first and the {_MOST_RUNS - 1} fastest other of {len(found.ran)} runs)"
    known = any(row.memory is not None for row in shown)
    return comparison([_compared(found, row, known) for row in shown], title=title)


def comparison_files(found: Comparison) -> dict[str, bytes]:
    """Return the files of a comparison, by name."""
    figure = comparison_chart(found)
    return {
        "comparison.json": json_bytes(comparison_data(found)),
        "comparison.png": to_png(figure),
        "comparison.svg": to_svg(figure),
    }


def comparison_data(found: Comparison) -> list[dict[str, Any]]:
    """Return a mapping for each row, refused ones too, as ``comparison.json`` has them."""
    return [
        {
            "name": label,
            "source": row.source,
            "schedule": row.schedule,
            "sync": row.sync,
            "selection_order": row.order,
            "refusal": row.refusal or None,
            "fits": row.fits,
            "best": row is found.best,
            "on_front": row in found.front,
            "decides": "time" if found.of_time else "throughput",
            "difference": None if row.times is None else found.difference(row, found.first),
            "figures": row_figures(row),
            "mean_loss": row.last_loss,
            "summary": row.times.times_dict() if row.times else None,
            "memory": analysis.as_plain(row.memory),
        }
        for row, label in zip(found.rows, found.labels, strict=True)
    ]


def row_figures(row: Row) -> dict[str, Any]:
    """Return the figures of a row by their names in the table; those that it does not have are left out."""
    if row.times is None:
        return {}
    memory = {"fits": row.memory.fits, "ipus": [{"peak_bytes": row.memory.peak_bytes}]} if row.memory else None
    losses = {"mean_loss_by_step": [row.last_loss]} if row.last_loss is not None else None
    return analysis.known_figures({**row.times.times_dict(), "memory": memory, "learning": losses})


def _compared(found: Comparison, row: Row, known: bool) -> Compared:
    assert row.timeline is not None, "of a row that ran"
    excess = row.memory.excess_bytes if row.memory else 0
    remarks = [f"out of memory by {format_bytes(excess)}"] if excess else []
    strip = _strip(row)
    if known and strip is None:
        kept = row.timeline.spans_in_all <= timelines.MOST_SPANS
        missing = "memory over time is not in its folder" if kept else "memory over time is not drawn"
        remarks.append(missing if row.memory else "memory is not known")
    return Compared(row.timeline, found.titles[found.rows.index(row)], "; ".join(remarks), strip)


def _strip(row: Row) -> MemoryStrip | None:
    """Return the memory over time of a row that ran; None where that is not known."""
    if row.timeline is None or row.memory is None:
        return None
    if row.result is not None:
        held, at = row.result.memory, analysis.moment(row.timeline, row.result.memory.fullest)
        return _strip_of(row.timeline, analysis.memory_curves(row.timeline, held.footprint), row.memory, at)
    shards = row.timeline.info.shards
    curves = [curve for curve in row.stored.curves if curve.ipu < shards] if row.stored else []
    return _strip_of(row.timeline, curves, row.memory, row.stored.peak_cycle) if row.stored and curves else None


def _strip_of(
    timeline: Timeline, curves: Sequence[analysis.MemoryCurve], fullest: analysis.FullestMemory, cycle: int
) -> MemoryStrip | None:
    """Return the strip of a run; None of one of which a picture leaves periods out."""
    if max(timeline.spans_in_all, *(curve.entries_in_all // 2 for curve in curves)) > timelines.MOST_SPANS:
        return None
    return memory_strip(timeline, [curve.expanded() for curve in curves], fullest, cycle)
