"""The nearest name, for whoever wrote another: a misspelt one, or what others call the same thing."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ipusim.foreign_words import folded, ours


def same(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name out of ``names`` that ``wrong`` is but for case and separators, or that others call so.

    None where there is none.
    """
    if not isinstance(wrong, str):
        return None
    known = list(names)
    spelt = {folded(name): name for name in reversed(known)}
    return spelt.get(folded(wrong)) or next((name for name in ours(wrong) if name in known), None)


def nearest(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name out of ``names`` that is nearest to ``wrong`` in any case, or None where none is near.

    What others call one of them is as near as can be.
    """
    if not isinstance(wrong, str):
        return None
    known = list(names)
    lower = {name.lower(): name for name in known}
    near = get_close_matches(wrong.lower(), lower, n=1)
    return same(wrong, known) or (lower[near[0]] if near else None)


def expected_last(got: str, hint: str, expected: str) -> str:
    """Return a message whose hint comes before what is expected, which is long to tell."""
    return f"{got}{hint} Expected {expected}" if hint.endswith("?") else f"{got}{hint}; expected {expected}"


def did_you_mean(wrong: object, names: Iterable[str], quoted: bool = False) -> str:
    """Return ``; did you mean ...?`` with the nearest of ``names``, or nothing when none is near."""
    near = nearest(wrong, names)
    if near is None:
        return ""
    return f"; did you mean {near!r}?" if quoted else f"; did you mean {near}?"
