"""The fullest IPU of a run, which comparisons show."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.analysis.fits import Fits


@dataclass(frozen=True)
class FullestMemory:
    """The peak of the fullest IPU, as ``comparison.json`` has it.

    Attributes:
        sram_bytes: memory of one IPU; None where that is not limited.
        fits: the answer to whether the program fits.
        verdict: one sentence for people.
        ipu: the fullest, by its logical number.
        peak_bytes, peak_pass, excess_bytes: of it, as :class:`ipusim.analysis.memory_summary.IpuMemory` has them.
    """

    sram_bytes: int | None
    fits: Fits
    verdict: str
    ipu: int
    peak_bytes: int
    peak_pass: str
    excess_bytes: int


def fullest(fit: Fit) -> FullestMemory:
    """Return the peak of the fullest IPU, and the answer to whether all fit."""
    peak = fit.fullest
    of_all = fit.sram_bytes, fit.fits, fit.verdict()
    return FullestMemory(*of_all, peak.ipu, peak.bytes, peak.during, fit.excess_bytes(peak))
