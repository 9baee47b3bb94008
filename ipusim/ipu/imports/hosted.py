"""Let a program's own modules find Graphcore's names inside a block."""

from __future__ import annotations

import builtins
import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from ipusim.ipu.graph.reading import name_handles_anew
from ipusim.ipu.imports.faces import Faces
from ipusim.ipu.imports.numpy_names import earlier_numpy_names
from ipusim.ipu.imports.own_modules import VERSIONS, importer, is_own
from ipusim.ipu.imports.rows import Row, rows_for
from ipusim.ipu.imports.switches import process_of
from ipusim.ipu.traced import sessions  # noqa: F401 - patches Session.run before programs use it

#: Warnings that recommend names missing in the program's version of TensorFlow.
_ADVICE_WARNINGS: Final = r".*is deprecated(, use `learning_rate`| and will be removed in a future version)"
#: Warnings about the seed that ipusim gives to the program's graphs.
_SEED_WARNINGS: Final = "Seed .* from outer graph might be getting used by function"


@contextmanager
def hosted(major: int, further: Mapping[str, Row] = MappingProxyType({})) -> Iterator[Faces]:
    """Redirect TensorFlow imports of the program's own modules to Graphcore's names in the block.

    Args:
        major: version of TensorFlow that the program is written for, 1 or 2.
        further: additional rows of the table of names, for the program's own packages.

    Yields:
        The modules that the program's imports find.

    Example:
        >>> program = {"__name__": "program", "__file__": "program.py"}
        >>> with hosted(1):
        ...     exec("import tensorflow as tf", program)
        >>> program["tf"].__version__
        '1.15.5'
    """
    faces, original_import = Faces({**rows_for(major), **further}, VERSIONS[major]), builtins.__import__
    import_module = importlib.import_module

    def own_import(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        importing = importer() if globals is None else globals
        if level or name.partition(".")[0] not in faces.roots or not is_own(importing):
            return original_import(name, globals, locals, fromlist or (), level)
        module = faces.find(name)
        if not fromlist:
            return faces.root_of(name)
        for member in fromlist:
            if member != "*":
                faces.enter(module, member)
        return module

    def own_module(name: str, package: str | None = None) -> Any:
        if name.partition(".")[0] in faces.roots and is_own(importer()):
            return faces.find(name)
        return import_module(name, package)

    name_handles_anew()
    with process_of(major), earlier_numpy_names(), warnings.catch_warnings():
        for pattern in (_ADVICE_WARNINGS, _SEED_WARNINGS):
            warnings.filterwarnings("ignore", pattern, UserWarning)
        builtins.__import__, importlib.import_module = own_import, own_module
        try:
            yield faces
        finally:
            builtins.__import__, importlib.import_module = original_import, import_module
