"""A rate: its unit, its default with a source, and the range in which the truth may lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

from ipusim.base.units import format_rate, format_seconds

#: What a rate prices: passes on an IPU, what IPUs do together, or what the host does between session runs; or code,
#: in memory.
Part = Literal["computation", "links", "host", "memory"]
#: Source, and bounds, of several rates.
PODS: Final = "fitted to published throughputs of pods (`ipusim validate`)"
SHARE: Final = (Fraction(1, 100), 1)


@dataclass(frozen=True)
class Rate:
    """A rate with its unit, source and plausible range.

    Attributes:
        attribute: its name in :class:`Rates`, with its unit.
        unit: of its value; a plain count or share says of what.
        default: the value in use when none is chosen.
        least, most: bounds beyond which a value makes no sense.
        part: what it prices.
        meaning: what it is.
        source: where the default is from, or ``assumed``.
        plausible: the range in which the truth may lie; None where nothing published gives one.
        evidence: what the range rests on, or why there is none.
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
        """The name in a scenario, where values carry their unit themselves."""
        return self.attribute.removesuffix("_ns").removesuffix("_bytes_per_s")

    @property
    def is_fitted(self) -> bool:
        """Whether the default is what explains measurements best, so that an end of its range would hold it back."""
        return self.source.startswith("fitted")

    def show(self, value: Fraction) -> str:
        """Return a value of this rate with its unit, for people."""
        match self.unit:
            case "ns":
                return format_seconds(float(value / 10**9))
            case "bytes/s":
                return format_rate(float(value))
            case "B":
                return f"{float(value):,.7g} B"
        return f"{float(value):g} {self.unit}"

    def at_edge(self, value: Fraction | float) -> bool:
        """Whether a value lies within a hundredth of an end of the plausible range, or beyond; False without one."""
        if self.plausible is None:
            return False
        low, high = self.plausible
        return not low + (high - low) / 100 < value < high - (high - low) / 100

    def plausible_text(self) -> str:
        """Return the plausible range, for people; empty where there is none."""
        if self.plausible is None:
            return ""
        low, high = (self.show(end) for end in self.plausible)
        number, _, unit = low.partition(" ")
        return f"{number if high.endswith(f' {unit}') else low} to {high}"


def described(
    default: Fraction | int,
    unit: str,
    bounds: tuple[Fraction | int, Fraction | int],
    plausible: tuple[Fraction | int | str, Fraction | int | str] | None = None,
    **known: Any,
) -> Any:
    """Return a field of :class:`ipusim.hardware.rates.Rates` with what is known of it.

    Args:
        default: the value in use when none is chosen.
        unit: of the value.
        bounds: beyond which a value makes no sense.
        plausible: the range in which the truth may lie, if it is known.
        known: the other attributes of :class:`Rate`.
    """
    least, most = map(Fraction, bounds)
    known |= {"default": Fraction(default), "unit": unit, "least": least, "most": most}
    known["plausible"] = plausible and tuple(Fraction(end) for end in plausible)
    return field(default=Fraction(default), metadata=known)
