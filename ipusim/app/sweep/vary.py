"""Parse the axes of a sweep: options with values, crossed (all combinations) or varied together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import product
from math import prod
from typing import Any, Final

from ipusim.api import runs
from ipusim.app.render.tables import text_of
from ipusim.base.errors import OptionError

#: Maximum number of points of a sweep: a quarter of an hour at a hundredth of a second per point.
MOST_POINTS: Final = 100_000
#: Upper bound of numbers in a range.
_LARGEST_NUMBER: Final = float(runs.NUMBER_LIMIT)
#: Digits of numbers in a range, more than any bound has; without a limit, powers of 1.0001 get ever more digits.
_RANGE_CONTEXT: Final = Context(prec=200, traps=[])
#: Number in a range.
_NUMBER: Final = r"[+-]?[0-9]{1,60}(?:\.[0-9]{1,60})?(?:[eE][+-]?[0-9]{1,3})?"
#: Range: first and last number, ``x`` or ``+``, and step.
_RANGE: Final = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*([x+])\s*({_NUMBER})\s*")
#: Text that begins like a range, and is refused unless valid.
_RANGE_START: Final = re.compile(r"\s*[+-]?\d[\d.]*(?:[eE][+-]?\d+)?\s*\.\.")
#: Keys of many mappings; an axis needs a more specific name.
_COMMON_KEYS: Final = ("name", "type")
#: List whose items are named in a path.
_NAMED_ITEMS: Final = "stages"
#: Examples of ranges for messages.
_EXAMPLES: Final = "8..256x2 (8, 16, 32 and so on up to 256) or 8..64+8 (8, 16, 24 and so on up to 64)"


@dataclass(frozen=True)
class Axis:
    """Option with its values, as in a scenario.

    Attributes:
        path: option, as in ``--set``.
        values: values in order.
    """

    path: str
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Last key of the path, with preceding keys if it is ambiguous, as in ``system.name``."""
        parts = self.path.split(".")
        first = len(parts) - 1
        while first and (
            parts[first] in _COMMON_KEYS
            or parts[first].isdecimal()
            or parts[first - 1].isdecimal()
            or (first > 1 and parts[first - 2] == _NAMED_ITEMS)
        ):
            first -= 1
        return ".".join(parts[first:])

    @property
    def is_numeric(self) -> bool:
        """Whether every value is a number."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


def names_of(axes: Sequence[Axis]) -> tuple[str, ...]:
    """Return the names of axes, extended with keys of their paths until they are distinct.

    >>> names_of([Axis("model.seed", (1, 2)), Axis("data.seed", (1, 2)), Axis("steps", (1, 2))])
    ('model.seed', 'data.seed', 'steps')
    """
    names = [axis.name for axis in axes]
    while len(set(names)) < len(names):
        long_names = [
            ".".join(axis.path.split(".")[-name.count(".") - 2 :]) for axis, name in zip(axes, names, strict=True)
        ]
        names = [long if names.count(name) > 1 else name for name, long in zip(names, long_names, strict=True)]
    return tuple(names)


def parse_axis(text: str) -> Axis:
    """Return the axis of ``PATH=VALUES``; values are YAML separated by commas, and ranges.

    Raises OptionError for any other text.

    >>> parse_axis("pipeline.gradient_accumulation_count=4,8..64x2").values
    (4, 8, 16, 32, 64)
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip():
        example = "pipeline.gradient_accumulation_count=16,32,64"
        raise OptionError("vary", f"expected PATH=VALUES, such as {example}, got {text!r}")
    return axis_of(path.strip(), values)


def axis_of(path: str, values: str | Iterable[Any]) -> Axis:
    """Return the axis of an option, from listed values or a text.

    Texts have the form of :func:`parse_axis`. Raises OptionError for missing values.
    """
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise OptionError("vary", f"{path}: expected values, such as [16, 32, 64], got {runs.show(values)}")
    keys = tuple(path.split("."))
    entries = _split_values(path, values) if isinstance(values, str) else [runs.plain(value, keys) for value in values]
    items = tuple(item for value in entries for item in _expand_range(path, value))
    if not items:
        raise OptionError("vary", f"{path}: expected values, such as 16,32,64 or a range, got none")
    return Axis(path, items)


