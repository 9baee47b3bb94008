"""Protocols that are asked of every layer again and again: whether it has what they name, in little time.

Python 3.11 gathers the names of a protocol anew each time, which took a twentieth of a small run.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol


class ByMembers(type(Protocol)):  # type: ignore[misc]
    """The type of a runtime-checkable protocol that inherits from none, and of classes that inherit from it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        """Tell whether ``instance`` has all that the protocol names, or is of the class."""
        if not cls.__dict__.get("_is_protocol"):
            return bool(super().__instancecheck__(instance))
        return all(getattr(instance, name, None) is not None for name in _members(cls))


@cache
def _members(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in protocol.__dict__ if not name.startswith("_"))
