"""State the versions of ipusim and of packages that affect figures and pictures."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import Final

#: Packages whose versions may change a number or a picture.
_PACKAGES: Final = ("numpy", "simpy", "matplotlib")
#: Version of an installed package, cached.
version_of: Final = cache(version)


def versions() -> tuple[str, ...]:
    """Return comment lines with the versions of ipusim, Python and packages.

    The lines depend on neither machine nor date.
    """
    packages = ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
    return (f"Written by ipusim {version_of('ipusim')} with Python {platform.python_version()}, {packages}.",)
