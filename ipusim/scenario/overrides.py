"""Values of a scenario replaced on the command line: ``--set path=value``."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ipusim.near_names import did_you_mean
from ipusim.runs.places import Place, PlacedProblem
from ipusim.runs.problems import KeyPath, dotted, show
from ipusim.runs.yaml_text import Located
from ipusim.scenario.problems import ScenarioError
from ipusim.scenario.source import Source
from ipusim.units import format_numbers


def apply_overrides(source: Source, overrides: Iterable[str]) -> Source:
    """Return ``source`` with each ``path=value`` put in its place, in the order given.

    A path is keys and list indices joined by dots; a list of named things (layers, stages) takes
    the name for an index. The value is YAML; mappings missing on the way are made. Raises
    ScenarioError with every override that cannot be read or has no place.

    >>> apply_overrides(source, ["pipeline.gradient_accumulation_count=32"])  # doctest: +SKIP
    """
    data: dict[str, Any] = deepcopy(source.data)
    values, keys = dict(source.values), dict(source.keys)
    problems: list[PlacedProblem] = []
    for override in overrides:
        name, equals, text = override.partition("=")
        place = Place(f"--set {name}")
        try:
            if not equals or not name:
                raise _NowhereError(f"expected path=value, such as pipeline.repeat_count=10, got {override!r}")
            path = _put(data, name.split("."), located := Located(f"--set {name}", place), text)
        except _NowhereError as error:
            problems.append(PlacedProblem(place, "", str(error)))
            continue
        problems.extend(located.problems)
        for marks in (values, keys):
            for old in [old for old in marks if old[: len(path)] == path and old != path]:
                del marks[old]
        values.update(located.values)
        keys.update(located.keys)
        for depth in range(1, len(path) + 1):  # mappings made on the way stand at the override as well
            values.setdefault(path[:depth], place)
            keys.setdefault(path[:depth], place)
        values[path] = keys[path] = place
    if problems:
        raise ScenarioError(problems)
    return replace(source, data=data, values=values, keys=keys)


class _NowhereError(Exception):
    """An override that leads nowhere; the text says where it stopped."""


def _put(data: dict[str, Any], names: list[str], located: Located, text: str) -> KeyPath:
    """Put the value of ``text`` where ``names`` lead to from ``data``; return the path with real indices."""
    here: Any = data
    path: KeyPath = ()
    for depth, name in enumerate(names):
        if isinstance(here, list):
            key: str | int = _index(here, name, path)
        elif isinstance(here, dict):
            if not name:
                raise _NowhereError(f"expected keys joined by single dots, got {'.'.join(names)!r}")
            key = name
            if depth < len(names) - 1 and here.get(name) is None:
                here[name] = {}
        else:
            raise _NowhereError(f"expected {dotted(path)} to be a mapping or a list, got {show(here)}")
        path = (*path, key)
        if depth == len(names) - 1:
            here[key] = located.read(text, path)
        else:
            here = here[key]
    return path


def _index(items: list[Any], name: str, path: KeyPath) -> int:
    if not items:
        raise _NowhereError(f"expected an item of {dotted(path)}, which has none, got {name}")
    if name.isdecimal() and name.isascii() and len(name) < 10:
        if int(name) < len(items):
            return int(name)
        raise _NowhereError(f"expected an index of {dotted(path)} {format_numbers(len(items))}, got {name}")
    named = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in items]
    if name in named:
        return named.index(name)
    near = did_you_mean(name, [other for other in named if other])
    raise _NowhereError(f"expected an index of {dotted(path)} or the name of an item in it, got {name!r}{near}")
