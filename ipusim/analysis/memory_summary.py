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
        peak_bytes: bytes of the peak.
        peak_cycle: first cycle of the peak in the first execution.
        peak_pass: pass of the peak.
        excess_bytes: bytes by which the peak exceeds the memory; 0 if everything but the estimated code fits.
        resident_bytes: bytes allocated during the whole run.
        remote_bytes: bytes in Streaming Memory.
        fifo_held_bytes: maximum of used bytes in FIFO buffers.
        holders: bytes of every holder at the peak, by the holder's key.
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
    """Stash of one stage.

    Attributes:
        name: name of the stage.
        fifo_depth: slots of the FIFO.
        kept_bytes: bytes that the stage keeps for a micro-batch.
        fifo_bytes: bytes of the FIFO.
        most_micro_batches_kept: maximum number of micro-batches kept at once, inside and outside of the FIFO.
    """

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
