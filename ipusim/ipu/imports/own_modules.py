"""Recognise a program's own modules, whose imports find Graphcore's names."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

#: Releases of TensorFlow in Graphcore's last SDKs, by major version.
VERSIONS: Final = {1: "1.15.5", 2: "2.6.3"}
#: Modules whose functions replace Python's import functions.
_REPLACING: Final = ("ipusim.ipu.imports.hook", "ipusim.ipu.imports.hosted")
#: Folders of Python's and ipusim's modules.
_LIBRARIES: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("scripts"), str(Path(__file__).parents[2]))
#: Folders of installed packages.
_INSTALLED: Final = ("site-packages", "dist-packages")


def is_own(importing: Mapping[str, Any] | None) -> bool:
    """Tell whether a module belongs to the program, not to libraries or ipusim."""
    if importing is None:
        return False
    file = importing.get("__file__")
    if file is None:
        return importing.get("__name__") == "__main__" or "__main__" not in sys.modules
    return not str(file).startswith(_LIBRARIES) and set(_INSTALLED).isdisjoint(Path(file).parts)


def importer() -> Mapping[str, Any]:
    """Return the names of the module that called a replaced import function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _REPLACING:
        frame = frame.f_back
    return frame.f_globals
