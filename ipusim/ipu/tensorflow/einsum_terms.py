"""Sums of products that an equation says, with diagonals where it names an axis twice."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp

from ipusim.ipu import checks


def without_repeats(equation: str, operands: list[Any]) -> tuple[str, list[Any]]:
    """Return an equation of operands that name each axis once, and these: diagonals of those that name one twice.

    autograd has no gradient of others. An equation without an arrow says its result as NumPy does: the axes that are
    named once in all, in alphabetical order, behind those that have no names. Raises ProgramError for axes of one name
    that are of several sizes.
    """
    terms, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        letters = terms.replace(",", "").replace(".", "")
        once = "".join(sorted({each for each in letters if letters.count(each) == 1}))
        result = ("..." if "..." in terms else "") + once
    names = terms.split(",")
    if len(names) != len(operands):
        return equation, operands
    found = [_diagonal(name, operand) for name, operand in zip(names, operands, strict=True)]
    return f"{','.join(name for name, _ in found)}->{result}", [operand for _, operand in found]


def _diagonal(names: str, x: Any) -> tuple[str, Any]:
    """Return names of axes without repetition, and the array with a diagonal for each name that was there twice."""
    for name in dict.fromkeys(names.replace(".", "")):
        while names.count(name) > 1:
            first, second = names.index(name), names.rindex(name)
            axes = _axis(names, first), _axis(names, second)
            if len({anp.shape(x)[axis] for axis in axes}) > 1:
                checks.wrong_value("inputs", f"axes of one size for index {name!r}", anp.shape(x))
            x = anp.moveaxis(x, axes, (-1, -2))
            x = anp.diagonal(x, axis1=-1, axis2=-2)
            names = names[:first] + names[first + 1 : second] + names[second + 1 :] + name
    return names, x


def _axis(names: str, place: int) -> int:
    """Return the axis of the letter at a place; those behind an ellipsis are counted from the end."""
    behind = "..." in names and place > names.index("...")
    return place - len(names) if behind else place
