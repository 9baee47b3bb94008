"""Explain why a search has no plan: contradictory limits, proof that no plan fits, or too little time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ipusim.api import Problem, RequestError, analysis, runs
from ipusim.app.explain.memory_candidates import PRODUCTS_IN_HALF
from ipusim.app.explain.memory_moves import is_long, memory_moves
from ipusim.app.explain.memory_words import options_of
from ipusim.app.suggest.baseline import Baseline
from ipusim.app.suggest.choices import Choice, choices
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.search import Search
from ipusim.app.suggest.searched import Searched
from ipusim.app.suggest.units import Units
from ipusim.base.errors import OptionError
from ipusim.base.units import counted, format_bytes, format_seconds

#: Numeric limits that may exclude every plan, with the limited number of a choice; messages name the first such limit.
_NUMBERS: Final[dict[str, Callable[[Choice], int]]] = {
    "stages": lambda choice: choice.stages,
    "replicas": lambda choice: choice.replicas,
    "ipus": lambda choice: choice.ipus,
    "micro_batch_sizes": lambda choice: choice.micro_batch_size,
}
#: Maximum number of oversized layers per message.
_MOST_UNITS: Final = 3
#: Further limits that may exclude every plan.
_WORDS: Final = ("placements", "recompute", "offload", "sharding", "activations")


def refuse_limits(baseline: Baseline, limits: Limits, search: Search) -> None:
    """Raise an error if the limits or a rule exclude all plans.

    Raises:
        OptionError: if a limit excludes all plans.
        RequestError: if a rule refuses all plans.
    """
    outcome = search.searched
    units = search.units(limits.sizes_of(baseline)[0])
    if not outcome.choices:
        _refuse_option(baseline, limits, units)
    if not outcome.choices or (outcome.refused.total() == outcome.choices and not outcome.too_large):
        if outcome.choices and not any("multiple" in reason for reason in outcome.refused):
            (reason, _), *_ = outcome.refused.most_common(1)
            first = reason.splitlines()[0]
            raise RequestError([Problem((), f"every plan is refused, most of the plans with this message: {first}")])
        batch = limits.global_batch or baseline.global_batch
        nearest_text = _nearest_batches(baseline, limits, units, search, batch)
        raise OptionError(
            "global_batch", f"expected a number of samples that some plan divides, got {batch}{nearest_text}"
        )


def _refuse_option(baseline: Baseline, limits: Limits, units: Units) -> None:
    """Raise OptionError for the first limit whose removal would allow plans.

    Without such a limit, the search for one repeats without regard to the global batch.
    """
    for whatever in (False, True):
        for name in (*_NUMBERS, *_WORDS):
            values = getattr(limits, name)
            if values is None:
                continue
            alternatives = [*choices(baseline, replace(limits, **{name: None}), units, whatever=whatever)]
            if not alternatives:
                continue
            values_text = ", ".join(map(str, values))
            if name not in _NUMBERS:
                raise OptionError(name, f"expected other values for a plan with the other options, got {values_text}")
            numbers = sorted({_NUMBERS[name](choice) for choice in alternatives})
            raise OptionError(
                name, f"expected {runs.one_of([*map(str, numbers)])} with the other options, got {values_text}"
            )
        if any(True for _ in choices(baseline, limits, units, whatever=True)):
            return


def why_none(baseline: Baseline, outcome: Searched, *, is_halved: bool) -> str:
    """Explain a search without a plan: proof of too little memory, or end of the budget.

    Args:
        baseline: given plan.
        outcome: result of the last search.
        is_halved: whether plans with products in half their memory were searched too.
    """
    system = baseline.request.options.system.name
    sram_bytes = baseline.job.system.ipu.sram_bytes if baseline.job else None
    if outcome.skipped_bound is None:
        least = max([outcome.least_bytes or 0, *outcome.least_of_units.values()])
        full = "with every layout and every cut, at least one IPU is too full"
        if sram_bytes is not None and least > sram_bytes:
            memory_text = f"and each IPU has {format_bytes(sram_bytes)}"
            full = f"the fullest IPU of any plan holds at least {format_bytes(least)}, {memory_text}"
        large = _too_large(baseline, outcome)
        advice = _advice(baseline, is_single=bool(large))
        halved = f", also with {PRODUCTS_IN_HALF}," if is_halved else ","
        return f"No plan in the search fits {system}{halved} which is proven: {full}. {large}{outcome.words()} {advice}"
    clock = baseline.job.system.clock_hz if baseline.job else None
    fastest = "" if clock is None else f", with no plan faster than {format_seconds(outcome.skipped_bound / clock)}"
    when = "after" if outcome.assembled else "before"
    return (
        f"No plan was found yet, nor a proof that no plan fits {system}: {outcome.end_reason} ended the search {when} "
        "the first try of a plan. Give more time with the option `seconds` (`inf`: until a plan is proven the best), "
        f"or limit the search by `stages`, `ipus` or `schedules`. {outcome.words()} Still open: "
        f"{counted(outcome.open_choices, 'layout')}{fastest}."
    )


def _advice(baseline: Baseline, *, is_single: bool) -> str:
    """Return advice: an option outside the search, or ways to use less memory.

    Args:
        baseline: given plan.
        is_single: whether a single layer is too large for an IPU, so that more IPUs do not help.
    """
    moves = (
        ()
        if baseline.job is None or is_long(baseline.job)
        else memory_moves(baseline.job, with_longer_parts=False).moves
    )
    if moves and analysis.fits_or_unknown((move := moves[0]).fits):
        return f"The given plan fits with {move.words}: {options_of(move.changes)}"
    smaller = baseline.micro_batch_size > 1
    if is_single:
        return f"More IPUs do not help{', smaller micro-batches may' * smaller}."
    return f"Use more IPUs{', or smaller micro-batches' * smaller}."


def _too_large(baseline: Baseline, outcome: Searched) -> str:
    """Return a sentence on layers, or given stages, too large for an IPU."""
    units, least = outcome.units, outcome.least_of_units
    if baseline.job is None or units is None:
        return ""
    sram_bytes = baseline.job.system.ipu.sram_bytes
    large = [name for name in sorted(least, key=lambda name: -least[name]) if least[name] > sram_bytes]
    if not large:
        return ""
    profiles = dict(zip(units.names, units.profiles, strict=True))
    texts = []
    for name in large[:_MOST_UNITS]:
        trained_elements = sum(elements for elements, _ in profiles[name].accumulator_tensors)
        weights = f" with its {trained_elements:,} weights" if trained_elements else ""
        excess = format_bytes(least[name] - sram_bytes)
        texts.append(f"{name}{weights} ({format_bytes(least[name])} at least, {excess} too much)")
    noun = "layer" if units.movable else "stage"
    rest_text = f" and {len(large) - _MOST_UNITS} more" if len(large) > _MOST_UNITS else ""
    subject = f"This {noun} is" if len(large) == 1 else f"Each of these {noun}s is"
    return f"{subject} too large for an IPU on its own, wherever the model is cut: {', '.join(texts)}{rest_text}. "


def _nearest_batches(baseline: Baseline, limits: Limits, units: Units, search: Search, batch: int) -> str:
    """Return the nearest global batches below and above ``batch`` that some choice divides."""
    steps = {step for choice in choices(baseline, limits, units, whatever=True) if (step := search.step_of(choice))}
    lower = max((batch // step * step for step in steps), default=0)
    upper = min((-(-(batch + 1) // step) * step for step in steps), default=0)
    nearest_text = [str(step) for step in (lower, upper) if step]
    return f"; the nearest are {' and '.join(nearest_text)}" if nearest_text else ""
