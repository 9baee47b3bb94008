"""Find the fullest IPU of a run, for comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipusim.analysis.fits import Fits


@dataclass(frozen=True)
class FullestMemory:
    """Peak of the fullest IPU, as in ``comparison.json``.

    Attributes:
        sram_bytes: memory of one IPU; None for no limit.
        fits: whether the program fits.
        verdict: sentence for people.
        ipu: logical number of the fullest IPU.
        peak_bytes: bytes of the peak.
        peak_pass: pass of the peak.
        excess_bytes: bytes by which the peak exceeds the memory; 0 if everything but the estimated code fits.
    """

    sram_bytes: int | None
    fits: Fits
    verdict: str
    ipu: int
    peak_bytes: int
    peak_pass: str
    excess_bytes: int


def fullest(memory: Mapping[str, Any]) -> FullestMemory | None:
    """Return the fullest IPU of the memory in ``summary.json``; None if memory is unknown."""
    fits = Fits(memory["fits"])
    if fits is Fits.UNKNOWN:
        return None
    ipu = max(memory["ipus"], key=lambda ipu: ipu["peak_bytes"])
    peak = {key: ipu[key] for key in ("ipu", "peak_bytes", "peak_pass", "excess_bytes")}
    return FullestMemory(memory["sram_bytes"], fits, memory["verdict"], **peak)
