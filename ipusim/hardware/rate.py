"""Define a rate of the cost model: unit, default with source, and plausible range."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

from ipusim.base.units import format_rate, format_seconds

#: Costs that depend on a rate: passes on an IPU, communication between IPUs, host work between session runs, or code
#: memory.
Part = Literal["computation", "links", "host", "memory"]
#: Source of rates fitted to pods.
PODS: Final = "fitted to published throughputs of pods (`ipusim validate`)"
#: Bounds of rates that are shares.
SHARE: Final = (Fraction(1, 100), 1)


@dataclass(frozen=True)
class Rate:
    """A rate with unit, source and plausible range.

    Attributes:
        attribute: name in :class:`Rates`, including the unit.
        unit: unit of the value: the counted things for a count, the whole for a share.
        default: value unless a scenario states another.
        least: least sensible value.
        most: largest sensible value.
        part: kind of costs priced by the rate.
        meaning: description of the rate.
        source: the default's origin, or ``assumed``.
        plausible: plausible range of the true value; None without a published source.
        evidence: evidence for the range, or the reason for its absence.
    """

    attribute: str
    unit: str
    default: Fraction
    least: Fraction
    most: Fraction
    part: Part
    meaning: str
    source: str
    plausible: tuple[Fraction, Fraction] | None
    evidence: str

    @property
    def name(self) -> str:
        """Name in a scenario, where values carry units."""
        return self.attribute.removesuffix("_ns").removesuffix("_bytes_per_s")

    @property
    def is_fitted(self) -> bool:
        """Whether the default is fitted to measurements, within the plausible range."""
        return self.source.startswith("fitted")

    def show(self, value: Fraction) -> str:
        """Return a value of this rate with unit, for people."""
        match self.unit:
            case "ns":
                return format_seconds(float(value / 10**9))
            case "bytes/s":
                return format_rate(float(value))
            case "B":
                return f"{float(value):,.7g} B"
        return f"{float(value):g} {self.unit}"

    def at_edge(self, value: Fraction | float) -> bool:
        """Whether a value is outside the plausible range, or within a hundredth of the range from one of its ends."""
        if self.plausible is None:
            return False
        low, high = self.plausible
        return not low + (high - low) / 100 < value < high - (high - low) / 100

    def plausible_text(self) -> str:
        """Return the plausible range, for people; empty without a range."""
        if self.plausible is None:
            return ""
        low, high = (self.show(end) for end in self.plausible)
        number, _, unit = low.partition(" ")
        return f"{number if high.endswith(f' {unit}') else low} to {high}"


def describe(
    default: Fraction | int,
    unit: str,
    bounds: tuple[Fraction | int, Fraction | int],
    plausible: tuple[Fraction | int | str, Fraction | int | str] | None = None,
    **facts: Any,
) -> Any:
    """Return a field of :class:`ipusim.hardware.rates.Rates` with the rate's description.

    Args:
        default: value unless a scenario states another.
        unit: unit of the value.
        bounds: least and most sensible value.
        plausible: plausible range of the true value, if known.
        facts: remaining attributes of :class:`Rate`.
    """
    least, most = map(Fraction, bounds)
    facts |= {"default": Fraction(default), "unit": unit, "least": least, "most": most}
    facts["plausible"] = plausible and tuple(Fraction(end) for end in plausible)
    return field(default=Fraction(default), metadata=facts)
