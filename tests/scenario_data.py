"""Scenarios as plain data: validated and resolved as every one is, without a YAML file where YAML is not the point."""

from __future__ import annotations

from pathlib import Path

from ipusim.scenario.load import validate
from ipusim.scenario.problems import Place
from ipusim.scenario.resolve import resolve
from ipusim.scenario.source import Source


def experiment_of(data, folder=Path()):
    """Return the Experiment of a scenario's mapping; files that it names are relative to ``folder``."""
    path = Path(folder, "drawn.yaml")
    places = {path_to: Place(str(path)) for path_to in paths_in(data)}
    source = Source(path, data, places, places)
    return resolve(validate(source), source)


def paths_in(value, path=()):
    """Yield the path of every value within a scenario, beginning with itself."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from paths_in(inner, (*path, key))
