"""Compute the layers of an IPU's memory over time and at its peak; no drawing.

A layer is a band of the memory chart: the bytes of a holder (a use of memory, such as weights), or of its unused part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.api import analysis, pipelines
from ipusim.app.render.arrays import Floats, Integers
from ipusim.app.render.window import Window
from ipusim.base.looks import Look

#: Holders from the bottom up.
HOLDERS: Final = sorted(pipelines.Holder, key=lambda holder: holder.layer)


@dataclass(frozen=True)
class IpuLayers:
    """Layers of an IPU in a window.

    Attributes:
        ipu: logical IPU.
        edges: cycles, one more than heights; height i holds from edge i to the next.
        heights: bytes of each layer, from the bottom up, shape (steps,).
        peak: bytes of each layer at the IPU's peak.
        peak_cycle: cycle of the peak.
    """

    ipu: int
    edges: Floats
    heights: dict[Look, Integers]
    peak: dict[Look, int]
    peak_cycle: int

    @property
    def peak_bytes(self) -> int:
        """Bytes of the layers at the peak."""
        return sum(self.peak.values())

    @property
    def shows_peak(self) -> bool:
        """Whether the window contains the peak."""
        return bool(self.edges[0] <= self.peak_cycle < self.edges[-1])


def ipu_layers(
    curve: analysis.MemoryCurve,
    products: analysis.Steps,
    peak: pipelines.Peak,
    peak_cycle: int,
    window: Window,
    most_steps: int,
) -> IpuLayers:
    """Return the layers of ``curve`` in ``window``, as at most ``most_steps`` steps.

    ``products`` gives over time how much of the memory reserved for products is used. If steps must be merged, a merged
    step shows the maxima of live tensors, FIFO contents and products.
    """
    sizes = dict(peak.holders)
    edges, (live, *full) = _steps(curve, products, window, most_steps)
    used_bytes = dict(zip((pipelines.Holder.FIFOS, pipelines.Holder.TEMPORARY), full, strict=True))
    heights = _layers(
        {holder: np.full(len(live), size) for holder, size in sizes.items()} | {pipelines.Holder.LIVE: live}, used_bytes
    )
    used_bytes = {
        pipelines.Holder.FIFOS: np.array(peak.fifo_bytes),
        pipelines.Holder.TEMPORARY: products.level_at(np.array(peak_cycle)),
    }
    at_peak = _layers({holder: np.array(size) for holder, size in sizes.items()}, used_bytes)
    return IpuLayers(curve.ipu, edges, heights, {layer: int(size) for layer, size in at_peak.items()}, peak_cycle)


def _layers(
    sizes: dict[pipelines.Holder, Integers], used_bytes: dict[pipelines.Holder, Integers]
) -> dict[Look, Integers]:
    """Return bytes by layer, from the bytes of holders and the bytes in use of holders that are not always full."""
    layers = {}
    for holder in HOLDERS:
        if holder.empty is None:
            layers[holder.look] = sizes[holder]
        else:
            full = used_bytes[holder]
            layers |= {holder.look: full, holder.empty: sizes[holder] - full}
    return layers


def _steps(
    curve: analysis.MemoryCurve, products: analysis.Steps, window: Window, most_steps: int
) -> tuple[Floats, list[Integers]]:
    """Return edges, and live bytes, FIFO bytes and used product bytes between them."""
    changes = np.union1d(curve.time, products.time)
    starts = np.union1d([window.start], changes[(changes > window.start) & (changes < window.end)])
    levels = [
        *(analysis.Steps(curve.time, level).level_at(starts) for level in (curve.live_bytes, curve.fifo_bytes)),
        products.level_at(starts),
    ]
    if len(starts) <= most_steps:
        return np.append(starts, window.end).astype(np.float64), levels
    edges = np.linspace(window.start, window.end, most_steps + 1)
    return edges, [most_in_bins(starts, level, edges) for level in levels]


def most_in_bins(time: Integers, level: Integers, edges: Integers | Floats) -> Integers:
    """Return the maximum of a step function between neighbouring ``edges``.

    ``level`` holds from its ``time`` to the next.
    """
    # A bin contains the step in progress at the bin's begin, and later steps up to the end. reduceat also reduces the
    # stretches between bins: [::2] leaves them out. The last bin may end after the last step: hence the appended 0.
    begins = np.searchsorted(time, edges[:-1], side="right") - 1
    ends = np.searchsorted(time, edges[1:], side="left")
    most: Integers = np.maximum.reduceat(np.append(level, 0), np.stack([begins, ends], axis=1).ravel())[::2]
    return most
