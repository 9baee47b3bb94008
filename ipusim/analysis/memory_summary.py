"""The contents of a run's memory report, in one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.analysis.fits import Fits
from ipusim.analysis.memory import memory_curves, moment, stashed_micro_batches
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class IpuMemory:
    """Memory of one IPU that has a stage: its peak, by holder, and when.

    Attributes:
        ipu: logical IPU.
        peak_bytes, peak_cycle, peak_pass: how much most of all, from which cycle of the first execution on, in what.
        excess_bytes: by how much that is more than its memory; 0 where it fits without the estimated code.
        resident_bytes: all the time.
        remote_bytes: in Streaming Memory beside that.
        fifo_held_bytes: the most that really lies in the FIFOs' buffers.
        holders: bytes of each holder at the peak, by its key.
    """

    ipu: int
    peak_bytes: int
    peak_cycle: int
    peak_pass: str
    excess_bytes: int
    resident_bytes: int
    remote_bytes: int
    fifo_held_bytes: int
    holders: Mapping[str, int]


@dataclass(frozen=True)
class StageMemory:
    """The stash of one stage: slots and bytes of its FIFO, and how many slots are used at once."""

    name: str
    fifo_depth: int
    kept_bytes: int
    fifo_bytes: int
    most_micro_batches_kept: int


@dataclass(frozen=True)
class MemorySummary:
    """Memory of all IPUs against their capacity; ``sram_bytes`` is None without a limit."""

    sram_bytes: int | None
    fits: Fits
    verdict: str
    ipus: tuple[IpuMemory, ...]
    stages: tuple[StageMemory, ...]


def memory_summary(fit: Fit, timeline: Timeline) -> MemorySummary:
    """Return the peak of each IPU with its moment and holders, and the FIFO of each stage."""
    curves = memory_curves(timeline, fit.footprint)
    ipus = tuple(
        IpuMemory(
            ipu=peak.ipu,
            peak_bytes=peak.bytes,
            peak_cycle=moment(timeline, peak),
            peak_pass=peak.during,
            excess_bytes=fit.excess_bytes(peak),
            resident_bytes=curve.resident_bytes,
            remote_bytes=footprint_of.remote_bytes,
            fifo_held_bytes=int(curve.fifo_bytes.max()),
            holders={holder.key: size for holder, size in peak.holders},
        )
        for peak, curve, footprint_of in zip(fit.peaks, curves, fit.footprint.ipus, strict=True)
    )
    stages = tuple(
        StageMemory(
            name=name,
            fifo_depth=stage.fifo_depth,
            kept_bytes=stage.saved,
            fifo_bytes=stage.fifo_bytes,
            most_micro_batches_kept=stashed_micro_batches(timeline, fit.footprint, number),
        )
        for number, (name, stage) in enumerate(zip(timeline.info.stages, fit.footprint.stages, strict=True))
    )
    return MemorySummary(fit.sram_bytes, fit.fits, fit.verdict(), ipus, stages)
