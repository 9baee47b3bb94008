"""A scenario file read, overridden and validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from ipusim.hardware.machines import find_machine
from ipusim.scenario.fields import CLOCK_HZ
from ipusim.scenario.messages import problems_of
from ipusim.scenario.overrides import apply_overrides
from ipusim.scenario.problems import ScenarioError
from ipusim.scenario.schema import Scenario, SystemSpec, json_schema
from ipusim.scenario.source import Source, read_source
from ipusim.schedules import registry


def validate(source: Source) -> Scenario:
    """Return the Scenario that ``source`` says. Raises ScenarioError with every problem of its keys and values."""
    try:
        return Scenario.model_validate(source.data, context={CLOCK_HZ: _clock_hz(source.data)})
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise ScenarioError(problems_of(found, source, _schema_with(registry.names()))) from None


def _clock_hz(data: Mapping[str, Any]) -> int:
    """Return the tile clock of the system of a scenario; any clock for a system that is no good, which is refused."""
    try:
        system = SystemSpec.model_validate(data.get("system"))
    except ValidationError:
        return 10**9
    return system.clock or find_machine(system.name).ipu.clock_hz


@cache
def _schema_with(schedules: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 - they are what may change in it
    """Return the JSON Schema, made once for each set of registered schedules: it takes 0.1 s."""
    return json_schema()


def load_source(path: Path | str, overrides: Iterable[str] = ()) -> tuple[Source, Scenario]:
    """Read a scenario file and its overrides; return it as text with places and as a Scenario."""
    source = apply_overrides(read_source(Path(path)), overrides)
    return source, validate(source)


def load_scenario(path: Path | str, overrides: Iterable[str] = ()) -> Scenario:
    """Read and validate a scenario file, with overrides such as ``pipeline.repeat_count=10``.

    Raises ScenarioError with every problem found.
    """
    return load_source(path, overrides)[1]


def run_name(scenario: Scenario, path: Path | str) -> str:
    """Return what names a run and its folder: the scenario's name, or the file's.

    Bytes of a file's name that no text can show (control characters, what is not UTF-8) are written as %XX.
    """
    shown = (c if c.isprintable() else quote(c, errors="surrogateescape") for c in Path(path).stem)
    return scenario.name or "".join(shown)
