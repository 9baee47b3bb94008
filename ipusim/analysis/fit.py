"""Whether a program fits the memory of its IPUs, and where it does not: how much is too much, and what holds it."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.errors import OutOfMemoryError
from ipusim.pipeline.footprint import Footprint, Holder
from ipusim.pipeline.liveness import Peak, peaks
from ipusim.pipeline.plan import Plan
from ipusim.units import format_bytes

#: Holders that a message names.
_NAMED = 3


@dataclass(frozen=True)
class Fit:
    """The peaks of all IPUs against the memory of one.

    Attributes:
        plan: the order of the passes.
        footprint: what the program holds.
        peaks: of each IPU that holds a stage.
        sram_bytes: In-Processor-Memory of one IPU; None where it is not limited.
    """

    plan: Plan
    footprint: Footprint
    peaks: tuple[Peak, ...]
    sram_bytes: int | None

    @property
    def fullest(self) -> Peak:
        """The largest peak."""
        return max(self.peaks, key=lambda peak: peak.bytes)

    def excess_bytes(self, peak: Peak) -> int:
        """Return by how much an IPU's peak is more than its memory; 0 where it fits."""
        return 0 if self.sram_bytes is None else max(peak.bytes - self.sram_bytes, 0)

    @property
    def too_large(self) -> tuple[Peak, ...]:
        """The peaks that do not fit, the largest first."""
        over = [peak for peak in self.peaks if self.excess_bytes(peak)]
        return tuple(sorted(over, key=lambda peak: -peak.bytes))

    def verdict(self) -> str:
        """Return one sentence for people: that all fits, or which IPU does not and why."""
        if self.sram_bytes is None:
            return "Memory is not limited here."
        if not self.too_large:
            full = self.fullest
            return (
                f"Memory: every IPU fits; the fullest is IPU {full.ipu} with {format_bytes(full.bytes)} "
                f"of {format_bytes(self.sram_bytes)}."
            )
        worst, *others = self.too_large
        held = ", ".join(f"{holder} {format_bytes(size)}" for holder, size in worst.largest(_NAMED))
        moment = "the weight update" if worst.op is None else f"pass {worst.op}"
        return (
            f"Out of memory on IPU {worst.ipu}: {format_bytes(worst.bytes)} in {moment}, "
            f"{format_bytes(self.excess_bytes(worst))} more than its {format_bytes(self.sram_bytes)}. "
            f"Largest: {held}.{_neither(others)}"
        )

    def check(self) -> None:
        """Raise OutOfMemoryError, with a remedy, unless every IPU fits."""
        if self.too_large:
            raise OutOfMemoryError(f"{self.verdict()} {self._remedy()} With memory: report it is run all the same.")

    def _remedy(self) -> str:
        """Return what makes the largest holder of the worst IPU smaller."""
        (holder, _), *_ = self.too_large[0].largest(1)
        match holder:
            case Holder.FIFOS if not (self.plan.shape.recompute or self.plan.shape.recompute_inline):
                shallower = ", take the schedule interleaved, whose FIFOs are half as deep"
                return (
                    f"Set allow_recompute{shallower if self.plan.schedule == 'grouped' else ''}, or make "
                    "micro_batch_size smaller."
                )
            case Holder.FIFOS | Holder.LIVE | Holder.COPIES | Holder.STREAMS:
                return "Make micro_batch_size smaller, or cut the model into more stages on more IPUs."
            case Holder.CODE:
                return "Take less for code_bytes, or cut the model into more stages on more IPUs."
            case Holder.STATE:
                return (
                    "Keep the optimizer's state in Streaming Memory with system.enable_remote_buffers, where the "
                    "machine has it, or cut the model into more stages on more IPUs."
                )
            case _:
                return "Cut the model into more stages on more IPUs, or move layers to an IPU with room."


def _neither(others: list[Peak]) -> str:
    """Return a sentence that the peaks of these IPUs do not fit; nothing for none."""
    numbers = [str(peak.ipu) for peak in sorted(others)]
    if len(numbers) < 2:
        return "".join(f" IPU {number} does not fit either." for number in numbers)
    return f" IPUs {', '.join(numbers[:-1])} and {numbers[-1]} do not fit either."


def fit(plan: Plan, footprint: Footprint, sram_bytes: int | None) -> Fit:
    """Compare what ``footprint`` holds under ``plan`` with ``sram_bytes`` of each IPU; None sets no limit."""
    return Fit(plan, footprint, peaks(plan, footprint), sram_bytes)
