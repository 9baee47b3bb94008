"""Import the names of a package on first use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def lazy(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that imports its names for type checkers.

    The names are listed once, in the block under ``if TYPE_CHECKING:``, for type checkers and editors. Importing the
    module costs nothing: an import of the block runs when one of its names is first used. ``__all__`` defaults to the
    names in the block::

        if TYPE_CHECKING:
            from ipusim.hardware.system import System
        else:
            __getattr__, __dir__ = lazy(__name__)

    Args:
        module: name of the module.
    """
    names = vars(sys.modules[module])

    @cache
    def imports() -> dict[str, ast.ImportFrom]:
        blocks = [
            node for node in ast.parse(Path(names["__file__"]).read_text("utf-8")).body if isinstance(node, ast.If)
        ]
        imported = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.asname or alias.name: node for node in imported for alias in node.names}

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(imports())
        if name.startswith("__") or name not in imports():  # Python looks up other dunder names
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        exec(compile(ast.Module([imports()[name]], []), names["__file__"], "exec"), names)
        return names[name]

    return find, lambda: sorted({*names, *imports()})
