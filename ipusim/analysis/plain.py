"""Convert frozen values to plain data for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def as_plain(value: Any) -> Any:
    """Convert dataclasses and mappings to dicts, and tuples to lists, at any depth; keeps the order of keys."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    return [as_plain(item) for item in value] if isinstance(value, tuple | list) else value
