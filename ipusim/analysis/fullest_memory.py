"""The fullest IPU of a run, for comparisons."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.analysis.fits import Fits


@dataclass(frozen=True)
class FullestMemory:
    """Peak of the fullest IPU, as in ``comparison.json``.

    Attributes:
        sram_bytes: memory of one IPU; None for no limit.
        fits: whether the program fits.
        verdict: sentence for people.
        ipu: logical number of the fullest IPU.
        peak_bytes, peak_pass, excess_bytes: as in :class:`ipusim.analysis.memory_summary.IpuMemorySummary`.
    """

    sram_bytes: int | None
    fits: Fits
    verdict: str
    ipu: int
    peak_bytes: int
    peak_pass: str
    excess_bytes: int


def fullest(fit: Fit) -> FullestMemory:
    """Return the peak of the fullest IPU and the answer for all IPUs."""
    peak = fit.fullest
    of_all = fit.sram_bytes, fit.fits, fit.verdict()
    return FullestMemory(*of_all, peak.ipu, peak.bytes, peak.during, fit.excess_bytes(peak))
