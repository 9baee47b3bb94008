"""The versions of ipusim and of the packages that numbers and pictures depend on."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Final

#: Whose versions may change a number or a picture.
_PACKAGES: Final = ("numpy", "simpy", "matplotlib")


def versions() -> tuple[str, ...]:
    """Return lines of comment with the versions of ipusim, Python and packages; nothing of the machine or the day."""
    others = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (f"Written by ipusim {version('ipusim')} with Python {platform.python_version()}, {others}.",)
