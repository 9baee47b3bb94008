"""Look up expected figures (results of a run) by name.

A name is a figure of the table, an item of a figure such as ``peak.0``, or a path in ``summary.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from ipusim.analysis.figures import FIGURES, ITEMS, Figure, figure, figure_names
from ipusim.analysis.phases import Phase
from ipusim.analysis.run_times import RunTimes
from ipusim.analysis.summary import Summary
from ipusim.analysis.throughput import Throughput
from ipusim.analysis.utilisation import IpuUse
from ipusim.analysis.verdict import Verdict
from ipusim.base.errors import QuantityError
from ipusim.base.near_names import did_you_mean, list_names
from ipusim.timeline.time_parts import TimePart

#: Fields of ``waterfall`` with a value for each part of a run's time.
_WATERFALL_FIELDS: Final = (("cycles", int), ("shares", float))
#: Parts of a run's time in ``summary.json``: cycles and shares by part.
Parts: Final = make_dataclass(
    "Parts",
    [
        ("run_cycles", int),
        ("executions", int),
        *((name, make_dataclass(name, [(part.key, kind) for part in TimePart])) for name, kind in _WATERFALL_FIELDS),
    ],
)
#: Keys of ``summary.json`` besides the fields of its values.
_FURTHER_KEYS: Final[Mapping[type, Mapping[str, Any]]] = {
    Summary: {
        "schema_version": int,
        "utilisation": float,
        "idle_ipus": tuple[int, ...],
        "waterfall": Parts,
        "verdict": Verdict,
    },
    Throughput: {"run_s": float},
    Phase: {"cycles": int, "seconds": float},
}
#: Units of paths by the suffix of the last key.
_UNITS: Final = {"samples_per_s": "samples per second", "per_s": "number", "_s": "seconds", "_bytes": "bytes"}


def takes_item(entry: Figure) -> bool:
    """Return whether an item of a figure can be selected, as in ``peak.0``."""
    return "{}" in entry.path


@cache
def figure_of(name: str) -> tuple[Figure, str]:
    """Return the figure named ``name`` and the selected item or ``""``; raises QuantityError for an unknown name."""
    head, _, item = name.partition(".")
    if head in figure_names():
        entry = figure(head)
        if not item:
            return entry, ""
        if takes_item(entry) and (item in ITEMS or (item.isdecimal() and item.isascii() and len(item) < 10)):
            return entry, item
        if takes_item(entry):
            near = did_you_mean(item, ITEMS)
            words = ", ".join(f"{head}.{choice}" for choice in ITEMS)
            raise QuantityError(f"expected {words} or {head}.NUMBER, got {name!r}{near}")
    unit = _UNITS.get(next((end for end in _UNITS if name.endswith(end)), ""), "any")
    _check_path(name.split("."), name)
    return Figure(name, unit, "", name), ""


def _check_path(keys: Sequence[str], name: str) -> None:
    """Check the path ``keys`` against the types of a summary; raises QuantityError for a path without a value."""
    kind: Any = Summary
    for depth, key in enumerate(keys):
        kind = _of_union(kind)
        if get_origin(kind) in (tuple, list):
            if not (key in ("first", "last") or (key.isdecimal() and key.isascii() and len(key) < 10)):
                parent = ".".join(keys[:depth])
                raise QuantityError(f"expected an item of {parent} by its number, first or last, got {key!r}")
            kind = get_args(kind)[0]
        elif is_dataclass(kind) and kind is not IpuUse:
            names = _fields(cast(type, kind))
            if key not in names:
                raise QuantityError(_unknown_key_message(key, list(names), name, depth))
            kind = names[key]
        elif kind is IpuUse or kind is Any:
            kind = Any  # cycles of an IPU by use
        elif get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
            kind = get_args(kind)[1]
        else:
            raise QuantityError(f"expected a path in summary.json, got {name!r}, which continues after a value")
    if is_dataclass(_of_union(kind)) or get_origin(_of_union(kind)) is not None:
        raise QuantityError(f"expected the path of one value in summary.json, got {name!r}, which has several")


def _unknown_key_message(key: str, keys: list[str], name: str, depth: int) -> str:
    if depth:
        return f"expected a path in summary.json, got {name!r}: no key {key!r}{did_you_mean(key, keys)}"
    near = did_you_mean(key, figure_names()) or did_you_mean(key, keys)
    names = list_names([entry.name for entry in FIGURES], key)
    return f"got {name!r}{near}{'' if near else ';'} Expected a figure, {names}, or a path in summary.json"


def _of_union(kind: Any) -> Any:
    """Return ``T`` for ``T | None``; any other type unchanged."""
    if get_origin(kind) in (Union, UnionType):
        return next(member for member in get_args(kind) if member is not type(None))
    return kind


@cache
def _fields(kind: type) -> dict[str, Any]:
    """Return the keys of a value in ``summary.json``, with their types."""
    types: dict[str, Any] = {}
    json_keys = {field.name for field in fields(kind) if field.compare}
    for name, hint in get_type_hints(kind).items():
        if name not in json_keys:
            continue
        types[name] = hint
        if issubclass(kind, RunTimes) and name.endswith("_cycles"):
            types[name.removesuffix("_cycles") + "_s"] = float
    return types | dict(_FURTHER_KEYS.get(kind, {}))
