"""Hold the rates that the planner of products uses, as floating-point numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from ipusim.hardware.rates import DEFAULT_RATES, RATES, Rates


@dataclass(frozen=True)
class PlannerRates:
    """Rates that price a product, named like the attributes of :class:`ipusim.hardware.rates.Rates`."""

    amp_ceiling: float
    exchange_efficiency: float
    compute_set_cycles: float
    vector_slowdown: float

    @classmethod
    def from_rates(cls, rates: Rates) -> PlannerRates:
        """Return the planner's rates as numbers."""
        return cls(*(float(getattr(rates, field.name)) for field in fields(cls)))


#: Rate descriptions, ordered like the attributes of :class:`PlannerRates`.
PLANNER_RATES: Final = tuple(rate for field in fields(PlannerRates) for rate in RATES if rate.attribute == field.name)
#: Default rates.
DEFAULT_PLANNER_RATES: Final = PlannerRates.from_rates(DEFAULT_RATES)
