"""Offer modules for the imports of a program, with ipusim's names in place of installed modules' names.

Such a module is called a face. The table ``rows`` gives the object of a dotted name, or a face's installed modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from types import ModuleType
from typing import Any, Final

from ipusim.base.errors import MissingImportError, MissingNameError
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.imports.rows import Row
from ipusim.ipu.runtime.offered import resolve

#: Package that TensorFlow 2 offers to imports, but not as an attribute.
_NO_ATTRIBUTE: Final = "tensorflow.python"
#: Prefix of ipusim's modules, which programs see as Graphcore's.
_OURS: Final = "ipusim."


class Faces:
    """Modules of a program by import name.

    Attributes:
        rows: the table's rows by dotted name.
        version: value of ``tf.__version__``.
    """

    def __init__(self, rows: Mapping[str, Row], version: str) -> None:
        """Set the rows."""
        self.rows, self.version = rows, version
        self._objects: dict[str, Any] = {}
        self._packages = {package for key in rows for package in accumulate(key.split(".")[:-1], "{}.{}".format)}

    @property
    def roots(self) -> frozenset[str]:
        """Top-level packages."""
        return frozenset(name.partition(".")[0] for name in self.rows)

    def has(self, name: str) -> bool:
        """Tell whether a name has a row, or rows below it."""
        return name in self.rows or name in self._packages

    def find(self, name: str) -> Any:
        """Return the object under a dotted name.

        Raises:
            MissingImportError: if a module of ipusim lacks the name.
            ModuleNotFoundError: if an installed module lacks the name.
        """
        if name not in self._objects:
            self._objects[name] = self._make(name)
        return self._objects[name]

    def root_of(self, name: str) -> Any:
        """Return the object that ``import`` of a dotted name binds: the top-level package.

        Imports below ``tensorflow.python`` give a package that has ``python`` as an attribute.
        """
        root, *submodules = name.split(".")
        if not name.startswith(f"{_NO_ATTRIBUTE}."):
            return self.find(root)
        face = Face(root, self.find(root)._modules, self)
        setattr(face, submodules[0], self.find(_NO_ATTRIBUTE))
        return face

    @staticmethod
    def enter(module: Any, name: str) -> None:
        """Import a submodule, if the name is a submodule's.

        Raises:
            MissingImportError: if a module of ipusim lacks the name.
        """
        try:
            getattr(module, name) if isinstance(module, Face) else _member(module, name)
        except MissingNameError as error:
            raise MissingImportError(str(error)) from None
        except (AttributeError, ModuleNotFoundError):
            pass  # the import statement raises the error

    def _make(self, name: str) -> Any:
        """Return the object under a name that nobody has asked for before.

        Raises:
            MissingImportError: if a module of ipusim lacks the name.
            ModuleNotFoundError: if an installed module lacks the name.
        """
        row = self.rows.get(name)
        if isinstance(row, str):
            return resolve(row) if ":" in row else Face(name, (row,), self)
        if row is not None:
            return Face(name, row, self)
        parent, _, last_part = name.rpartition(".")
        package = self.find(parent)
        if self.has(name):  # the table has rows only below the name
            modules = (f"{module}.{last_part}" for module in package._modules)
            return Face(name, tuple(module for module in modules if find_spec(module)), self)
        if isinstance(package, Face):
            try:
                return getattr(package, last_part)
            except MissingNameError as error:
                raise MissingImportError(str(error)) from None
            except AttributeError as error:
                raise ModuleNotFoundError(f"No module named '{name}'", name=name) from error
        return _member(package, last_part)


class Face(ModuleType):
    """Module with ipusim's names, backed by installed modules."""

    def __init__(self, name: str, modules: tuple[str, ...], faces: Faces) -> None:
        """Set the installed modules, in order of precedence."""
        super().__init__(name)
        self._modules, self._faces = modules, faces
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Return the object under a name; raises MissingNameError for an unknown name of ipusim's modules."""
        if name == "__all__":
            return [member for member in dir(self) if not member.startswith("_")]
        if name == "__version__" and self.__name__.startswith("tensorflow"):
            return self._faces.version
        full_name = f"{self.__name__}.{name}"
        if full_name == _NO_ATTRIBUTE and not self._faces.version.startswith("1."):
            raise MissingNameError(
                "module 'tensorflow' has no attribute 'python': use `from tensorflow.python import ipu`"
            )
        value = self._faces.find(full_name) if self._faces.has(full_name) else self._installed_member(name)
        setattr(self, name, value)
        return value

    def _installed_member(self, name: str) -> Any:
        """Return a name of the installed modules, and ipusim's modules as faces."""
        for module in self._modules:
            try:
                value = _member(import_module(module), name)
            except (AttributeError, ModuleNotFoundError):
                continue
            is_ours = isinstance(value, ModuleType) and value.__name__.startswith(_OURS)
            return Face(f"{self.__name__}.{name}", (value.__name__,), self._faces) if is_ours else value
        if name.startswith("__") or not all(module.startswith(_OURS) for module in self._modules):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        raise MissingNameError(f"{self.__name__}.{name} is not simulated{did_you_mean(name, list(dir(self)))}")

    def __dir__(self) -> list[str]:
        """Return the names of rows directly below, and of the modules, but not of packages without a row."""
        names = {key.rpartition(".")[2] for key in self._faces.rows if key.rpartition(".")[0] == self.__name__}
        return sorted(names.union(*(dir(import_module(module)) for module in self._modules)))


def _member(module: Any, name: str) -> Any:
    """Return a module's attribute or submodule by name."""
    try:
        return getattr(module, name)
    except AttributeError:
        if not hasattr(module, "__path__") or name.startswith("__"):
            raise
        return import_module(f"{module.__name__}.{name}")
