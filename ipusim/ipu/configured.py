"""The configuration that ``configure_ipu_system`` has set, for programs that name none."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipusim.ipu.config import IPUConfig

#: Of the caller's thread or task, so that two programs beside each other have their own.
_CONFIGURED: Final[ContextVar[IPUConfig | None]] = ContextVar("configured", default=None)


def configured() -> IPUConfig | None:
    """Return the configuration in effect, None where the machine is the smallest that does."""
    return _CONFIGURED.get()


def configure(config: IPUConfig | None) -> None:
    """Set the configuration for programs that are built from now on; None for none."""
    _CONFIGURED.set(config)
