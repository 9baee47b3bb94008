"""Values of a scenario replaced on the command line: ``--set path=value``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ipusim.api import KeyPath, Problem, RequestError, runs
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import Source


def on_command_line(name: str) -> runs.Place:
    """Return the place of an override that was given on the command line."""
    return runs.Place(f"--set {name}")


def apply_overrides(
    source: Source, overrides: Iterable[str], place_of: Callable[[str], runs.Place] = on_command_line
) -> Source:
    """Return ``source`` with each ``path=value`` put in its place, in the order given.

    A path is keys and list indices joined by dots; a list of named things (layers, stages) takes
    the name for an index, such as ``pipeline.gradient_accumulation_count=32``. The value is YAML; mappings missing
    on the way are made. ``place_of`` tells of a path where its override stands. Raises ScenarioError with every
    override that cannot be read or has no place.
    """
    data: dict[str, Any] = deepcopy(source.data)
    values, keys = dict(source.values), dict(source.keys)
    problems: list[runs.PlacedProblem] = []
    for override in overrides:
        name, equals, text = override.partition("=")
        place = place_of(name)
        try:
            if not equals or not name:
                raise _nowhere(f"expected path=value, such as pipeline.repeat_count=10, got {override!r}")
            path = _put(data, name.split("."), located := runs.Located(place.source, place), text)
        except RequestError as error:
            problems += [runs.PlacedProblem(place, "", problem.text) for problem in error.problems]
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


def _nowhere(text: str) -> RequestError:
    """Return the error of an override that leads nowhere; the text says where it stopped."""
    return RequestError([Problem((), text)])


def _put(data: dict[str, Any], names: list[str], located: runs.Located, text: str) -> KeyPath:
    """Put the value of ``text`` where ``names`` lead to from ``data``; return the path with real indices."""
    here: Any = data
    path: KeyPath = ()
    for depth, name in enumerate(names):
        if isinstance(here, list):
            key: str | int = runs.index_of(here, name, path)
        elif isinstance(here, dict):
            if not name:
                raise _nowhere(f"expected keys joined by single dots, got {'.'.join(names)!r}")
            key = name
            if depth < len(names) - 1 and here.get(name) is None:
                here[name] = {}
        else:
            raise _nowhere(f"expected {runs.dotted(path)} to be a mapping or a list, got {runs.show(here)}")
        path = (*path, key)
        if depth == len(names) - 1:
            here[key] = located.read(text, path)
        else:
            here = here[key]
    return path
