"""The nearest of the names that there are, for whoever wrote another."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name out of ``names`` that is nearest to ``wrong`` in any case, or None where none is near."""
    if not isinstance(wrong, str):
        return None
    folded = {name.lower(): name for name in names}
    near = get_close_matches(wrong.lower(), folded, n=1)
    return folded[near[0]] if near else None


def did_you_mean(wrong: object, names: Iterable[str], quoted: bool = False) -> str:
    """Return ``; did you mean ...?`` with the nearest of ``names``, or nothing when none is near."""
    near = nearest(wrong, names)
    if near is None:
        return ""
    return f"; did you mean {near!r}?" if quoted else f"; did you mean {near}?"
