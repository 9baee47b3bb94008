"""How far off many figures are, whatever their signs, as text."""

from __future__ import annotations

from collections.abc import Iterable


def spread(errors: Iterable[float]) -> tuple[str, str, str]:
    """Return the number of errors, one at least, and the mean and the largest amount in per cent."""
    amounts = list(map(abs, errors))
    return str(len(amounts)), f"{sum(amounts) / len(amounts):.1%}", f"{max(amounts):.1%}"
