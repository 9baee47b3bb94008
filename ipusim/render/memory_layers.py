"""The layers of one IPU's memory, as heights over time and at its peak; no drawing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from ipusim.analysis.memory import MemoryCurve
from ipusim.looks import Look
from ipusim.pipeline.footprint import Holder
from ipusim.pipeline.liveness import Peak
from ipusim.render.window import Window

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Layer(Enum):
    """The layers from the bottom up: what never changes first. Hues are as in :mod:`ipusim.render.style`."""

    PARAMETERS = Look("parameters", "#00507d", "#ffffff")
    STATE = Look("optimizer state", "#009e73", "#ffffff", "....")
    ACCUMULATORS = Look("gradient accumulators", "#cc79a7", "#ffffff", "\\\\\\\\")
    CODE = Look("code and vertices", "#e3e3e3", "#777777", "xxxx")
    COPIES = Look("inter-IPU copy buffers", "#8c8c8c", "#000000")
    STREAMS = Look("host stream buffers", "#3d4459", "#ffffff")
    FIFO_HELD = Look("FIFO buffers: held", "#56b4e9", "#000000")
    FIFO_EMPTY = Look("FIFO buffers: empty", "#e3f3fc", "#56b4e9", "////")
    LIVE = Look("live tensors", "#e69f00", "#000000")


_HOLDERS = {
    Layer.PARAMETERS: Holder.PARAMETERS,
    Layer.STATE: Holder.STATE,
    Layer.ACCUMULATORS: Holder.ACCUMULATORS,
    Layer.CODE: Holder.CODE,
    Layer.COPIES: Holder.COPIES,
    Layer.STREAMS: Holder.STREAMS,
}


@dataclass(frozen=True)
class IpuLayers:
    """One IPU's layers in a window.

    Attributes:
        ipu: logical IPU.
        edges: cycles, one more than there are heights; height i holds from edge i to the next.
        heights: bytes of each layer, shape (steps,).
        peak: bytes of each layer at the IPU's peak.
        peak_cycle: the cycle in which it is reached.
    """

    ipu: int
    edges: Floats
    heights: dict[Layer, Integers]
    peak: dict[Layer, int]
    peak_cycle: int

    @property
    def peak_bytes(self) -> int:
        """Bytes of all layers at the peak."""
        return sum(self.peak.values())

    @property
    def shows_peak(self) -> bool:
        """Whether the peak lies in the window."""
        return bool(self.edges[0] <= self.peak_cycle < self.edges[-1])


def ipu_layers(curve: MemoryCurve, peak: Peak, peak_cycle: int, window: Window, most_steps: int) -> IpuLayers:
    """Return the layers of ``curve`` in ``window``, as at most ``most_steps`` steps.

    Where there are more, each step shows the most of live tensors and of the FIFOs'
    contents in its time.
    """
    held = dict(peak.holders)
    resident = {layer: held[holder] for layer, holder in _HOLDERS.items()}
    edges, live, full = _steps(curve, window, most_steps)
    heights = {layer: np.full(len(live), size) for layer, size in resident.items()}
    heights |= {Layer.FIFO_HELD: full, Layer.FIFO_EMPTY: held[Holder.FIFOS] - full, Layer.LIVE: live}
    at_peak = resident | {
        Layer.FIFO_HELD: peak.fifo_bytes,
        Layer.FIFO_EMPTY: held[Holder.FIFOS] - peak.fifo_bytes,
        Layer.LIVE: held[Holder.LIVE],
    }
    return IpuLayers(curve.ipu, edges, heights, at_peak, peak_cycle)


def _steps(curve: MemoryCurve, window: Window, most_steps: int) -> tuple[Floats, Integers, Integers]:
    """Return edges, live bytes and FIFO contents of the curve in the window."""
    first = int(np.searchsorted(curve.time, window.start, side="right")) - 1
    last = int(np.searchsorted(curve.time, window.end, side="left"))
    starts = np.maximum(curve.time[first:last], window.start)
    ends = np.append(starts[1:], window.end)
    lasting = ends > starts
    starts, live, held = starts[lasting], curve.live_bytes[first:last][lasting], curve.fifo_bytes[first:last][lasting]
    if len(starts) <= most_steps:
        return np.append(starts, window.end).astype(np.float64), live, held
    edges = np.linspace(window.start, window.end, most_steps + 1)
    # A bin holds the step that goes on when it begins, and those that begin in it. Every other of reduceat's
    # stretches is a bin; the last may end behind the last step, where a further one has to be.
    begins = np.searchsorted(starts, edges[:-1], side="right") - 1
    ends = np.searchsorted(starts, edges[1:], side="left")
    stretches = np.stack([begins, ends], axis=1).ravel()
    most = [np.maximum.reduceat(np.append(level, 0), stretches)[::2] for level in (live, held)]
    return edges, most[0], most[1]
