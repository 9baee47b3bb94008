"""Infer a program's version of TensorFlow from names in the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipusim.ipu.graph.tensorflow_import import load

#: Names of version 1 that programs for version 2 also use.
_NAMES_IN_BOTH: Final = frozenset({"estimator"})
#: Package that programs for version 1 may import in place of ``tensorflow``.
_V1_PACKAGE: Final = "tensorflow.compat.v1"
#: Further names that show version 1: ``contrib`` is not installed, and ``compat.v1`` is part of version 2, too.
_FURTHER_V1_NAMES: Final = frozenset({"contrib", "compat.v1"})
#: Module with names of version 1, absent from version 2.
_V1_MODULE: Final = "_api.v1"


def written_for(tree: ast.Module, folder: Path) -> tuple[int, str]:
    """Return a program's version of TensorFlow, and the deciding name.

    Args:
        tree: syntax tree of the program.
        folder: folder of the program; its parent is searched for imports too, as programs add the parent to the path.

    Returns:
        1 and a name such as ``tf.placeholder`` if the program, or an imported module of these folders, uses a name that
        exists only in version 1; else 2 and "".
    """
    tensorflow = load()
    v1_names = {name for name in dir(tensorflow.compat.v1) if not hasattr(tensorflow, name)} - _NAMES_IN_BOTH
    for module in _with_imports(tree, folder, set()):
        for name in _names_of_tensorflow(module):
            if name in v1_names or name in _FURTHER_V1_NAMES:
                return 1, f"tf.{name}"
    return 2, ""


def _with_imports(tree: ast.Module, folder: Path, visited_files: set[Path]) -> Iterator[ast.Module]:
    """Yield a module and its imports from the folder or its parent, without repetition."""
    yield tree
    for name in _imported_names(tree):
        parts = name.split(".")
        stems = [base.joinpath(*parts) for base in (folder, folder.parent)]
        for file in (file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")):
            if file not in visited_files and file.is_file():
                visited_files.add(file)
                try:
                    imported = ast.parse(file.read_bytes())
                except (SyntaxError, ValueError):
                    continue  # the program's import raises the error
                yield from _with_imports(imported, folder, visited_files)


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _names_of_tensorflow(tree: ast.Module) -> Iterator[str]:
    """Yield the names of ``tensorflow`` that a module imports or uses as attributes.

    The names include ``compat.v1`` if the module imports it in place of ``tensorflow``, as programs for version 1 may.
    """
    imported = [
        (alias.name, alias.asname or alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    aliases = {alias for name, alias in imported if name == "tensorflow"}
    if any(_V1_MODULE in name for name, _ in imported) or (not aliases and _V1_PACKAGE in _imported_names(tree)):
        yield _V1_PACKAGE.removeprefix("tensorflow.")
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in aliases:
                yield node.attr
            case ast.ImportFrom(module="tensorflow", level=0):
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("tensorflow."):
                yield module.split(".")[1]
