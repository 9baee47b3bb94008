"""Compare a program's memory with its IPUs: does the program fit, and if not, by how much?

Memory is divided among holders: kinds of content such as weights, code and FIFOs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ipusim.analysis.fits import Fits
from ipusim.base.units import format_bytes, noun_with_numbers
from ipusim.hardware.streaming import SHARING_IPUS
from ipusim.hardware.system import System
from ipusim.pipeline.footprint import Footprint
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.liveness import Peak, peaks
from ipusim.pipeline.plan import Plan

#: Number of holders that a message names.
_MOST_HOLDERS = 3


@dataclass(frozen=True)
class Fit:
    """Memory peaks of all IPUs, and memory per IPU.

    Attributes:
        plan: Plan of the program.
        footprint: number of program bytes per holder.
        peaks: peak of every IPU that holds a stage.
        sram_bytes: In-Processor-Memory per IPU; None for no limit.
        is_known: whether the request states the bytes of stages.
        streaming: sentence about too small Streaming Memory; empty if the memory suffices or has no limit.
    """

    plan: Plan
    footprint: Footprint
    peaks: tuple[Peak, ...]
    sram_bytes: int | None
    is_known: bool = True
    streaming: str = ""

    @property
    def fits(self) -> Fits:
        """Whether the program fits all IPUs and Streaming Memory.

        With unknown bytes of stages the answer is NO if known bytes alone are too large, else UNKNOWN.
        """
        if self.too_large or self.streaming:
            return Fits.NO
        if not self.is_known:
            return Fits.UNKNOWN
        return Fits.WITHOUT_CODE if self.excess_peaks else Fits.YES

    @property
    def fullest(self) -> Peak:
        """Largest peak; of equal peaks the first."""
        return max(self.peaks, key=lambda peak: peak.bytes)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Memory in ``summary.json`` that is known without a Timeline; no IPUs if memory is unknown."""
        ipus = [] if self.fits is Fits.UNKNOWN else self.summaries_of_ipus
        return {"sram_bytes": self.sram_bytes, "fits": self.fits, "verdict": self.verdict(), "ipus": ipus}

    @cached_property
    def summaries_of_ipus(self) -> list[dict[str, Any]]:
        """Memory of each IPU in ``summary.json`` that is known without a Timeline."""
        return [
            {
                "ipu": peak.ipu,
                "peak_bytes": peak.bytes,
                "peak_pass": peak.during,
                "excess_bytes": self.excess_bytes(peak),
                "resident_bytes": ipu_footprint.resident_bytes,
                "remote_bytes": ipu_footprint.remote_bytes,
                "holders": {holder.key: size for holder, size in peak.holders},
            }
            for peak, ipu_footprint in zip(self.peaks, self.footprint.ipus, strict=True)
        ]

    def excess_bytes(self, peak: Peak) -> int:
        """Return the bytes of a peak beyond the memory, with assumed code; 0 if the IPU fits without that code."""
        return self._excess_over_sram(peak) if self._excess_over_sram(peak) > self._assumed_bytes(peak) else 0

    @property
    def too_large(self) -> tuple[Peak, ...]:
        """Peaks that do not fit even without assumed code, largest first."""
        return tuple(peak for peak in self.excess_peaks if self.excess_bytes(peak))

    @property
    def excess_peaks(self) -> tuple[Peak, ...]:
        """Peaks that do not fit with assumed code included, largest first."""
        return tuple(sorted(filter(self._excess_over_sram, self.peaks), key=lambda peak: -peak.bytes))

    def _excess_over_sram(self, peak: Peak) -> int:
        return 0 if self.sram_bytes is None else max(peak.bytes - self.sram_bytes, 0)

    def _assumed_bytes(self, peak: Peak) -> int:
        return next(
            ipu_footprint.assumed_bytes for ipu_footprint in self.footprint.ipus if ipu_footprint.ipu == peak.ipu
        )

    def _code_text(self, peak: Peak) -> str:
        """Return a clause on an IPU's code, to end a sentence on its bytes; empty if the request states the code."""
        if assumed := self._assumed_bytes(peak):
            return f"; {format_bytes(assumed)} of the {format_bytes(peak.bytes)} is code (estimated)"
        return "" if dict(peak.holders)[Holder.CODE] else "; code is not included"

    def verdict(self) -> str:
        """Return the answer in sentences, with the fullest IPU or the IPUs that do not fit."""
        match self.fits:
            case Fits.UNKNOWN:
                return f"Memory: {Fits.UNKNOWN}: the scenario states no memory of its stages."
            case Fits.NO:
                return f"Memory: {Fits.NO}: {self.out_of_memory}"
            case Fits.WITHOUT_CODE:
                worst, *others = self.excess_peaks
                code, need = format_bytes(self._assumed_bytes(worst)), self._need_text(worst)
                return (
                    f"Memory: {Fits.WITHOUT_CODE}: with the estimated {code} of code IPU {worst.ipu} needs "
                    f"{format_bytes(worst.bytes)}, {need}.{_further_ipus(others)}"
                )
        most = self.fullest.bytes
        fullest_peaks = [peak for peak in self.peaks if peak.bytes == most]
        codes = {self._code_text(peak) for peak in fullest_peaks}
        code = codes.pop() if len(codes) == 1 else ""
        suffix, verb = (" each", "are") if fullest_peaks[1:] else ("", "is")
        ipus = noun_with_numbers("IPU", [peak.ipu for peak in fullest_peaks])
        fullest = f"the fullest {verb} {ipus} with {format_bytes(most)}"
        if self.sram_bytes is None:
            return f"Memory: {Fits.YES}: memory is off, which sets no limit; {fullest}{suffix}{code}."
        return f"Memory: every IPU fits; {fullest} of {format_bytes(self.sram_bytes)}{suffix}{code}."

    @property
    def out_of_memory(self) -> str:
        """Sentences about IPUs and Streaming Memory that are too small; empty if everything fits."""
        return " ".join(filter(None, [self._out_of_sram(), self.streaming]))

    def _out_of_sram(self) -> str:
        if not self.too_large:
            return ""
        worst, *others = self.too_large
        holders = ", ".join(f"{holder.label} {format_bytes(size)}" for holder, size in worst.largest(_MOST_HOLDERS))
        moment = "the weight update" if worst.op is None else f"pass {worst.during}"
        return (
            f"Out of memory on IPU {worst.ipu}: {format_bytes(worst.bytes)} in {moment}, "
            f"{self._need_text(worst)}{self._code_text(worst)}. Largest: {holders}.{_further_ipus(others)}"
        )

    def _need_text(self, peak: Peak) -> str:
        assert self.sram_bytes is not None, "without a limit every size fits"
        return f"{format_bytes(self._excess_over_sram(peak))} more than the {format_bytes(self.sram_bytes)} of an IPU"

    @property
    def largest(self) -> Holder:
        """Largest holder of the fullest IPU that does not fit; a remedy starts here.

        Assumed code is skipped, as nobody can change it.
        """
        worst = self.too_large[0]
        assumed = [Holder.CODE] if self._assumed_bytes(worst) else []
        return next(holder for holder, _ in worst.largest(2) if holder not in assumed)


