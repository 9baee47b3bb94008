"""Figures with sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Made = TypeVar("_Made")


def sourced(make: Callable[..., _Made], **figures: tuple[Any, str]) -> _Made:
    """Return ``make(**figures)`` for figures given as (value, source) pairs, passing the sources as ``sources``."""
    values = {name: figure for name, (figure, _) in figures.items()}
    return make(**values, sources={name: source for name, (_, source) in figures.items()})
