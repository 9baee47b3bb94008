"""The configuration that ``configure_ipu_system`` has set, for programs that name none."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

#: Of the caller's thread or task, so that two programs beside each other have their own.
_CONFIGURED: Final[ContextVar[Any]] = ContextVar("configured", default=None)


def configured() -> Any:
    """Return the IPUConfig in effect, None where the machine is the smallest that does."""
    return _CONFIGURED.get()


def configure(config: Any) -> None:
    """Set the configuration for programs that are built from now on; None for none."""
    _CONFIGURED.set(config)
