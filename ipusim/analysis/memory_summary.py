"""Summarise the memory of a run, for ``summary.json`` and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.analysis.fits import Fits
from ipusim.analysis.memory import memory_curves, moment, stashed_micro_batches
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class IpuMemorySummary:
    """Memory of one IPU with a stage: size, time and holders of the peak.

    Attributes:
        ipu: logical IPU.
        peak_bytes, peak_cycle, peak_pass: bytes of the peak, its first cycle in the first execution, and its pass.
        excess_bytes: bytes by which the peak exceeds the memory; 0 if the IPU fits without the estimated code.
        resident_bytes: bytes allocated during the whole run.
        remote_bytes: bytes in Streaming Memory.
        fifo_held_bytes: maximum of used bytes in FIFO buffers.
        holders: bytes of every holder at the peak, by its key.
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
class StageMemorySummary:
    """Stash of one stage: FIFO slots, FIFO bytes, and maximum number of used slots."""

    name: str
    fifo_depth: int
    kept_bytes: int
    fifo_bytes: int
    most_micro_batches_kept: int


@dataclass(frozen=True)
class MemorySummary:
    """Memory and capacity of all IPUs; ``sram_bytes`` is None without a limit."""

    sram_bytes: int | None
    fits: Fits
    verdict: str
    ipus: tuple[IpuMemorySummary, ...]
    stages: tuple[StageMemorySummary, ...]


def memory_summary(fit: Fit, timeline: Timeline) -> MemorySummary:
    """Return size, time and holders of all IPUs' peaks, and all stages' FIFOs."""
    curves = memory_curves(timeline, fit.footprint)
    ipus = tuple(
        IpuMemorySummary(**values, peak_cycle=moment(timeline, peak), fifo_held_bytes=int(curve.fifo_bytes.max()))
        for values, peak, curve in zip(fit.summaries_of_ipus, fit.peaks, curves, strict=True)
    )
    stages = tuple(
        StageMemorySummary(
            name=name,
            fifo_depth=stage.fifo_depth,
            kept_bytes=stage.kept_bytes,
            fifo_bytes=stage.fifo_bytes,
            most_micro_batches_kept=stashed_micro_batches(timeline, fit.footprint, number),
        )
        for number, (name, stage) in enumerate(zip(timeline.info.stages, fit.footprint.stages, strict=True))
    )
    return MemorySummary(fit.sram_bytes, fit.fits, fit.verdict(), ipus, stages)
