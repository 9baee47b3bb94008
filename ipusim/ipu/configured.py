"""The configuration that ``configure_ipu_system`` has set, for programs that name none."""

from __future__ import annotations

from typing import Any, Final

from ipusim.ipu.remembered import Remembered

_CONFIGURED: Final[Remembered[Any]] = Remembered("configured", None)


def configured() -> Any:
    """Return the IPUConfig in effect, None where the machine is the smallest that does."""
    return _CONFIGURED.get()


def configure(config: Any) -> None:
    """Set the configuration for programs that run from now on; None for none."""
    _CONFIGURED.set(config)
