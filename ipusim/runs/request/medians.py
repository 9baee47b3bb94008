"""Reduce several measurements of a stage to medians, key by key, in the measured unit."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from ipusim.base.units import parse_quantity
from ipusim.runs.request.fields import CLOCK_HZ, CyclesOfTime
from ipusim.runs.request.model_spec import StageCyclesSpec

_Spec = TypeVar("_Spec", bound=StageCyclesSpec)
_MICROSECONDS_PER_SECOND = 10**6


def median(measurements: Sequence[_Spec], clock_hz: int) -> _Spec:
    """Return the median of each key over the measurements that have the key.

    For an even number, the result is the mean of the middle two: a mean of times is a time, converted to cycles by
    ``clock_hz``; a mean of cycles is rounded up. Values other than numbers come from the first measurement.

    >>> first, second = (StageCyclesSpec(forward=cycles) for cycles in (10, 13))
    >>> median([first, second], 10**9).forward
    12
    """
    if len(measurements) == 1:
        return measurements[0]
    kind = type(measurements[0])
    medians: dict[str, object] = {}
    for name in kind.model_fields:
        values = [getattr(spec, name) for spec in measurements if name in spec.model_fields_set]
        if values and isinstance(values[0], int):
            values.sort(key=lambda value: _seconds(value, clock_hz))
            middle = values[(len(values) - 1) // 2 : len(values) // 2 + 1]
            are_equal = _seconds(middle[0], clock_hz) == _seconds(middle[-1], clock_hz)
            medians[name] = _as_written(middle[0]) if are_equal else _mean(middle, len(middle))
        elif values:
            medians[name] = values[0]
    return kind.model_validate(medians, context={CLOCK_HZ: clock_hz})


def _mean(values: Sequence[int], count: int) -> object:
    """Return the mean of ``values``, as a text for times. Means of cycles or bytes are rounded up to a whole number."""
    if all(isinstance(value, CyclesOfTime) for value in values):
        texts = [value.text for value in values if isinstance(value, CyclesOfTime)]
        seconds = sum((parse_quantity(text, "seconds") for text in texts), Fraction(0)) / count
        return f"{_decimal(seconds * _MICROSECONDS_PER_SECOND)} us"
    return -(-sum(values) // count)


def _seconds(value: int, clock_hz: int) -> Fraction:
    """Return the exact seconds of a time as written, or of cycles; different times may round to equal cycles."""
    return parse_quantity(value.text, "seconds") if isinstance(value, CyclesOfTime) else Fraction(value, clock_hz)


def _as_written(value: object) -> object:
    """Return a value as written."""
    return value.text if isinstance(value, CyclesOfTime) else value


def _decimal(number: Fraction) -> str:
    """Return all digits of a number with a finite decimal expansion, such as a sum of times as written."""
    return f"{Decimal(number.numerator) / Decimal(number.denominator):f}"
