"""A cached hash for dataclasses of many fractions, by which prices are looked up."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar


class CachedHash:
    """A frozen dataclass that is compared by numbers alone, whose hashes are the same in every process."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __hash__(self) -> int:
        """Return the hash of all that is compared."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self) if field.compare))
