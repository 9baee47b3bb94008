"""Memory over time in one low strip: that of a run's fullest IPU, and that of its emptiest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from ipusim.api import Timeline, analysis
from ipusim.app.render.byte_axis import ABOVE, TICK_IN, byte_ticks, byte_unit, limit_in_sight
from ipusim.app.render.legend import Entry, Sign
from ipusim.app.render.style import DASHES, LINE, TEXT_SIZE
from ipusim.app.render.window import Window
from ipusim.base.looks import Look
from ipusim.base.units import format_bytes

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_THROUGHOUT: Final = Look("memory of the fullest IPU: allocated throughout", "#8da0b3", "#8da0b3")
_LIVE: Final = Look("memory of the fullest IPU: live", "#d7e0e8", "#d7e0e8")


@dataclass(frozen=True, eq=False)
class MemoryStrip:
    """The memory of a run's IPUs over time.

    Attributes:
        ipu: the fullest IPU.
        curves: memory of each IPU with a stage, the fullest first.
        peak_bytes, peak_cycle: the peak of the fullest IPU.
        end_cycle: the end of the run.
        sram_bytes: memory of one IPU; None without a limit.
        top_bytes: the bytes at the top of the strip.
    """

    ipu: int
    curves: tuple[analysis.MemoryCurve, ...]
    peak_bytes: int
    peak_cycle: int
    end_cycle: int
    sram_bytes: int | None
    top_bytes: float

    @property
    def shows_limit(self) -> bool:
        """Whether the memory of an IPU is within the strip."""
        return self.sram_bytes is not None and self.sram_bytes < self.top_bytes

    @property
    def name(self) -> str:
        """The label of the strip."""
        return "memory"

    @property
    def of_which(self) -> str:
        """Which IPU's memory that is, in a second line."""
        return f"of IPU {self.ipu}" if len(self.curves) > 1 else ""


def memory_strip(
    timeline: Timeline, curves: Sequence[analysis.MemoryCurve], fullest: analysis.FullestMemory, peak_cycle: int
) -> MemoryStrip:
    """Return the strip of a run from the ``curves`` of its first replica."""
    limit = limit_in_sight(fullest.sram_bytes, fullest.peak_bytes)
    return MemoryStrip(
        ipu=fullest.ipu,
        curves=tuple(sorted(curves, key=lambda curve: (curve.ipu != fullest.ipu, curve.ipu))),
        peak_bytes=fullest.peak_bytes,
        peak_cycle=peak_cycle,
        end_cycle=timeline.makespan_cycles,
        sram_bytes=fullest.sram_bytes,
        top_bytes=ABOVE * max(fullest.peak_bytes, limit or 0, 1),
    )


def scale_top(strips: Sequence[MemoryStrip]) -> float:
    """Return the bytes at the top of several strips with one scale."""
    return max((strip.top_bytes for strip in strips), default=1.0)


def strip_entries(strips: Sequence[MemoryStrip]) -> list[Entry]:
    """Return the legend of strips: nothing without any."""
    if not strips:
        return []
    entries = [Entry(_THROUGHOUT.name, _THROUGHOUT), Entry(_LIVE.name, _LIVE)]
    if any(len(strip.curves) > 1 for strip in strips):
        entries.append(Entry(Sign.EMPTIEST.value, Sign.EMPTIEST))
    limits = sorted({strip.sram_bytes for strip in strips if strip.sram_bytes and strip.shows_limit})
    if limits:
        entries.append(Entry(f"an IPU's memory, {' or '.join(map(format_bytes, limits))}", Sign.LIMIT))
    return [*entries, Entry("peak", Sign.PEAK)]


def draw_strip(axes: Axes, strip: MemoryStrip, window: Window, tall_in: float, steps: int) -> None:
    """Draw a strip over ``window`` in at most ``steps`` steps, each as high as the maximum in its time."""
    end = min(window.end, strip.end_cycle)
    edges = np.unique(np.linspace(window.start, max(end, window.start + 1), steps + 1).astype(np.int64))
    fullest, *others = strip.curves
    level = most_in_bins(fullest, edges)
    fill: dict[str, Any] = {"step": "post", "linewidth": 0.0, "zorder": 2}
    high, low = np.append(level, level[-1]), np.minimum(fullest.resident_bytes, np.append(level, level[-1]))
    axes.fill_between(edges, 0, low, facecolor=_THROUGHOUT.face, **fill)
    axes.fill_between(edges, low, high, facecolor=_LIVE.face, **fill)
    axes.step(edges, high, where="post", color="#000000", linewidth=0.7, zorder=3)
    if others:
        least = np.min([most_in_bins(curve, edges) for curve in others], axis=0)
        axes.step(
            edges, np.append(least, least[-1]), where="post", color="#000000", linewidth=0.7, linestyle=":", zorder=3
        )
    if window.start <= strip.peak_cycle < window.end:
        axes.plot([strip.peak_cycle], [strip.peak_bytes], "v", color="#000000", markersize=3.5, clip_on=False, zorder=5)
    if strip.sram_bytes is not None and strip.shows_limit:
        how: dict[str, Any] = {"color": "#000000", "linewidth": 1.0, "linestyle": DASHES, "zorder": 4}
        axes.plot([window.start, window.end], [strip.sram_bytes] * 2, **how)
    axes.set_xlim(window.start, window.end)
    axes.set_ylim(0, strip.top_bytes)
    unit, name = byte_unit(strip.top_bytes)
    ticks = [0.0, *byte_ticks(strip.top_bytes, tall_in / TICK_IN)]
    axes.set_yticks(ticks, [f"{tick / unit:.6g}{f' {name}' if tick else ''}" for tick in ticks])
    axes.tick_params(axis="y", labelsize=TEXT_SIZE, color=LINE, length=3, pad=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)


def most_in_bins(curve: analysis.MemoryCurve, edges: Integers) -> Integers:
    """Return the maximum of an IPU's memory between each two neighbouring ``edges``, in bytes."""
    level = curve.allocated_bytes
    # A bin holds the step that goes on when it begins, and those that begin in it. Every other of reduceat's
    # stretches is a bin; the last may end behind the last step, where a further one has to be.
    begins = np.searchsorted(curve.time, edges[:-1], side="right") - 1
    ends = np.searchsorted(curve.time, edges[1:], side="left")
    stretches = np.stack([begins, np.maximum(ends, begins + 1)], axis=1).ravel()
    most: Integers = np.maximum.reduceat(np.append(level, 0), stretches)[::2]
    return most
