"""Apply overrides of a scenario's values from the command line: ``--set path=value``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ipusim.api import KeyPath, Problem, RequestError, runs
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import Source


class OptionOverride(str):
    """Override with an option name for messages, such as ``disturbances`` instead of ``set``.

    Attributes:
        option: option name without dashes.
    """

    __slots__ = ("option",)
    option: str

    def __new__(cls, option: str, key: str, value: str) -> OptionOverride:
        """Return override ``key=value`` with an option name."""
        override = super().__new__(cls, f"{key}={value}")
        override.option = option
        return override


def on_command_line(name: str) -> runs.Place:
    """Return the position of an override from the command line."""
    return runs.Place(f"--set {name}")


def apply_overrides(
    source: Source, overrides: Iterable[str], position_of: Callable[[str], runs.Place] = on_command_line
) -> Source:
    """Return ``source`` with the options set by each ``path=value``, in order.

    A path is keys and list indices joined by dots, such as ``pipeline.gradient_accumulation_count=32``; items with a
    name (layers, stages) may be indexed by name. The value is YAML; missing mappings on a path are created.
    ``position_of`` returns the position of an override for messages. Raises ScenarioError with every override that
    cannot be read or whose path does not exist.
    """
    data: dict[str, Any] = deepcopy(source.data)
    values, keys = dict(source.values), dict(source.keys)
    problems: list[runs.PlacedProblem] = []
    for override in overrides:
        name, equals, text = override.partition("=")
        position = runs.Place(f"--{override.option}") if isinstance(override, OptionOverride) else position_of(name)
        try:
            if not equals or not name:
                raise _path_error(f"expected path=value, such as pipeline.repeat_count=10, got {override!r}")
            path = _set_value(data, name.split("."), located := runs.Located(position.source, position), text)
        except RequestError as error:
            problems += [runs.PlacedProblem(position, "", problem.text) for problem in error.problems]
            continue
        problems.extend(located.problems)
        for positions in (values, keys):
            for old in [old for old in positions if old[: len(path)] == path and old != path]:
                del positions[old]
        values.update(located.values)
        keys.update(located.keys)
        for depth in range(1, len(path) + 1):  # mappings created on the path also get the override's position
            values.setdefault(path[:depth], position)
            keys.setdefault(path[:depth], position)
        values[path] = keys[path] = position
    if problems:
        raise ScenarioError(problems)
    return replace(source, data=data, values=values, keys=keys)


def apply_changes(source: Source, changes: Mapping[str, Any]) -> Source:
    """Return ``source`` with Python values for options by dotted name; None unsets an option.

    Raises ScenarioError as :func:`apply_overrides` does, with ``changes`` as position.
    """
    data = deepcopy(source.data)
    for name in (name for name, value in changes.items() if value is None):
        runs.take_out(data, name)
    texts = (f"{name}={json.dumps(value, default=runs.show)}" for name, value in changes.items() if value is not None)
    return apply_overrides(replace(source, data=data), texts, lambda name: runs.Place(f"changes {name}"))


def _path_error(text: str) -> RequestError:
    """Return the error of an override with an unknown path."""
    return RequestError([Problem((), text)])


def _set_value(data: dict[str, Any], names: list[str], located: runs.Located, text: str) -> KeyPath:
    """Set the option at ``names`` to the YAML ``text``; return the path with numeric indices."""
    value: Any = data
    path: KeyPath = ()
    for depth, name in enumerate(names):
        if isinstance(value, list):
            key: str | int = runs.index_of(value, name, path)
        elif isinstance(value, dict):
            if not name:
                raise _path_error(f"expected keys joined by single dots, got {'.'.join(names)!r}")
            key = name
            if depth < len(names) - 1 and value.get(name) is None:
                value[name] = {}
        else:
            raise _path_error(f"expected {runs.dotted(path)} to be a mapping or a list, got {runs.show(value)}")
        path = (*path, key)
        if depth == len(names) - 1:
            value[key] = located.read(text, path)
        else:
            value = value[key]
    return path
