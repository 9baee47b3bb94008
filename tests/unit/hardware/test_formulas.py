"""A formula gives its value and its text from one definition; cycles keep it through copies and files."""

import copy
import math
import pickle
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.formulas import (
    Amount,
    Cycles,
    FormulaText,
    Sum,
    formula_text,
    number,
    product,
    whole,
)

NUMBERS = st.one_of(st.integers(1, 10**12).map(Fraction), st.fractions(Fraction(1, 100), 10**6, max_denominator=1000))


def value_of(text):
    exact = re.sub(r"\d+(?:\.\d+)?", lambda digits: f"Fraction('{digits[0]}')", text)
    return eval(exact, {"Fraction": Fraction, "ceil": math.ceil})


TREES = st.recursive(
    NUMBERS,
    lambda trees: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "sum", "()"]), trees, trees), st.tuples(st.just("ceil"), trees)
    ),
    max_leaves=8,
)


#: The value of each sign for one or two numbers, or texts; nothing is divided by 0.
SIGNS = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one / (other * other + 1),
    "sum": lambda one, other: sum([one, other]),
    "()": lambda one, other: +(one + other),
    "ceil": lambda one: math.ceil(one) if isinstance(one, FormulaText) else Fraction(math.ceil(one)),
}


def carried_out(tree, leaf):
    """Return what a formula gives of numbers, or of their texts."""
    if isinstance(tree, Fraction):
        return leaf(tree)
    sign, *parts = tree
    return SIGNS[sign](*(carried_out(part, leaf) for part in parts))


@given(TREES)
def test_a_text_comes_to_the_value(tree):
    value = carried_out(tree, Fraction)
    assert value_of(formula_text(carried_out(tree, formula_text)).text) == value


def less(cycles, hidden):
    return math.ceil(cycles) - hidden


def test_a_difference_that_counts_several_times_stands_in_parentheses():
    """Else ``3 * ceil(4.5) - 2`` stood for what comes to 9."""
    cycles = Cycles(less, Fraction(9, 2), 2)
    assert formula_text(cycles).addend(3) == "3 * (ceil(4.5) - 2)"
    assert value_of(formula_text(cycles).addend(3)) == 3 * cycles == 9
    assert formula_text(cycles).addend(1) == "ceil(4.5) - 2"


def test_numbers_are_exact():
    assert [number(Fraction(text)) for text in ("3", "2.5", "1/3", "0.0625")] == ["3", "2.5", "(1 / 3)", "0.0625"]


@pytest.mark.parametrize(
    "value", [Cycles(whole, Fraction(5, 2)), Amount(product, 3, Fraction(1, 2)), Sum(((3, 2), (4, 1)))]
)
def test_copies_are_the_same_values_of_the_same_formulas(value):
    """Sweeps send Costs from process to process."""
    for copied in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert (type(copied), copied, vars(copied)) == (type(value), value, vars(value))
