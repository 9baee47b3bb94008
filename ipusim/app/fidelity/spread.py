"""Format number, mean and worst absolute error of many figures."""

from __future__ import annotations

from collections.abc import Iterable


def spread(errors: Iterable[float]) -> tuple[str, str, str]:
    """Return number, mean and maximum of at least one absolute error as texts; mean and maximum are in per cent."""
    amounts = list(map(abs, errors))
    return str(len(amounts)), f"{sum(amounts) / len(amounts):.1%}", f"{max(amounts):.1%}"
