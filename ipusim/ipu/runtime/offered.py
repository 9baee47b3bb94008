"""Offer Graphcore's names lazily: their modules are imported at first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, NoReturn

#: Maximum number of names listed in a message; longer lists are replaced by the nearest name and the page of all names.
_MOST_NAMES: Final = 12

_Lookup = tuple[Callable[[str], Any], Callable[[], list[str]]]
#: Row of a name: a module, "module:name", or the rows of a module with that name.
Row = str | Mapping[str, Any]


def in_module(home: str, names: str) -> dict[str, Row]:
    """Return rows for names in a text, all defined in module ``home``."""
    return {name: f"{home}:{name}" for name in names.split()}


def offering(module: str, names: Mapping[str, Row]) -> _Lookup:
    """Return ``__getattr__`` and ``__dir__`` for Graphcore's ``module`` with ``names``."""

    def find(name: str) -> Any:
        if name == "__path__":  # lets `import` search for submodules, which the finder knows
            return []
        if name not in names:
            lack(module, name, list(names))
        return resolve(f"{module}.{name}", names[name])

    return cache(find), lambda: sorted(names)  # programs may look names up for every sample


def rows(module: str, names: Mapping[str, Row]) -> _Lookup:
    """Return ``__getattr__`` and ``__dir__`` for a module that has ``names`` beside the names that it defines."""

    @cache
    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return resolve(f"{module}.{name}", names[name])

    def list_names() -> list[str]:
        members = vars(sys.modules[module])
        defined = (name for name in members if getattr(members[name], "__module__", "") == module and name[0] != "_")
        return sorted({*names, *members.get("__all__", ()), *defined})

    return find, list_names


def resolve(name: str, row: Row) -> Any:
    """Return the object behind a name's row."""
    if not isinstance(row, str):
        return _Namespace(name, row)
    home, _, attribute = row.partition(":")
    module = import_module(home)
    return attrgetter(attribute)(module) if attribute else module


class _Namespace(ModuleType):
    """A module consisting of rows."""

    def __init__(self, name: str, names: Mapping[str, Row]) -> None:
        super().__init__(name)
        self.__getattr__, self.__dir__ = offering(name, names)  # type: ignore[method-assign]


def lack(module: str, name: str, known_names: list[str]) -> NoReturn:
    """Raise MissingNameError for an unknown name of Graphcore's API."""
    if name.startswith("__"):  # requested by Python
        raise AttributeError(name)
    from ipusim.base.errors import MissingNameError  # noqa: PLC0415 - most programs need neither
    from ipusim.base.near_names import did_you_mean  # noqa: PLC0415 - as above

    few = f": {module} has {', '.join(sorted(known_names))}" if len(known_names) <= _MOST_NAMES else ""
    raise MissingNameError(
        f"{module}.{name} is not simulated{did_you_mean(name, known_names)}{few}; "
        "reports/graphcore_api.md lists all names"
    )
