"""Compute cycles by formulas, and keep each formula with its result, for tables of costs.

A formula is a Python function that uses ``*``, ``/``, ``+``, ``-`` and ``ceil``. Called with fractions and whole
numbers, it returns cycles; called with :class:`FormulaText` numbers, it returns the formula's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import Any, Self

#: Binding strength of a text: a sum, a product, a number or a function.
_SUM, _PRODUCT, _ATOM = range(3)


@dataclass(frozen=True)
class FormulaText:
    """A number in the text of a formula; arithmetic builds longer texts.

    Attributes:
        text: the formula.
        binding: binding strength of the text.
    """

    text: str
    binding: int = _ATOM

    def operand(self, least: int) -> str:
        """Return the text, in parentheses if its binding is weaker than ``least``."""
        return self.text if self.binding >= least else f"({self.text})"

    def addend(self, times: int) -> str:
        """Return the text of an addend that occurs ``times`` times in a sum."""
        return self.text if times == 1 else f"{times} * {self.operand(_PRODUCT)}"

    def __pos__(self) -> FormulaText:
        """Return the number; sums get parentheses."""
        return FormulaText(self.operand(_PRODUCT))

    def __add__(self, other: Any) -> FormulaText:
        """Return a sum."""
        return FormulaText(f"{self.text} + {formula_text(other).text}", _SUM)

    def __radd__(self, other: Any) -> FormulaText:
        """Return a sum; the initial 0 of ``sum`` is dropped."""
        return self if isinstance(other, int) and not other else formula_text(other) + self

    def __sub__(self, other: Any) -> FormulaText:
        """Return a difference."""
        return FormulaText(f"{self.text} - {formula_text(other).operand(_PRODUCT)}", _SUM)

    def __mul__(self, other: Any) -> FormulaText:
        """Return a product."""
        return FormulaText(f"{self.operand(_PRODUCT)} * {formula_text(other).operand(_PRODUCT)}", _PRODUCT)

    def __rmul__(self, other: Any) -> FormulaText:
        """Return a product."""
        return formula_text(other) * self

    def __truediv__(self, other: Any) -> FormulaText:
        """Return a quotient."""
        return FormulaText(f"{self.operand(_PRODUCT)} / {formula_text(other).operand(_ATOM)}", _PRODUCT)

    def __ceil__(self) -> FormulaText:
        """Return the text of the rounded-up value; a whole number stays unchanged."""
        return self if self.text.isdecimal() else FormulaText(f"ceil({self.text})")


class _Formula:
    """Formula value for numbers, possibly fractions. Formulas are module-level functions."""

    formula: Callable[..., Any]
    numbers: tuple[Any, ...]

    def __new__(cls, formula: Callable[..., Any], *numbers: Any) -> Self:
        """Return the value of ``formula`` for ``numbers``."""
        value = super().__new__(cls, formula(*numbers))  # type: ignore[call-arg]  # the second base is a number class
        value.formula, value.numbers = formula, numbers
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        """Return arguments for a copy, even in another process."""
        return type(self), (self.formula, *self.numbers)

    def __copy__(self) -> Self:
        """Return the same immutable object."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Return the same immutable object."""
        return self

    def as_text(self) -> FormulaText:
        """Return the formula's text with numbers."""
        text: FormulaText = self.formula(*map(formula_text, self.numbers))
        return text


class Cycles(_Formula, int):
    """Whole cycles: a formula's value.

    >>> Cycles(whole, Fraction(5, 2))
    3
    >>> formula_text(Cycles(whole, Fraction(5, 2))).text
    'ceil(2.5)'
    """


class Amount(_Formula, Fraction):
    """An amount: a formula's value without rounding."""


class Sum(int):
    """Whole cycles, the sum of parts with multiplicities.

    >>> Sum(((3, 2), (4, 1)))
    10
    """

    parts: tuple[tuple[int, int], ...]

    def __new__(cls, parts: tuple[tuple[int, int], ...]) -> Sum:
        """Return the sum of ``parts``: pairs of cycles and multiplicity."""
        cycles = super().__new__(cls, sum(part * times for part, times in parts))
        cycles.parts = parts
        return cycles

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return arguments for a copy."""
        return (self.parts,)


def addends(cycles: int) -> Iterator[tuple[int, int]]:
    """Yield the addends of ``cycles`` with multiplicities; plain numbers have a single addend."""
    if isinstance(cycles, Sum):
        yield from (
            (addend, outer_times * times) for part, outer_times in cycles.parts for addend, times in addends(part)
        )
    else:
        yield cycles, 1


def formula_text(value: Any) -> FormulaText:
    """Return the text of a number in a formula; the text of a formula's value is this formula."""
    if isinstance(value, FormulaText):
        return value
    return value.as_text() if isinstance(value, Cycles | Amount) else FormulaText(number(value))


def number(value: Fraction | int) -> str:
    """Return a number's text: an exact short decimal if possible, else a fraction."""
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    text = f"{float(exact):.12g}"
    return text if Fraction(text) == exact else f"({exact.numerator} / {exact.denominator})"


def total(*parts: Any) -> Any:
    """Return the sum of ``parts``."""
    return sum(parts)


def product(*factors: Any) -> Any:
    """Return the product of ``factors``."""
    return prod(factors[1:], start=factors[0])


def longest(*parts: Any) -> Any:
    """Return the largest of ``parts``."""
    if any(isinstance(part, FormulaText) for part in parts):
        return FormulaText(f"max({', '.join(formula_text(part).text for part in parts)})")
    return max(parts)


def whole(cycles: Any) -> Any:
    """Return cycles rounded up."""
    return ceil(cycles)


def join(*parts: int) -> Cycles:
    """Return the sum of cycles, leaving zeros out of the formula."""
    return Cycles(total, *(cycles for cycles in parts if cycles))
