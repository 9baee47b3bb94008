"""What a run's memory report says, as plain data for ``summary.json`` and ``comparison.json``."""

from __future__ import annotations

from typing import Any

from ipusim.analysis.fit import Fit
from ipusim.analysis.memory import kept_micro_batches, memory_curves, moment
from ipusim.timeline.timeline import Timeline


def fullest_dict(fit: Fit) -> dict[str, Any]:
    """Return the peak of the fullest IPU, and whether all fit."""
    peak = fit.fullest
    return {
        "sram_bytes": fit.sram_bytes,
        "fits": not fit.too_large,
        "verdict": fit.verdict(),
        "ipu": peak.ipu,
        "peak_bytes": peak.bytes,
        "peak_pass": peak.during,
        "excess_bytes": fit.excess_bytes(peak),
    }


def memory_dict(fit: Fit, timeline: Timeline) -> dict[str, Any]:
    """Return the peak of each IPU with its moment and holders, and the FIFO of each stage."""
    curves = memory_curves(timeline, fit.footprint)
    return {
        "sram_bytes": fit.sram_bytes,
        "fits": not fit.too_large,
        "verdict": fit.verdict(),
        "ipus": [
            {
                "ipu": peak.ipu,
                "peak_bytes": peak.bytes,
                "peak_cycle": moment(timeline, peak),
                "peak_pass": peak.during,
                "excess_bytes": fit.excess_bytes(peak),
                "resident_bytes": curve.resident_bytes,
                "remote_bytes": held.remote_bytes,
                "fifo_held_bytes": int(curve.fifo_bytes.max()),
                "holders": {str(holder): size for holder, size in peak.holders},
            }
            for peak, curve, held in zip(fit.peaks, curves, fit.footprint.ipus, strict=True)
        ],
        "stages": [
            {
                "name": name,
                "fifo_depth": stage.fifo_depth,
                "kept_bytes": stage.kept,
                "fifo_bytes": stage.fifo_bytes,
                "most_micro_batches_kept": kept_micro_batches(timeline, fit.footprint, number),
            }
            for number, (name, stage) in enumerate(zip(timeline.info.stages, fit.footprint.stages, strict=True))
        ],
    }
