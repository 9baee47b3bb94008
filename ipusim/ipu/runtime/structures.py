"""Structures of values: lists, tuples, those with names too, and dictionaries, one inside another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def mapped(function: Callable[[Any], Any], structure: Any, is_value: Callable[[Any], bool] = lambda _: False) -> Any:
    """Return a structure like this one, with ``function`` of each value in its place.

    What ``is_value`` counts as one is not gone into.
    """
    if is_value(structure):
        return function(structure)
    if isinstance(structure, Mapping):
        return {name: mapped(function, item, is_value) for name, item in structure.items()}
    if isinstance(structure, tuple | list):
        result = [mapped(function, item, is_value) for item in structure]
        return type(structure)(*result) if hasattr(structure, "_fields") else type(structure)(result)
    return function(structure)


def leaves(structure: Any) -> Iterator[Any]:
    """Yield the values of a structure, from left to right."""
    if isinstance(structure, Mapping):
        structure = list(structure.values())
    if isinstance(structure, tuple | list):
        for item in structure:
            yield from leaves(item)
    else:
        yield structure
