"""Parse a scenario's expectations of figures: comparisons, ranges, whole numbers or names.

A figure is a named result of a run, such as its throughput; some figures have items, such as a peak for each IPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ipusim.analysis.figures import FIGURE_UNITS, FIGURES, Figure
from ipusim.analysis.fits import Fits
from ipusim.base.errors import QuantityError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import UNITS, parse_quantity
from ipusim.runs.problems import one_of, show
from ipusim.runs.request.fields import expects
from ipusim.runs.request.figure_names import figure_of, takes_item

#: Comparison signs and words, with two flags: lower bound, and inclusive bound.
_SIGNS: Final = {
    "<=": (False, True),
    ">=": (True, True),
    "<": (False, False),
    ">": (True, False),
    "at most": (False, True),
    "at least": (True, True),
    "less than": (False, False),
    "more than": (True, False),
}
#: Comparison: a sign or words, then a quantity.
_COMPARISON: Final = re.compile(rf"({'|'.join(_SIGNS)})\s*(.*)", re.DOTALL)
#: Range: two quantities, joined by words or by dots.
_RANGE: Final = re.compile(r"between\s+(.+?)\s+and\s+(.+)|(.+?)\s*\.\.\s*(.+)", re.DOTALL)
#: Quantity with a tolerance in per cent of the quantity, above, below or to both sides.
_TOLERANT: Final = re.compile(r"(.+?)\s*(\+-|±|\+|-)\s*([0-9]{1,4}(?:\.[0-9]{1,9})?)\s*%", re.DOTALL)
#: Signs of a tolerance to both sides.
_TO_BOTH_SIDES: Final = ("+-", "±")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,2})?")
_UNITLESS_NUMBER: Final = re.compile(r"[+-]?[\d_.]+(?:[eE][+-]?\d+)?")
#: Units whose numbers may be written without a unit.
_WITHOUT_UNIT: Final = ("share", "samples per second")
#: Values of the figure for fit in memory that can be expected; a run never has an unknown fit.
_ANSWERS: Final = (Fits.YES, Fits.WITHOUT_CODE, Fits.NO)
#: Maximum length of an expectation, in characters.
_MOST_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Expectation:
    """Expectation of a figure of a run.

    Attributes:
        name: name of the figure, with a dot and the item for a single item.
        text: expectation as written in the scenario.
        figure: expected figure.
        item: item of the figure; empty for the figure itself.
        least, most: bounds in the base unit.
        includes_bounds: whether values equal to a bound meet the expectation.
        equal: required name or whole number; None for a comparison or a range.
    """

    name: str
    text: str | int | float
    figure: Figure
    item: str = ""
    least: float = -math.inf
    most: float = math.inf
    includes_bounds: bool = True
    equal: str | int | None = None

    def holds(self, value: Any) -> bool:
        """Return whether a value of the figure meets the expectation."""
        if self.figure.names and isinstance(value, list):
            return self.equal in value
        if self.equal is not None:
            return bool(value == self.equal and type(value) is not bool)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.least <= value <= self.most if self.includes_bounds else self.least < value < self.most


def expectation(name: str, value: object) -> Expectation:
    """Parse the expectation of a named figure; raises QuantityError for invalid text."""
    figure, item = figure_of(name)
    if isinstance(value, str):
        value = value.strip()
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise QuantityError(f"expected {_description(figure)}, got {show(value)}")
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        raise QuantityError(f"expected {_description(figure)}, got a text of {len(value)} characters")
    bounds = _bounds(figure, value)
    if bounds is None:
        return Expectation(name, value, figure, item, equal=_equal(figure, value))
    least, most, includes_bounds = bounds
    if least > most or (least == most and not includes_bounds):
        raise QuantityError(f"expected the smaller bound first, got {show(value)}, an empty range")
    unit = FIGURE_UNITS[figure.unit]
    if least > unit.most or most < unit.least:
        limits = "a share from 0 % to 100 %" if figure.unit == "share" else f"{figure.unit} from 0 up"
        raise QuantityError(f"expected {limits}, got {show(value)}")
    return Expectation(name, value, figure, item, least, most, includes_bounds)


def _description(figure: Figure) -> str:
    """Return the kinds of expectations of a figure, as words after "expected"."""
    if figure.unit == "name":
        return f"a name such as {FIGURE_UNITS['name'].example}"
    if figure.unit == "fits":
        return one_of(_ANSWERS)
    return f"a comparison or a range such as {FIGURE_UNITS[figure.unit].example}"


def _bounds(figure: Figure, value: str | int | float) -> tuple[float, float, bool] | None:
    """Return lower bound, upper bound and whether both are inclusive; None without comparison or range."""
    if not isinstance(value, str):
        return None
    comparison, range_match = _COMPARISON.fullmatch(value), _RANGE.fullmatch(value)
    if figure.unit == "share" and _TOLERANT.fullmatch(value):
        raise QuantityError(f"expected a share without a tolerance, or a range such as 18 %..22 %, got {show(value)}")
    if (comparison or range_match) and figure.unit in ("name", "fits"):
        hint = "; did you mean peak, which takes bytes?" if figure.unit == "fits" else ""
        raise QuantityError(f"expected {_description(figure)}, got {show(value)}{hint}")
    if comparison:
        from_below, includes_bounds = _SIGNS[comparison[1]]
        limit = _quantity(figure, comparison[2], value)
        return (limit, math.inf, includes_bounds) if from_below else (-math.inf, limit, includes_bounds)
    if range_match is None:
        around = _TOLERANT.fullmatch(value)
        if around is None or around[2] not in _TO_BOTH_SIDES or figure.unit in ("name", "fits"):
            return None
        middle = _quantity(figure, around[1], value)
        tolerance = _tolerance(middle, around)
        return middle - tolerance, middle + tolerance, True
    low, high = (end.strip() for end in (range_match[1] or range_match[3], range_match[2] or range_match[4]))
    if _UNITLESS_NUMBER.fullmatch(low):  # the upper bound's unit applies to both bounds
        low += high[number.end() :] if (number := _UNITLESS_NUMBER.match(high)) else ""
    return _quantity(figure, low, value), _quantity(figure, high, value), True


def _quantity(figure: Figure, text: str, value: object) -> float:
    """Return the bound ``text`` in the figure's base unit; ``value`` is the whole expectation, for messages.

    A tolerance such as ``+ 2 %`` is relative to the quantity before it.
    """
    if tolerant := _TOLERANT.fullmatch(text):
        if tolerant[2] in _TO_BOTH_SIDES:
            raise QuantityError(f"expected a bound with a tolerance on one side, such as + 2 %, got {show(value)}")
        bound = _quantity(figure, tolerant[1], value)
        return bound + (1 if tolerant[2] == "+" else -1) * _tolerance(bound, tolerant)
    if figure.unit not in UNITS:
        if not _NUMBER.fullmatch(text):
            raise QuantityError(f"expected {_description(figure)}, got {show(value)}")
        return float(Fraction(text))
    quantity = float(parse_quantity(text, figure.unit))
    example = UNITS[figure.unit][1]
    if _UNITLESS_NUMBER.fullmatch(text) and figure.unit not in _WITHOUT_UNIT:
        raise QuantityError(f"expected {figure.unit} with a unit, such as {example}, got {show(value)}")
    if _UNITLESS_NUMBER.fullmatch(text) and figure.unit == "share" and 1 < quantity <= 100:
        raise QuantityError(f"expected a share from 0 to 1 or with %, got {show(value)}; did you mean {text} %?")
    return quantity


def _tolerance(quantity: float, match: re.Match[str]) -> float:
    """Return the tolerance of a quantity in its unit, from a match of ``_TOLERANT``."""
    return abs(quantity) * float(match[3]) / 100


def _equal(figure: Figure, value: str | int | float) -> str | int:
    """Return the expected name or whole number; raises QuantityError for a figure of another kind."""
    if figure.unit == "fits":
        if value not in _ANSWERS:
            raise QuantityError(f"expected {_description(figure)}, got {show(value)}{did_you_mean(value, _ANSWERS)}")
        return str(value)
    if figure.unit in ("count", "any") and isinstance(value, int):
        return value
    if figure.unit in ("name", "any") and isinstance(value, str):
        return value
    if figure.unit == "count" and isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    hint = "" if figure.unit in ("name", "count") else _with_sign(figure, value)
    raise QuantityError(f"expected {_description(figure)}, got {show(value)}{hint}")


def _with_sign(figure: Figure, value: str | int | float) -> str:
    """Return a hint that makes a bare quantity a comparison; empty for another text."""
    try:
        _quantity(figure, str(value).removeprefix("=").removeprefix("=").strip(), value)
    except QuantityError:
        return ""
    sign = "at most" if figure.less_is_better else "at least"
    return f"; did you mean {sign} {value}?" if "=" not in str(value) else ""


@dataclass(frozen=True)
class _NamedValue:
    """Value with the name of its figure during validation."""

    name: str
    value: object


class ExpectationsField:
    """Annotation of a field for expectations, keyed by figure name."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's validation of the field."""
        keys = core_schema.no_info_plain_validator_function(_key)
        dumped = core_schema.plain_serializer_function_ser_schema(_dumped)
        values = core_schema.no_info_plain_validator_function(_value, serialization=dumped)
        mapping = core_schema.dict_schema(keys, values, strict=True)
        return core_schema.no_info_before_validator_function(_name_values, mapping)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe all figures of the table, and allow further paths."""
        kinds: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "object"}]}
        properties = {
            figure.name: {**kinds, "description": f"{figure.meaning}; such as {FIGURE_UNITS[figure.unit].example}"}
            for figure in FIGURES
        }
        words = "a mapping from figures to expected values, such as {memory: fits}"
        return {"type": "object", "properties": properties, "patternProperties": {".": kinds}, **expects(words)}


def _dumped(value: Expectation | Mapping[str, Expectation]) -> Any:
    """Return an expectation's text."""
    return value.text if isinstance(value, Expectation) else {item: inner.text for item, inner in value.items()}


def _name_values(value: object) -> object:
    return {key: _NamedValue(str(key), inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _key(name: object) -> str:
    figure_of(str(name))
    return str(name)


def _value(entry: _NamedValue) -> Expectation | dict[str, Expectation]:
    try:
        figure, item = figure_of(entry.name)
    except QuantityError:  # reported for the key
        return {}
    if not isinstance(entry.value, Mapping):
        return expectation(entry.name, entry.value)
    if item or not takes_item(figure):
        raise QuantityError(f"expected {_description(figure)}, got {show(entry.value)}")
    return {str(key): expectation(f"{entry.name}.{key}", value) for key, value in entry.value.items()}
