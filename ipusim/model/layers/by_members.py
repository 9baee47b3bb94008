"""Speed up ``isinstance`` checks of runtime-checkable protocols, which are frequent for layers.

Python 3.11 collects the names of a protocol's members at every check, which took a twentieth of a small run.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol


class ByMembers(type(Protocol)):  # type: ignore[misc]
    """Type of a runtime-checkable protocol without parent protocols, and of classes that inherit from it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        """Tell whether ``instance`` has all members of the protocol, or belongs to the class."""
        if not cls.__dict__.get("_is_protocol"):
            return bool(super().__instancecheck__(instance))
        return all(getattr(instance, name, None) is not None for name in _members(cls))


@cache
def _members(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in protocol.__dict__ if not name.startswith("_"))
