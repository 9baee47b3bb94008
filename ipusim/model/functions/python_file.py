"""Load functions and other values from a user's Python file, referenced as ``file.py:function``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ipusim.base.errors import ModelError
from ipusim.base.files import open_file, resolve
from ipusim.model.functions.users_code import message_of


def load_function(reference: str, base: Path) -> Callable[..., Any]:
    """Run the file and return the function referenced by ``reference`` (``file.py:function``).

    Relative paths start at ``base``. Every call runs the file again as a new module. The module is removed from
    ``sys.modules`` afterwards, and no compiled copy stays on disk.

    Raises ModelError for a reference without a function, a missing file, an error in the file (with its line), a
    missing function, or a name that is not callable.
    """
    function: Callable[..., Any] = load_value(reference, base, "function", callable)
    return function


def load_value(reference: str, base: Path, kind: str, fits: Callable[[Any], bool]) -> Any:
    """Run the file and return the value referenced by ``reference``, like :func:`load_function`.

    ``kind`` describes the value in messages; ``fits`` tests the value. Raises ModelError like :func:`load_function`.
    """
    file, _, name = reference.rpartition(":")
    if not file or not name.isidentifier():
        raise ModelError(f"expected a reference of the form 'file.py:function', got {reference!r}")
    module, path = load_file(reference, base / file)
    value = vars(module).get(name)
    if value is None:
        names = sorted(n for n, variable in vars(module).items() if fits(variable) and not n.startswith("_"))
        raise ModelError(f"{reference!r}: {path} has no {kind} {name!r}; it has {', '.join(names) or 'none'}")
    if not fits(value):
        raise ModelError(f"{reference!r}: {name!r} in {path} is of type {type(value).__name__}, not a {kind}")
    return value


def load_file(reference: str, path: Path) -> tuple[ModuleType, Path]:
    """Run a file; return the module and the resolved path. Messages call the file ``reference``.

    Raises ModelError for a missing file, and for an error in the file, with its line.
    """
    try:
        path = resolve(path)
        with open_file(path) as stream:
            source = stream.read()
    except OSError as error:
        raise ModelError(f"{reference!r}: cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a null character
        raise ModelError(f"{reference!r}: no file can have this name: {error}") from None
    return _run(path, source), path


def _run(path: Path, source: bytes) -> ModuleType:
    name = f"ipusim_user_file_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses look up the module in sys.modules while the class statement runs.
    old_module = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        line = f"{error.filename or path}:{error.lineno or 1}"
        raise ModelError(f"{line}: {type(error).__name__}: {error.msg}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = f"{path}:{lines[-1]}" if lines else str(path)
        raise ModelError(f"{line}: {message_of(error)}") from error
    finally:
        if old_module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = old_module
    return module
