"""The names of models that were given none: those of their kinds, with a number behind, in the order of a program."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

#: How many models of each kind there are, in the caller's thread or task.
_USES: Final[ContextVar[dict[str, int] | None]] = ContextVar("model_names", default=None)


def model_name(kind: str) -> str:
    """Return ``kind`` the first time, and then with a number behind it, as Keras names models."""
    uses = dict(_USES.get() or {})
    uses[kind] = uses.get(kind, 0) + 1
    _USES.set(uses)
    return kind if uses[kind] == 1 else f"{kind}_{uses[kind] - 1}"


def clear_session() -> None:
    """Begin to count anew."""
    _USES.set(None)
