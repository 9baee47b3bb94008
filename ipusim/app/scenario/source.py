"""Read scenario files as plain data, with positions of keys and values, and the description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ipusim.api import KeyPath, runs
from ipusim.app.scenario.measured import SUFFIX, measured_text
from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import FileError
from ipusim.base.files import MAX_SCENARIO_BYTES
from ipusim.base.near_names import did_you_mean


@dataclass(frozen=True)
class Source:
    """Scenario as plain data, with positions of keys and values.

    Attributes:
        path: the file; names of other files in the scenario are relative to the file's folder.
        text: content of the file, or the scenario made from a file of measured stages.
        data: mappings, lists, texts, numbers, booleans and None.
        values: position of every value by path; the empty path is the whole scenario.
        keys: position of every mapping key by path.
        description: comment lines at the head of the file, up to the first empty one, joined by spaces.
    """

    path: Path
    text: str
    data: dict[str, Any]
    values: Mapping[KeyPath, runs.Place]
    keys: Mapping[KeyPath, runs.Place]
    description: str = ""

    def position(self, path: KeyPath) -> runs.Place:
        """Return the position of the value at ``path``, or of the nearest enclosing value."""
        while path not in self.values:
            path = path[:-1]
        return self.values[path]

    def key_position(self, path: KeyPath) -> runs.Place:
        """Return the position of a key, or of the value for list items."""
        return self.keys.get(path) or self.position(path)


def description_of(text: str) -> str:
    """Return the description of a scenario: the text of the leading comment."""
    lines = []
    for line in text.removeprefix("\ufeff").splitlines():
        if not line.startswith("#") or not line.strip("# "):
            break
        if not line.startswith("# yaml-language-server:"):  # schema location for editors
            lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines)


def parse_source(text: str, path: Path) -> Source:
    """Read the text of a scenario; ``path`` names it in messages. Raises ScenarioError."""
    located = runs.Located(str(path))
    data = located.read(text)
    if located.problems:
        raise ScenarioError(located.problems)
    if not isinstance(data, dict):
        content = "an empty file" if data is None else runs.show(data)
        position = located.values.get((), runs.Place(str(path)))
        raise _refusal(position, f"expected a mapping of keys such as 'system' and 'pipeline', got {content}")
    return Source(path, text, data, located.values, located.keys, description_of(text))


def read_source(path: Path) -> Source:
    """Read a scenario file, or a file of measured stages as scenario.

    Raises ScenarioError for unreadable files, malformed YAML, and malformed tables of stages.
    """
    refuse = partial(_refusal, runs.Place(str(path)))
    if path.suffix == ".py":
        raise refuse(
            "expected a scenario, a YAML file, got a program: `ipusim import` writes the scenario of a program"
        )
    is_measured = path.suffix == SUFFIX
    kind, content = "file of measured stages" if is_measured else "scenario file", b""
    try:
        if is_measured:
            content = measured_text(path).encode()
        else:
            with path.open("rb") as file:
                content = file.read(MAX_SCENARIO_BYTES + 1)
    except FileError as error:  # lines with their places
        problems = (line.partition(": ") for line in str(error).splitlines())
        raise ScenarioError(
            [runs.PlacedProblem(runs.Place(position), "", problem) for position, _, problem in problems]
        ) from None
    except FileNotFoundError:
        near = _near_file_hint(path, SUFFIX if is_measured else ".yaml")
        raise refuse(f"expected a {kind}, got no such file{near}") from None
    except IsADirectoryError:
        raise refuse(f"expected a {kind}, got a folder") from None
    except (OSError, ValueError) as error:  # ValueError for a null byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(f"expected a file that can be read, got: {reason}") from None
    if not is_measured and len(content) > MAX_SCENARIO_BYTES:
        raise refuse(f"expected a scenario of at most {MAX_SCENARIO_BYTES >> 10} KiB, got a larger file")
    try:
        source = parse_source(content.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise refuse(
            f"expected UTF-8 text, got the byte 0x{content[error.start]:02x} at offset {error.start}"
        ) from None
    if not is_measured:
        return source
    place = runs.Place(str(path))  # every value has the position of the whole file
    return replace(source, values=dict.fromkeys(source.values, place), keys=dict.fromkeys(source.keys, place))


def _refusal(position: runs.Place, text: str) -> ScenarioError:
    return ScenarioError([runs.PlacedProblem(position, "", text)])


def _near_file_hint(path: Path, suffix: str) -> str:
    """Suggest a similarly named file in the same folder.

    Suffixes are not compared: short names with a common suffix would always be similar.
    """
    files = sorted(file.stem for file in path.parent.glob(f"*{suffix}") if file.exists())  # a link may lead nowhere
    near = did_you_mean(path.stem, files)
    return near.removesuffix("?") + f"{suffix}?" if near else ""
