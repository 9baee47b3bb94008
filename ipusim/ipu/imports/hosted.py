"""A program on TensorFlow: the imports of its own modules find Graphcore's names, from here to the end of a block."""

from __future__ import annotations

import builtins
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ipusim.ipu.imports.faces import Faces
from ipusim.ipu.imports.rows import rows_for
from ipusim.ipu.imports.switches import process_of
from ipusim.ipu.runtime.import_names import VERSIONS

#: Folders of modules that are no program's own.
_LIBRARIES: Final = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]))
#: Folders of installed packages.
_INSTALLED: Final = ("site-packages", "dist-packages")
#: Advice to use names that the program's version of TensorFlow does not have.
_LATER_VERSIONS: Final = ".*is deprecated and will be removed in a future version"
#: Words on the seed that a graph of the program's has been given here.
_OF_SEEDS: Final = "Seed .* from outer graph might be getting used by function"


@contextmanager
def hosted(major: int) -> Iterator[Faces]:
    """Let the program's own modules import TensorFlow as Graphcore's programs do, in the block.

    Args:
        major: the version of TensorFlow that the program is written for, 1 or 2.

    Yields:
        The modules that it finds.

    Example:
        >>> program = {"__name__": "program", "__file__": "program.py"}
        >>> with hosted(1):
        ...     exec("import tensorflow as tf", program)
        >>> program["tf"].__version__
        '1.15.5'
    """
    faces, imported = Faces(rows_for(major), VERSIONS[major]), builtins.__import__

    def own_import(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level or name.partition(".")[0] not in faces.roots or not _is_own(globals):
            return imported(name, globals, locals, fromlist or (), level)
        module = faces.find(name)
        if not fromlist:
            found: ModuleType = faces.root_of(name)
            return found
        for each in fromlist:
            if each != "*":
                faces.enter(module, each)
        result: ModuleType = module
        return result

    with process_of(major), warnings.catch_warnings():
        for words in (_LATER_VERSIONS, _OF_SEEDS):
            warnings.filterwarnings("ignore", words, UserWarning)
        builtins.__import__ = own_import
        try:
            yield faces
        finally:
            builtins.__import__ = imported


def _is_own(importing: Mapping[str, Any] | None) -> bool:
    """Tell whether the module with these names is the program's own: no library's, and not ipusim's."""
    if importing is None:
        return False
    file = importing.get("__file__")
    if file is None:
        return importing.get("__name__") == "__main__" or "__main__" not in sys.modules
    return not str(file).startswith(_LIBRARIES) and set(_INSTALLED).isdisjoint(Path(file).parts)
