"""Figures with their sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Made = TypeVar("_Made")


def sourced(make: Callable[..., _Made], **figures: tuple[Any, str]) -> _Made:
    """Return what ``make`` makes of ``figures``, each of which comes with its source; ``sources`` are those by name."""
    values = {name: figure for name, (figure, _) in figures.items()}
    return make(**values, sources={name: source for name, (_, source) in figures.items()})
