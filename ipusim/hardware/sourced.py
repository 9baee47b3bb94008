"""Build a value of figures, such as an IPU generation, from (figure, source) pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Value = TypeVar("_Value")


def sourced(make: Callable[..., _Value], **figures: tuple[Any, str]) -> _Value:
    """Return ``make(**values, sources=sources)`` for figures given as (value, source) pairs by name."""
    values = {name: figure for name, (figure, _) in figures.items()}
    return make(**values, sources={name: source for name, (_, source) in figures.items()})
