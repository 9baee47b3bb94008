"""What made a result: the versions of ipusim and of what its numbers and pictures rest on."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Final

#: Whose versions may change a number or a picture.
_PACKAGES: Final = ("numpy", "simpy", "matplotlib")


def versions() -> tuple[str, ...]:
    """Return who made this and with what, in lines of comment; nothing of the machine or the day."""
    others = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (f"Written by ipusim {version('ipusim')} with Python {platform.python_version()}, {others}.",)
