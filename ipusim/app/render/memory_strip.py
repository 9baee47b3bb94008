"""Draw a low strip with the memory over time of the fullest and the emptiest IPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from ipusim.api import Timeline, analysis
from ipusim.app.render.byte_axis import HEADROOM, TICK_IN, byte_ticks, label_bytes, limit_in_sight
from ipusim.app.render.legend import Entry, Sign
from ipusim.app.render.memory_layers import most_in_bins
from ipusim.app.render.style import DASHES, LINE
from ipusim.app.render.window import Window
from ipusim.base.looks import Look
from ipusim.base.units import format_bytes

#: Label of a strip.
STRIP_NAME: Final = "memory"
#: Look of memory that the fullest IPU allocates for the whole run.
_THROUGHOUT: Final = Look("memory of the fullest IPU: allocated throughout", "#8da0b3", "#8da0b3")
#: Look of its live tensors.
_LIVE: Final = Look("memory of the fullest IPU: live", "#d7e0e8", "#d7e0e8")


@dataclass(frozen=True, eq=False)
class MemoryStrip:
    """Memory of a run's IPUs over time.

    Attributes:
        fullest: peak of the fullest IPU, and memory size of an IPU.
        curves: memory of each IPU with a stage, fullest first.
        peak_cycle: cycle of the fullest IPU's peak.
        end_cycle: end of the run, or of the execution that a picture shows, at which the strip ends.
        top_bytes: upper bound of the strip's axis in bytes.
    """

    fullest: analysis.FullestMemory
    curves: tuple[analysis.MemoryCurve, ...]
    peak_cycle: int
    end_cycle: int
    top_bytes: float

    @property
    def shown_limit(self) -> int | None:
        """Memory size of an IPU in bytes; None if unlimited or above the strip."""
        limit = self.fullest.sram_bytes
        return limit if limit is not None and limit < self.top_bytes else None

    def shows_peak(self, window: Window) -> bool:
        """Return whether the window contains the fullest IPU's memory peak."""
        return window.start <= self.peak_cycle < min(window.end, self.end_cycle)

    @property
    def ipu_text(self) -> str:
        """Second line of the label: the fullest IPU."""
        return f"of IPU {self.fullest.ipu}" if len(self.curves) > 1 else ""


def memory_strip(
    timeline: Timeline, curves: Sequence[analysis.MemoryCurve], fullest: analysis.FullestMemory, peak_cycle: int
) -> MemoryStrip:
    """Return the strip of a run from the ``curves`` of its first replica."""
    limit = limit_in_sight(fullest.sram_bytes, fullest.peak_bytes)
    return MemoryStrip(
        fullest=fullest,
        curves=tuple(sorted(curves, key=lambda curve: (curve.ipu != fullest.ipu, curve.ipu))),
        peak_cycle=peak_cycle,
        end_cycle=timeline.makespan_cycles,
        top_bytes=HEADROOM * max(fullest.peak_bytes, limit or 0, 1),
    )


def strip_entries(strips: Sequence[MemoryStrip], shows_peak: bool) -> list[Entry]:
    """Return the legend of strips, with the peak's entry if ``shows_peak``."""
    if not strips:
        return []
    entries = [Entry(_THROUGHOUT.name, _THROUGHOUT), Entry(_LIVE.name, _LIVE)]
    if any(len(strip.curves) > 1 for strip in strips):
        entries.append(Entry(Sign.EMPTIEST.value, Sign.EMPTIEST))
    limits = sorted({strip.shown_limit for strip in strips if strip.shown_limit})
    if limits:
        entries.append(Entry(f"an IPU's memory, {' or '.join(map(format_bytes, limits))}", Sign.LIMIT))
    return [*entries, Entry("peak", Sign.PEAK)] if shows_peak else entries


def draw_strip(axes: Axes, strip: MemoryStrip, window: Window, tall_in: float, steps: int) -> None:
    """Draw a strip in at most ``steps`` steps; a step shows the maximum of its time."""
    end = min(window.end, strip.end_cycle)
    edges = np.unique(np.linspace(window.start, max(end, window.start + 1), steps + 1).astype(np.int64))
    fullest, *more_curves = strip.curves
    level = most_in_bins(fullest.time, fullest.allocated_bytes, edges)
    fill: dict[str, Any] = {"step": "post", "linewidth": 0.0, "zorder": 2}
    high, low = np.append(level, level[-1]), np.minimum(fullest.resident_bytes, np.append(level, level[-1]))
    axes.fill_between(edges, 0, low, facecolor=_THROUGHOUT.face, **fill)
    axes.fill_between(edges, low, high, facecolor=_LIVE.face, **fill)
    axes.step(edges, high, where="post", color="#000000", linewidth=0.7, zorder=3)
    if more_curves:
        least = np.min([most_in_bins(curve.time, curve.allocated_bytes, edges) for curve in more_curves], axis=0)
        axes.step(
            edges, np.append(least, least[-1]), where="post", color="#000000", linewidth=0.7, linestyle=":", zorder=3
        )
    if strip.shows_peak(window):
        mark: dict[str, Any] = {"color": "#000000", "markersize": 3.5, "clip_on": False, "zorder": 5}
        axes.plot([strip.peak_cycle], [strip.fullest.peak_bytes], "v", **mark)
    if strip.shown_limit is not None:
        style: dict[str, Any] = {"color": "#000000", "linewidth": 1.0, "linestyle": DASHES, "zorder": 4}
        axes.plot([window.start, window.end], [strip.shown_limit] * 2, **style)
    axes.set_ylim(0, strip.top_bytes)
    label_bytes(axes, {0.0: "0", **byte_ticks(strip.top_bytes, tall_in / TICK_IN)})
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
