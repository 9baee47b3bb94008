"""Redirect a program's imports, from its first import of TensorFlow on.

The first import also loads TensorFlow. A program for ``python program.py`` writes ``import ipusim.ipu`` above its first
import of TensorFlow. A notebook calls :class:`install`. ``ipusim run program.py`` does the same for an unchanged
program.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from ipusim.base.errors import IpusimError, OptionError
from ipusim.ipu.graph.tensorflow_import import check_first
from ipusim.ipu.imports.own_modules import VERSIONS, importer, is_own
from ipusim.ipu.imports.rows import rows_for

#: Top-level packages with Graphcore's names.
ROOTS: Final = frozenset(name.partition(".")[0] for name in rows_for(2))
#: Part of the file names that Autograph gives to converted functions.
_CONVERTED_FILE: Final = "__autograph_generated_file"

#: Installed hooks, active until the end of the process or of their block.
_ACTIVE_HOOKS: Final[list[install]] = []


class install:  # noqa: N801 - callers use it like a function
    """Let imports of TensorFlow, Keras, Horovod and PopDist find Graphcore's names.

    The hook is active from the call on, until the end of the process or of the ``with`` block that it opens.

    Args:
        tensorflow: TensorFlow's major version as seen by the program, 1 or 2. By default inferred from the names in the
            program's file, and 2 without a file.

    Raises:
        OptionError: if the version is neither 1 nor 2.
        ProgramStateError: if TensorFlow has been imported before, with other settings.

    Example:
        >>> import ipusim.ipu
        >>> with ipusim.ipu.install():
        ...     from tensorflow.python.ipu.config import IPUConfig
        >>> IPUConfig.__module__
        'ipusim.ipu.config'
    """

    def __init__(self, tensorflow: int | None = None) -> None:
        """Wait for the first import of a top-level package with Graphcore's names."""
        if tensorflow is not None and tensorflow not in VERSIONS:
            raise OptionError("tensorflow", f"expected 1 or 2, got {tensorflow!r}")
        check_first()
        self._version, self._stack, self._has_begun = tensorflow, ExitStack(), False
        self._original_imports = builtins.__import__, importlib.import_module
        builtins.__import__, importlib.import_module = self._import, self._import_module
        _ACTIVE_HOOKS.append(self)

    def __enter__(self) -> Self:
        """Return this hook."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the process's imports."""
        _ACTIVE_HOOKS.remove(self)
        self._stack.close()
        builtins.__import__, importlib.import_module = self._original_imports

    def _begin(self, name: str, importing: Mapping[str, Any] | None) -> bool:
        """Activate the hook at the program's first import of these packages; return whether the hook is active."""
        if not self._has_begun and name.partition(".")[0] in ROOTS and is_own(importing):
            builtins.__import__, importlib.import_module = self._original_imports
            from ipusim.ipu.imports.hosted import hosted  # noqa: PLC0415 - loads TensorFlow

            self._stack.enter_context(hosted(self._version or _version_of_main()))
            atexit.register(self._stack.close)  # runs before TensorFlow is unloaded
            self._has_begun = True
        return self._has_begun

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        is_begun = self._begin(name, importer() if globals is None else globals)
        return (builtins.__import__ if is_begun else self._original_imports[0])(
            name, globals, locals, fromlist or (), level
        )

    def _import_module(self, name: str, package: str | None = None) -> ModuleType:
        return (importlib.import_module if self._begin(name, importer()) else self._original_imports[1])(name, package)


def _version_of_main() -> int:
    """Return the TensorFlow version of this process's program."""
    from ipusim.ipu.imports.version import written_for  # noqa: PLC0415 - loads TensorFlow

    path = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    if not path.is_file():  # the program comes from an option, a pipe or an archive
        return 2
    return written_for(ast.parse(path.read_bytes()), path.resolve().parent)[0]


def serve_program() -> None:
    """Install the hook for a program started by ``python program.py``, with errors as in ``ipusim run``.

    Raises:
        ProgramStateError: if the program has imported TensorFlow before.
    """
    main = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    if main.get("__file__") is not None and is_own(main):
        sys.excepthook = _print_final_error
        install()


def _print_final_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a program's final error; ipusim's errors take one line and give exit code 2."""
    if not isinstance(error, IpusimError):
        sys.__excepthook__(kind, error, trace)
        return
    print(message_with_line(error, os.path.abspath(sys.argv[0]), sys.argv[0]), file=sys.stderr)  # noqa: PTH100 - keeps symbolic links
    raise SystemExit(2)


def message_with_line(error: IpusimError, file: str, shown_path: str, host_name: str = "") -> str:
    """Return an error's message, preceded by its line in the program.

    Args:
        error: the error.
        file: path of the program's file.
        shown_path: the path as the user wrote it.
        host_name: host that raised the error, printed after the line.
    """
    line = next(filter(None, map(_line_of, (error.__cause__, error))), file)
    if line.startswith(file):
        line = f"{shown_path}{line.removeprefix(file)}"
    return f"{line}: {host_name}{error}"


def _line_of(error: BaseException | None) -> str:
    """Return ``file:line`` of the innermost frame in the program's own modules, or an empty text."""
    steps = [] if error is None else list(traceback.walk_tb(error.__traceback__))
    own_steps = [(frame.f_code.co_filename, number) for frame, number in steps if is_own(frame.f_globals)]
    own_steps = [(file, number) for file, number in own_steps if _CONVERTED_FILE not in file]
    return f"{own_steps[-1][0]}:{own_steps[-1][1]}" if own_steps else ""
