"""The versions of ipusim and of the packages that numbers and pictures depend on."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import Final

#: Whose versions may change a number or a picture.
_PACKAGES: Final = ("numpy", "simpy", "matplotlib")
#: The version of an installed package, which is looked for on the disk once.
version_of: Final = cache(version)


def versions() -> tuple[str, ...]:
    """Return lines of comment with the versions of ipusim, Python and packages; nothing of the machine or the day."""
    others = ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
    return (f"Written by ipusim {version_of('ipusim')} with Python {platform.python_version()}, {others}.",)
