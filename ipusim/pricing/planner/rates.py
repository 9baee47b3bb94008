"""The rates that the planner uses, as the numbers that it searches with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from ipusim.hardware.rates import DEFAULT_RATES, RATES, Rates


@dataclass(frozen=True)
class PlannerRates:
    """Those of :class:`ipusim.hardware.rates.Rates` that price a product, by the same names."""

    amp_ceiling: float
    exchange_efficiency: float
    compute_set_cycles: float
    vector_slowdown: float

    @classmethod
    def of(cls, rates: Rates) -> PlannerRates:
        """Return the rates as numbers."""
        return cls(*(float(getattr(rates, field.name)) for field in fields(cls)))


#: What is known of each, in the order of the attributes of :class:`PlannerRates`.
PLANNER_RATES: Final = tuple(rate for field in fields(PlannerRates) for rate in RATES if rate.attribute == field.name)
#: The rates in use when none is chosen.
DEFAULT_PLANNER_RATES: Final = PlannerRates.of(DEFAULT_RATES)
