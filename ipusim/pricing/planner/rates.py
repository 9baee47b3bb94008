"""The rates of the planner: fitted to measured products, each with its plausible range.

They stand beside :mod:`ipusim.hardware.rates`, not in it: every row of that table can be
named in a scenario, and none of these changes what a scenario costs as long as passes
are not priced by the planner.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Final

from ipusim.errors import QuantityError
from ipusim.hardware.rates import Rate

_FIT: Final = "fitted to measured dense products (`ipusim validate`)"


def _row(
    attribute: str, unit: str, default: str, bounds: tuple[str, str], plausible: tuple[str, str], *said: str
) -> Rate:
    meaning, evidence = said
    return Rate(
        attribute=attribute,
        unit=unit,
        default=Fraction(default),
        least=Fraction(bounds[0]),
        most=Fraction(bounds[1]),
        part="computation",
        meaning=meaning,
        source=_FIT,
        plausible=(Fraction(plausible[0]), Fraction(plausible[1])),
        evidence=evidence,
    )


#: Every rate of the planner, in the order of the attributes of :class:`PlannerRates`.
PLANNER_RATES: Final = (
    _row(
        "amp_ceiling",
        "of peak",
        "0.9264",
        ("0.01", "1"),
        ("0.80", "0.95"),
        "what rows that stream past reach of the matrix unit's multiply-accumulates",
        "dense products measured on hardware, large n; all of it in PopLibs' estimate, which has no memory conflicts",
    ),
    _row(
        "exchange_efficiency",
        "of nominal",
        "1.088",
        ("0.01", "10"),
        ("0.7", "1.3"),
        "what a tile receives of the exchange's nominal bytes in a cycle; twice that where a pair of tiles shares",
        "Poplar tutorial 6: PopLibs' rule within 0.5 %; fits",
    ),
    _row(
        "compute_set_cycles",
        "cycles",
        "629.1",
        ("0", "1000000"),
        ("300", "2000"),
        "sync, start and code of each compute set of a product",
        "the fixed 1,900 to 2,600 cycles of the smallest products measured, of about three sets",
    ),
    _row(
        "weight_load_bytes_per_cycle",
        "bytes/cycle/tile",
        "13.76",
        ("0.1", "64"),
        ("4", "32"),
        "weights into the matrix unit, before each pass of rows",
        "PopLibs' loads are of 64 or 128 bits; 16 bytes in a cycle on GC2 (include/popnn/Net.hpp) where memory allows",
    ),
    _row(
        "partials_slowdown",
        "cycles",
        "1.758",
        ("0.1", "100"),
        ("1", "5"),
        "cycles that a tile takes for 8 bytes of partial sums which it adds or converts",
        "1 is the 64-bit data path; hand-written stencils take 2.5 to 5 for an operation of the whole path",
    ),
)


@dataclass(frozen=True)
class PlannerRates:
    """The value of every rate; :data:`PLANNER_RATES` says what each is. Raises QuantityError for one out of bounds."""

    amp_ceiling: float = float(PLANNER_RATES[0].default)
    exchange_efficiency: float = float(PLANNER_RATES[1].default)
    compute_set_cycles: float = float(PLANNER_RATES[2].default)
    weight_load_bytes_per_cycle: float = float(PLANNER_RATES[3].default)
    partials_slowdown: float = float(PLANNER_RATES[4].default)

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for rate, each in zip(PLANNER_RATES, fields(self), strict=True):
            value = getattr(self, each.name)
            if not rate.least <= value <= rate.most:
                least, most = f"{float(rate.least):g}", f"{float(rate.most):g}"
                raise QuantityError(f"expected {rate.attribute} from {least} to {most} {rate.unit}, got {value:g}")


#: The rates in use when none is chosen.
DEFAULT_PLANNER_RATES: Final = PlannerRates()
