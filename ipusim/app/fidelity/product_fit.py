"""Fit the planner's rates to measured products: regularised least squares over logarithms of cycles and rates.

The planner splits a product over the tiles of an IPU; its plan is the split with the fewest cycles, and depends on the
rates. The fit therefore alternates: rates for the current plans, then plans for the new rates, until no plan changes,
or for at most 12 turns. The best rates of all turns are the result. A rate has a normal prior around the middle of its
plausible range, which is four standard deviations wide. Without priors, rates that the measurements
cannot tell apart would end at an edge of their range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.api import hardware, pricing

#: Relative standard deviation of a measurement against the model. 2 to 3 % are reading errors of figures taken from a
#: picture; the rest covers correlated errors, since rows of equal size share the model's omissions. The value was
#: chosen after inspecting the measured rows: with 0.05, amp_ceiling ends at the edge of its range.
_ROW_SPREAD: Final = 0.1
#: Maximum number of turns of the fit.
_MOST_TURNS: Final = 12
#: Width of a plausible range, in standard deviations of the prior.
_RANGE_DEVIATIONS: Final = 4

Vector = npt.NDArray[np.float64]


class MeasuredProduct(NamedTuple):
    """A product with its measured cycles."""

    product: pricing.PlannedProduct
    cycles: float


def fit_rates(products: Sequence[MeasuredProduct], ipu: hardware.IpuSpec) -> pricing.PlannerRates:
    """Return the best-fitting rates within their plausible ranges.

    Raises ValueError for fewer measurements than rates.
    """
    if len(products) < len(pricing.PLANNER_RATES):
        raise ValueError(f"expected at least {len(pricing.PLANNER_RATES)} measured products, got {len(products)}")
    rates = pricing.DEFAULT_PLANNER_RATES
    plans = _plans(products, ipu, rates)
    best = (_sum_of_squares(plans, products, rates), rates)
    for _ in range(_MOST_TURNS):
        rates = _rates_for(plans, products, ipu, rates)
        new_plans = _plans(products, ipu, rates)
        best = min(best, (_sum_of_squares(new_plans, products, rates), rates), key=lambda pair: pair[0])
        if [plan.split for plan in new_plans] == [plan.split for plan in plans]:
            break
        plans = new_plans
    return best[1]


def at_edge(rates: pricing.PlannerRates) -> list[str]:
    """Return the rates within a hundredth of an end of their plausible range, or beyond."""
    return [rate.attribute for rate in pricing.PLANNER_RATES if rate.at_edge(getattr(rates, rate.attribute))]


def rate_shares(products: Sequence[MeasuredProduct], ipu: hardware.IpuSpec) -> list[float]:
    """Return, per planner rate, the absolute value of the mean elasticity of the products' cycles.

    The elasticity is the change of cycles in per cent for a one per cent change of the rate, and so the share of the
    cycles that the rate determines.
    """
    work = _stack(_plans(products, ipu, pricing.DEFAULT_PLANNER_RATES))
    step = 1e-4
    logs = _logs(pricing.DEFAULT_PLANNER_RATES)
    low, high = (
        np.array([_log_cycles(work, ipu, logs + sign * step * unit) for unit in np.eye(len(logs))]) for sign in (-1, 1)
    )
    shares: list[float] = np.abs((high - low).mean(axis=1) / (2 * step)).tolist()
    return shares


def _stack(plans: Sequence[pricing.ProductPlan]) -> pricing.SplitWork:
    """Return the work of several plans as arrays."""
    return pricing.SplitWork(*np.array([plan.work for plan in plans]).T)


def _plans(
    products: Sequence[MeasuredProduct], ipu: hardware.IpuSpec, rates: pricing.PlannerRates
) -> list[pricing.ProductPlan]:
    return [pricing.plan_product(row.product, ipu, rates) for row in products]


def _sum_of_squares(
    plans: Sequence[pricing.ProductPlan], products: Sequence[MeasuredProduct], rates: pricing.PlannerRates
) -> float:
    """Return the sum of squares that the fit minimises: errors of the products, and distances of rates from priors."""
    errors = [np.log(plan.cycles / row.cycles) / _ROW_SPREAD for plan, row in zip(plans, products, strict=True)]
    return float(np.sum(np.square([*errors, *_prior(_logs(rates))])))


def _rates_for(
    plans: Sequence[pricing.ProductPlan],
    products: Sequence[MeasuredProduct],
    ipu: hardware.IpuSpec,
    start: pricing.PlannerRates,
) -> pricing.PlannerRates:
    """Return the best-fitting rates for fixed plans."""
    from scipy.optimize import least_squares  # noqa: PLC0415, 0.2 s to import, needed by few commands

    work = _stack(plans)
    measured_logs = np.log([row.cycles for row in products])
    low, high = _ranges()

    def residuals(logs: Vector) -> Vector:
        errors: Vector = (_log_cycles(work, ipu, logs) - measured_logs) / _ROW_SPREAD
        return np.concatenate([errors, _prior(logs)])

    margin = 1e-9 * (high - low)
    solution = least_squares(residuals, np.clip(_logs(start), low + margin, high - margin), bounds=(low, high))
    return pricing.PlannerRates(*(float(f"{value:.4g}") for value in np.exp(solution.x)))


def _log_cycles(work: pricing.SplitWork, ipu: hardware.IpuSpec, logs: Vector) -> Vector:
    """Return the logarithms of the cycles of ``work`` at rates with the logarithms ``logs``."""
    cycles: Vector = np.log(pricing.smooth_cycles(work, ipu, pricing.PlannerRates(*np.exp(logs))).total)
    return cycles


def _ranges() -> tuple[Vector, Vector]:
    """Return the ends of the plausible ranges, as logarithms."""
    ends = [rate.plausible for rate in pricing.PLANNER_RATES if rate.plausible is not None]
    return np.log([float(low) for low, _ in ends]), np.log([float(high) for _, high in ends])


def _logs(rates: pricing.PlannerRates) -> Vector:
    logs: Vector = np.log([getattr(rates, rate.attribute) for rate in pricing.PLANNER_RATES])
    return logs


def _prior(logs: Vector) -> Vector:
    """Return the distances of the rates from the middle of their ranges, in standard deviations of the priors."""
    low, high = _ranges()
    return (logs - (low + high) / 2) * _RANGE_DEVIATIONS / (high - low)
