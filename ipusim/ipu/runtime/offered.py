"""Lazy tables of names: modules that offer names of TensorFlow's and Graphcore's, imported at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, NoReturn

#: Names of a module that a message lists at most; of more, the nearest one and the page of all names are said.
_LISTED: Final = 12

_Lookup = tuple[Callable[[str], Any], Callable[[], list[str]]]
#: A name's row: its module, or a module and behind a colon the name there, or the rows of a module of that name.
Row = str | Mapping[str, Any]


def in_module(home: str, names: str) -> dict[str, Row]:
    """Return the names of a text, each with the module ``home`` that it is in under this name."""
    return {name: f"{home}:{name}" for name in names.split()}


def offering(module: str, names: Mapping[str, Row]) -> _Lookup:
    """Return ``__getattr__`` and ``__dir__`` of TensorFlow's ``module``, which offers ``names``."""

    def find(name: str) -> Any:
        if name == "__path__":  # so that `import` looks for the modules below this one, which the finder knows
            return []
        if name not in names:
            lack(module, name, list(names))
        return resolved(f"{module}.{name}", names[name])

    return cache(find), lambda: sorted(names)  # a program may ask for each sample


def rows(module: str, names: Mapping[str, Row]) -> _Lookup:
    """Return ``__getattr__`` and ``__dir__`` of a module that has more ``names`` than it defines."""

    @cache
    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return resolved(f"{module}.{name}", names[name])

    def listed() -> list[str]:
        own = vars(sys.modules[module])
        defined = (name for name in own if getattr(own[name], "__module__", "") == module and name[0] != "_")
        return sorted({*names, *own.get("__all__", ()), *defined})

    return find, listed


def resolved(name: str, row: Row) -> Any:
    """Return the object that the row of a name stands for."""
    if not isinstance(row, str):
        return _Namespace(name, row)
    home, _, attribute = row.partition(":")
    module = import_module(home)
    return attrgetter(attribute)(module) if attribute else module


class _Namespace(ModuleType):
    """A module that is rows alone."""

    def __init__(self, name: str, names: Mapping[str, Row]) -> None:
        super().__init__(name)
        self.__getattr__, self.__dir__ = offering(name, names)  # type: ignore[method-assign]


def lack(module: str, name: str, known: list[str]) -> NoReturn:
    """Raise MissingNameError for a name of TensorFlow's that is not offered."""
    if name.startswith("__"):  # asked for by Python itself
        raise AttributeError(name)
    from ipusim.base.errors import MissingNameError  # noqa: PLC0415 - most programs need neither
    from ipusim.base.near_names import did_you_mean  # noqa: PLC0415 - as above

    few = f", in {module} {', '.join(sorted(known))}" if len(known) <= _LISTED else ""
    raise MissingNameError(
        f"{module}.{name} is not simulated{did_you_mean(name, known)}{few}: reports/graphcore_api.md lists all names"
    )
