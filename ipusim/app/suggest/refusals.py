"""Why there is no plan: limits that leave none, each by its name; none that fits; or none found in the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ipusim.api import Problem, RequestError, runs
from ipusim.app.suggest.choices import Choice, Limits, choices
from ipusim.app.suggest.given import Given
from ipusim.app.suggest.search import Search
from ipusim.app.suggest.searched import Searched
from ipusim.app.suggest.units import Units
from ipusim.base.errors import OptionError
from ipusim.base.units import format_bytes, format_seconds

#: Limits of numbers that may leave no plan, and what of a choice they are about; the first that is at fault is named.
_NUMBERS: Final[dict[str, Callable[[Choice], int]]] = {
    "stages": lambda choice: choice.stages,
    "replicas": lambda choice: choice.replicas,
    "ipus": lambda choice: choice.ipus,
    "micro_batch_sizes": lambda choice: choice.micro_batch_size,
}
_WORDS: Final = ("placements", "recompute", "offload", "sharding")


def refuse_limits(given: Given, limits: Limits, search: Search) -> None:
    """Raise OptionError for the limit that leaves no plan, and RequestError where a rule refuses all of them."""
    found = search.found
    units = search.units(limits.sizes_of(given)[0])
    if not found.choices:
        _refuse_option(given, limits, units)
    if not found.choices or (found.refused.total() == found.choices and not found.too_large):
        if found.choices and not any("multiple" in reason for reason in found.refused):
            raise RequestError(_reasons(found))
        batch = limits.global_batch or given.global_batch
        raise OptionError(
            "global_batch",
            f"expected a number of samples that some plan divides, got {batch}"
            f"{_near(given, limits, units, search, batch)}",
        )


def _refuse_option(given: Given, limits: Limits, units: Units) -> None:
    """Raise OptionError for the first limit without which there are plans, whatever the global batch if need be."""
    for whatever in (False, True):
        for name in (*_NUMBERS, *_WORDS):
            values = getattr(limits, name)
            if values is None:
                continue
            others = [*choices(given, replace(limits, **{name: None}), units, whatever=whatever)]
            if not others:
                continue
            got = ", ".join(map(str, values))
            if name not in _NUMBERS:
                raise OptionError(name, f"expected others for any plan with the other options, got {got}")
            numbers = sorted({_NUMBERS[name](choice) for choice in others})
            raise OptionError(name, f"expected {runs.one_of([*map(str, numbers)])} with the other options, got {got}")
        if any(True for _ in choices(given, limits, units, whatever=True)):
            return


def why_none(given: Given, found: Searched) -> str:
    """Return why a search came to no plan: none fits, which is proven, or none was found in the time."""
    system = given.request.options.system.name
    held = given.job.system.ipu.sram_bytes if given.job else None
    looked = (
        f"{found.choices} ways to lay the model out were looked at: {found.refused.total()} are refused by a rule, and "
        f"{found.too_large} fit under no cut"
    )
    cuts = f"{found.bounded:,} of their cuts were bounded, {found.assembled} plans assembled, none of which fits"
    if found.left is None:
        least = found.least_bytes or 0
        full = (
            f"the fullest IPU of any plan holds at least {format_bytes(least)}, and each IPU has {format_bytes(held)}"
            if held is not None and least > held
            else "each cut of each way to lay the model out leaves some IPU too full"
        )
        return (
            f"No plan fits {system}, which is proven: {full}. {looked}; {cuts}. "
            "Take more IPUs, or smaller micro-batches."
        )
    clock = given.job.system.clock_hz if given.job else None
    fastest = "" if clock is None else f", of which none is faster than {format_seconds(found.left / clock)}"
    return (
        f"No plan was found, and that none fits {system} is not proven: {found.stopped} ended the search. {looked}; "
        f"{cuts}. Still open are {found.open} ways{fastest}. Take more time, or search less (ipus, stages, "
        "schedules)."
    )


def _reasons(found: Searched) -> list[Problem]:
    (reason, _), *_ = found.refused.most_common(1)
    return [Problem((), f"every plan is refused, most of them so: {reason.splitlines()[0]}")]


def _near(given: Given, limits: Limits, units: Units, search: Search, batch: int) -> str:
    """Return the nearest global batches that some choice takes, below and above."""
    steps = {each for choice in choices(given, limits, units, whatever=True) if (each := search.step_of(choice))}
    below = max((batch // step * step for step in steps), default=0)
    above = min((-(-(batch + 1) // step) * step for step in steps), default=0)
    near = [str(each) for each in (below, above) if each]
    return f"; the nearest are {' and '.join(near)}" if near else ""