def axes_of(options: Mapping[str, str | Iterable[Any]]) -> tuple[Axis, ...]:
    """Return the axes of options by path; raises OptionError for other types, and as :func:`axis_of` does."""
    if not hasattr(options, "items"):
        text = (
            'expected a mapping from options to values, such as {"pipeline.gradient_accumulation_count": [16, 32, 64]}'
        )
        raise OptionError("vary", f"{text}, got {runs.show(options)}")
    return tuple(axis_of(path, values) for path, values in options.items())


def points_of(axes: Sequence[Axis], vary_together: bool) -> tuple[tuple[Any, ...], ...]:
    """Return the values of the axes at every point.

    Axes vary together, or are crossed: then repeated values are dropped, and the last axis varies fastest. Raises
    OptionError if there are no axes, for a repeated option, for axes of different lengths that vary together, and for
    too many points.
    """
    if not axes:
        raise OptionError("vary", "expected options to vary, got none")
    paths = [axis.path for axis in axes]
    if repeated := sorted({path for path in paths if paths.count(path) > 1}):
        raise OptionError("vary", f"expected each option once, got {repeated[0]} a second time")
    if vary_together:
        lengths = {axis.path: len(axis.values) for axis in axes}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{number} of {path}" for path, number in lengths.items())
            raise OptionError("zip", f"expected equal numbers of values of all options, got {counts}")
        return tuple(zip(*(axis.values for axis in axes), strict=True))
    distinct = [list({text_of(value): value for value in axis.values}.values()) for axis in axes]
    number = prod(map(len, distinct))
    if number > MOST_POINTS:
        raise OptionError("vary", f"expected at most {MOST_POINTS} points, got {number}: vary less")
    return tuple(product(*distinct))


def _split_values(path: str, text: str) -> list[Any]:
    """Return the values of a text that has the form of a YAML list without its brackets."""
    reader = runs.Located(path)
    items = reader.read(f"[{text}\n]")
    if reader.problems or not isinstance(items, list):
        reason = reader.problems[0].text if reader.problems else f"got {runs.show(items)}"
        raise OptionError("vary", f"{path}: expected values with commas between them, got {text!r}: {reason}")
    return items


def _expand_range(path: str, value: Any) -> Iterator[Any]:
    """Yield a value, or the values of a range."""
    if not isinstance(value, str) or not _RANGE_START.match(value):
        yield value
        return
    if (match := _RANGE.fullmatch(value)) is None:
        raise OptionError("vary", f"{path}: expected a range such as {_EXAMPLES}, got {value!r}")
    first, last, operator, step = match.groups()
    numbers = [Decimal(first), Decimal(last), Decimal(step)]
    grows = numbers[2] > 1 and numbers[0] > 0 if operator == "x" else numbers[2] > 0
    if not grows or numbers[0] > numbers[1]:
        raise OptionError("vary", f"{path}: expected a range that grows, such as {_EXAMPLES}, got {value!r}")
    yield from _range(
        path, value, numbers, operator, has_integers=all(end.lstrip("+-").isdecimal() for end in (first, step))
    )


def _range(
    path: str, text: str, numbers: Sequence[Decimal], operator: str, *, has_integers: bool
) -> Iterator[int | float]:
    number, last, step = numbers
    if max(abs(number), last) >= runs.NUMBER_LIMIT:
        raise OptionError("vary", f"{path}: expected a range within {_LARGEST_NUMBER:.0e} of 0, got {runs.show(text)}")
    for _ in range(MOST_POINTS):
        yield int(number) if has_integers else float(number)
        number = _RANGE_CONTEXT.multiply(number, step) if operator == "x" else _RANGE_CONTEXT.add(number, step)
        if number > last:
            return
    raise OptionError("vary", f"{path}: expected a range of at most {MOST_POINTS} values, got {text!r}")
