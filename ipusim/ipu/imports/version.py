"""The version of TensorFlow that a program is written for, by the names that it uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipusim.ipu.graph.tensorflow_import import load

#: Names of version 1 that programs for version 2 may use too.
_IN_BOTH: Final = frozenset({"estimator"})
#: What programs for version 1 import in the place of ``tensorflow``.
_IN_PLACE: Final = "tensorflow.compat.v1"
#: Names of version 1 that no installed TensorFlow has, or that it has in both versions.
_ONLY_THERE: Final = frozenset({"contrib", "compat.v1"})
#: Module of version 1's names below the package, which that version alone has.
_NAMES_OF_1: Final = "_api.v1"


def written_for(tree: ast.Module, folder: Path) -> tuple[int, str]:
    """Return the version of TensorFlow that a program is written for, and the name that tells it.

    Args:
        tree: the program.
        folder: where the modules lie that it imports, there or in the folder above, which programs add to the path.

    Returns:
        1 and a name such as ``tf.placeholder`` where the program, or a module of these folders that it imports, uses a
        name that version 1 alone has; else 2 and "".
    """
    ours = load()
    only = {name for name in dir(ours.compat.v1) if not hasattr(ours, name)} - _IN_BOTH
    for module in _with_imported(tree, folder, set()):
        for name in _names_of_tensorflow(module):
            if name in only or name in _ONLY_THERE:
                return 1, f"tf.{name}"
    return 2, ""


def _with_imported(tree: ast.Module, folder: Path, seen: set[Path]) -> Iterator[ast.Module]:
    """Yield a module and those of the folder, or of the folder above, that it imports, each once."""
    yield tree
    for name in _imported(tree):
        parts = name.split(".")
        stems = [above.joinpath(*parts) for above in (folder, folder.parent)]
        for file in (file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")):
            if file not in seen and file.is_file():
                seen.add(file)
                try:
                    imported = ast.parse(file.read_bytes())
                except (SyntaxError, ValueError):
                    continue  # which its import will say
                yield from _with_imported(imported, folder, seen)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _names_of_tensorflow(tree: ast.Module) -> Iterator[str]:
    """Yield the names of ``tensorflow`` that a module imports, or uses as attributes.

    ``compat.v1`` is one where the module imports it in the place of ``tensorflow``, as programs for version 1 may.
    """
    imported = [
        (alias.name, alias.asname or alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    aliases = {alias for name, alias in imported if name == "tensorflow"}
    if any(_NAMES_OF_1 in name for name, _ in imported) or (not aliases and _IN_PLACE in _imported(tree)):
        yield _IN_PLACE.removeprefix("tensorflow.")
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in aliases:
                yield node.attr
            case ast.ImportFrom(module="tensorflow", level=0):
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("tensorflow."):
                yield module.split(".")[1]
