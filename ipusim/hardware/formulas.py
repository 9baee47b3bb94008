"""Formulas: cycles that know where they come from.

A formula is a function of numbers, in ``*``, ``/``, ``+``, ``-`` and ``ceil``, which is written once: of fractions and
whole numbers it gives cycles, of :class:`Written` numbers its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import Any, Self

#: How strongly the parts of a text hold together: a sum, a product, a number or a function.
_SUM, _PRODUCT, _ATOM = range(3)


@dataclass(frozen=True)
class Written:
    """A number in the text of a formula: arithmetic with it gives longer texts.

    Attributes:
        text: the formula.
        binding: how strongly its parts hold together.
    """

    text: str
    binding: int = _ATOM

    def within(self, least: int) -> str:
        """Return the text, in parentheses where it holds together less than ``least``."""
        return self.text if self.binding >= least else f"({self.text})"

    def addend(self, times: int) -> str:
        """Return the text as it stands in a sum so many times."""
        return self.text if times == 1 else f"{times} * {self.within(_PRODUCT)}"

    def __pos__(self) -> Written:
        """Return the same in parentheses, where a formula has it stand by itself."""
        return Written(self.within(_PRODUCT))

    def __add__(self, other: Any) -> Written:
        """Return a sum."""
        return Written(f"{self.text} + {written(other).text}", _SUM)

    def __radd__(self, other: Any) -> Written:
        """Return a sum; of ``sum`` the first addend, as the 0 that it begins with is none."""
        return self if isinstance(other, int) and not other else written(other) + self

    def __sub__(self, other: Any) -> Written:
        """Return a difference."""
        return Written(f"{self.text} - {written(other).within(_PRODUCT)}", _SUM)

    def __mul__(self, other: Any) -> Written:
        """Return a product."""
        return Written(f"{self.within(_PRODUCT)} * {written(other).within(_PRODUCT)}", _PRODUCT)

    def __rmul__(self, other: Any) -> Written:
        """Return a product."""
        return written(other) * self

    def __truediv__(self, other: Any) -> Written:
        """Return a quotient."""
        return Written(f"{self.within(_PRODUCT)} / {written(other).within(_ATOM)}", _PRODUCT)

    def __ceil__(self) -> Written:
        """Return the text of the rounded-up value; a whole number stays as it is."""
        return self if self.text.isdecimal() else Written(f"ceil({self.text})")


class _Formula:
    """The value of a formula of some numbers, a function of a module; at least one number is a fraction, or none."""

    formula: Callable[..., Any]
    numbers: tuple[Any, ...]

    def __new__(cls, formula: Callable[..., Any], *numbers: Any) -> Self:
        """Return the value of ``formula`` for ``numbers``."""
        value = super().__new__(cls, formula(*numbers))  # type: ignore[call-arg]  # of a number
        value.formula, value.numbers = formula, numbers
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments of a copy in another process."""
        return type(self), (self.formula, *self.numbers)

    def __copy__(self) -> Self:
        """Return itself, which never changes."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Return itself, which never changes."""
        return self

    def written(self) -> Written:
        """Return the formula in numbers."""
        text: Written = self.formula(*map(written, self.numbers))
        return text


class Cycles(_Formula, int):
    """Whole cycles, the value of a formula.

    >>> Cycles(whole, Fraction(5, 2))
    3
    >>> written(Cycles(whole, Fraction(5, 2))).text
    'ceil(2.5)'
    """


class Amount(_Formula, Fraction):
    """An amount, the value of a formula that rounds nothing."""


class Sum(int):
    """Whole cycles that are the sum of some cycles, each so many times.

    >>> Sum(((3, 2), (4, 1)))
    10
    """

    parts: tuple[tuple[int, int], ...]

    def __new__(cls, parts: tuple[tuple[int, int], ...]) -> Sum:
        """Return the sum of ``parts``: cycles, and how often they count."""
        cycles = super().__new__(cls, sum(part * times for part, times in parts))
        cycles.parts = parts
        return cycles

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the arguments of a copy."""
        return (self.parts,)


def addends(cycles: int) -> Iterator[tuple[int, int]]:
    """Yield the addends of ``cycles`` and how often each counts; a number that is no sum is its own addend, once."""
    if isinstance(cycles, Sum):
        yield from ((addend, times * often) for part, times in cycles.parts for addend, often in addends(part))
    else:
        yield cycles, 1


def written(value: Any) -> Written:
    """Return a number as it stands in formulas: cycles with the formula that they came from."""
    if isinstance(value, Written):
        return value
    return value.written() if isinstance(value, Cycles | Amount) else Written(number(value))


def number(value: Fraction | int) -> str:
    """Return a number as formulas have it: exact, a decimal where it is one of few digits."""
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    text = f"{float(exact):.12g}"
    return text if Fraction(text) == exact else f"({exact.numerator} / {exact.denominator})"


def total(*parts: Any) -> Any:
    """Return the sum of some cycles."""
    return sum(parts)


def product(*factors: Any) -> Any:
    """Return the product of some numbers."""
    return prod(factors[1:], start=factors[0])


def longest(*parts: Any) -> Any:
    """Return the largest of some cycles."""
    if any(isinstance(part, Written) for part in parts):
        return Written(f"max({', '.join(written(part).text for part in parts)})")
    return max(parts)


def whole(cycles: Any) -> Any:
    """Return cycles rounded up."""
    return ceil(cycles)


def joined(*parts: int) -> Cycles:
    """Return the sum of cycles, in whose formula those are left out that are 0."""
    return Cycles(total, *(cycles for cycles in parts if cycles))
