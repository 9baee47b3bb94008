"""Parse changes written as ``pipeline.gradient_accumulation_count=128 rates.link=x2``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from ipusim.api import Job, RequestError, Sync, hardware, runs
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

_FACTOR: Final = re.compile(r"x(\d+(?:\.\d+)?)")
_NUMBER: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(.*)", re.DOTALL)
_EXAMPLE: Final = "pipeline.gradient_accumulation_count=128 or rates.link=x2"


def settings(job: Job, text: str) -> dict[str, Any]:
    """Return the options of a change with values; ``x2`` means twice the value in ``job``.

    Raises OptionError for a text without a valid change, and for a factor of an option without a number.
    """
    values: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OptionError("what", f"expected changes such as {_EXAMPLE}, got {text!r}: {error}") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise OptionError("what", f"expected changes such as {_EXAMPLE}, got {word!r}")
        if name in values:
            raise OptionError("what", f"expected each option once in a change, got {name} again in {text!r}")
        factor = _FACTOR.fullmatch(value)
        values[name] = _read(name, value) if factor is None else _multiplied(job, name, Fraction(factor[1]))
    if not values:
        raise OptionError("what", f"expected changes such as {_EXAMPLE}, got {text!r}")
    if job.request.leaves_costs_open(values):
        reason = "the cycles of the stages are for one micro-batch size"
        raise OptionError(
            "what", f"pipeline.micro_batch_size: expected new cycles of stages with a new size, because {reason}"
        )
    return values


def _read(name: str, text: str) -> Any:
    """Parse a YAML value."""
    located = runs.Located("--what")
    try:
        value = located.read(text)
        problems = [problem.text for problem in located.problems]
    except RequestError as error:
        value, problems = None, [problem.text for problem in error.problems]
    if problems:
        raise OptionError("what", f"{name}: {'; '.join(problems)}")
    return value


def _multiplied(job: Job, name: str, factor: Fraction) -> Any:
    """Return an option's value in a Job, multiplied by a factor."""
    rates = {f"rates.{rate.name}": rate for rate in hardware.RATES}
    if name in rates:
        rate = rates[name]
        value = factor * Fraction(getattr(job.system.rates, rate.attribute))
        unit = {"bytes/s": " B/s", "ns": " ns", "B": " B"}.get(rate.unit, "")
        return f"{_decimal(value)}{unit}" if unit else _plain(value)
    value = _value(job, name.split("."))
    if isinstance(value, str) and (number := _NUMBER.fullmatch(value)):
        return f"{_decimal(Fraction(number[1]) * factor)} {number[2]}"
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        reason = "which has none" if value is None else f"which is {runs.show(value)}"
        raise OptionError(
            "what", f"{name}: expected an option with a number to multiply by {float(factor):g}, {reason}"
        )
    return _plain(Fraction(str(value)) * factor)


def _value(job: Job, names: list[str]) -> Any:
    """Return the requested value of an option, or its default; None if the option has no default."""
    value: Any = job.request.to_dict()
    for key in names:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list):
            value = next((item for item in value if isinstance(item, Mapping) and item.get("name") == key), None) or (
                value[int(key)] if key.isdecimal() and int(key) < len(value) else None
            )
        else:
            value = None
    if value is not None:
        return value
    default: Any = job.request.options
    for key in names:
        default = getattr(default, key, None)
    return default


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _decimal(value: Fraction) -> str:
    return str(int(value)) if value.denominator == 1 else f"{float(value):.17g}"


def sync_modes(names: Iterable[str]) -> tuple[Sync, ...]:
    """Return the named sync modes; raises OptionError for unknown names."""
    names, modes = [name.lower() for name in names], [*map(str, Sync)]
    for name in names:
        if name not in modes:
            text = f"expected {runs.one_of(modes)}, got {runs.show(name)}{did_you_mean(name, modes)}"
            raise OptionError("sync", text)
    return tuple(dict.fromkeys(map(Sync, names)))
