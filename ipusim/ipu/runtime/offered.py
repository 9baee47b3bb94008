"""Offer Graphcore's names lazily: their modules are imported at first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

_Lookup = tuple[Callable[[str], Any], Callable[[], list[str]]]


def in_module(home: str, names: str) -> dict[str, str]:
    """Return rows for names in a text, all defined in module ``home``."""
    return {name: f"{home}:{name}" for name in names.split()}


def rows(module: str, names: Mapping[str, str]) -> _Lookup:
    """Return ``__getattr__`` and ``__dir__`` for a module that has ``names`` in addition to those that it defines."""

    @cache
    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return resolve(names[name])

    def list_names() -> list[str]:
        members = vars(sys.modules[module])
        defined = (name for name in members if getattr(members[name], "__module__", "") == module and name[0] != "_")
        return sorted({*names, *members.get("__all__", ()), *defined})

    return find, list_names


def resolve(row: str) -> Any:
    """Return the object behind a row: a module, or "module:name"."""
    home, _, attribute = row.partition(":")
    module = import_module(home)
    return attrgetter(attribute)(module) if attribute else module