def remote_verdict(footprint: Footprint, system: System) -> str:
    """Return a sentence if Streaming Memory of ``system`` is too small for ``footprint``; else an empty string."""
    if system.streaming is None:
        return ""
    totals: dict[int, int] = {}
    for ipu_footprint in footprint.ipus:
        for ipu in range(ipu_footprint.ipu, system.count, system.shards):
            machine = system.streaming_memory_of(ipu)
            totals[machine] = totals.get(machine, 0) + ipu_footprint.remote_bytes
    machine, size = max(totals.items(), key=lambda item: item[1])
    if size <= system.streaming.capacity_bytes:
        return ""
    first = machine * SHARING_IPUS
    return (
        f"Out of Streaming Memory beside IPUs {first} to {first + SHARING_IPUS - 1}: {format_bytes(size)} of "
        f"{format_bytes(system.streaming.capacity_bytes)}."
    )


def _further_ipus(peaks: list[Peak]) -> str:
    """Return a sentence about further IPUs that do not fit; empty for an empty list."""
    if not peaks:
        return ""
    verb = "do" if peaks[1:] else "does"
    return f" {noun_with_numbers('IPU', [peak.ipu for peak in sorted(peaks)])} {verb} not fit either."


def fit(plan: Plan, footprint: Footprint, sram_bytes: int | None, *, is_known: bool = True, streaming: str = "") -> Fit:
    """Compare the memory of ``footprint`` under ``plan`` with ``sram_bytes`` of every IPU; None sets no limit.

    ``is_known`` and ``streaming`` become attributes of :class:`Fit`.
    """
    return Fit(plan, footprint, peaks(plan, footprint), sram_bytes, is_known, streaming)
