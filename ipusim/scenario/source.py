"""The text of a scenario: YAML 1.2 read into plain data, with the place of every key and value."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ipusim.near_names import did_you_mean
from ipusim.runs.problems import KeyPath, dotted, show
from ipusim.scenario.problems import Place, PlacedProblem, ScenarioError

#: Largest scenario file, in bytes: far beyond any written by hand, and read in a few seconds.
_MAX_BYTES: Final = 1 << 17
#: Deepest nesting; the schema needs five levels.
_MAX_DEPTH: Final = 16
_TAG: Final = "tag:yaml.org,2002:"
#: Tags that YAML 1.2's core schema gives to plain scalars.
_TYPED: Final = (f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool")
#: Tags of older YAML that plain text may match; in YAML 1.2 it is text.
_TEXT: Final = tuple(_TAG + name for name in ("str", "timestamp", "merge", "value"))


@dataclass(frozen=True)
class Source:
    """A scenario as plain data and the place of everything in it.

    Attributes:
        path: the file; names of other files in the scenario are relative to its folder.
        data: mappings, lists, texts, numbers, booleans and None.
        values: place of each value by its path; the empty path is the whole scenario.
        keys: place of each mapping key by the path of its value.
        description: the comment lines at the head of the file, up to the first empty one, joined by spaces.
    """

    path: Path
    data: dict[str, Any]
    values: Mapping[KeyPath, Place]
    keys: Mapping[KeyPath, Place]
    description: str = ""

    def place(self, path: KeyPath) -> Place:
        """Return the place of the value at ``path``, or of the nearest enclosing value that is written."""
        while path not in self.values:
            path = path[:-1]
        return self.values[path]

    def key_place(self, path: KeyPath) -> Place:
        """Return the place of the key at ``path``, or of the value where there is no key (list items)."""
        return self.keys.get(path) or self.place(path)


class Located:
    """Plain data under construction from YAML nodes, with the places and problems met on the way."""

    def __init__(self, source: str, fixed: Place | None = None) -> None:
        """Places are in the file ``source``; or all the same, ``fixed``, for an override."""
        self.values: dict[KeyPath, Place] = {}
        self.keys: dict[KeyPath, Place] = {}
        self.problems: list[PlacedProblem] = []
        self._source = source
        self._fixed = fixed
        self._yaml = YAML(typ="safe", pure=True)
        self._yaml.max_depth = _MAX_DEPTH

    def read(self, text: str, path: KeyPath = ()) -> Any:
        """Return the data of ``text``, which stands at ``path``; None when there is none or it is wrong."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of anchors used twice: every anchor is a problem below
                node = self._yaml.compose(text)
            return None if node is None else self._value(node, path)
        except ReaderError as error:
            position = error.position if isinstance(error.position, int) else 0
            before = text[:position]
            place = Place(self._source, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
            self._problem(place, path, f"expected text, got the control character {error.character!r}")
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = Place(self._source) if mark is None else self._at(mark)
            self._problem(place, path, _syntax(error))
        except YAMLError as error:
            self._problem(None, path, f"this is not YAML: {error}")
        return None

    def _at(self, mark: Any) -> Place:
        return self._fixed or Place(self._source, mark.line + 1, mark.column + 1)

    def _problem(self, place: Place | None, path: KeyPath, text: str) -> None:
        self.problems.append(PlacedProblem(self._fixed or place or Place(self._source), dotted(path), text))

    def _value(self, node: Node, path: KeyPath) -> Any:
        # An empty value has the place of whatever follows it; its key says better where it is missing.
        empty = isinstance(node, ScalarNode) and node.value == "" and node.style is None
        place = (self.keys.get(path) if empty else None) or self._at(node.start_mark)
        self.values[path] = place
        if node.anchor is not None:
            self._problem(
                place, path, f"expected the value itself, got an anchor or alias ({node.anchor}): write it out"
            )
            return None
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, path, place)
        raise TypeError(f"a YAML node of an unknown kind: {node!r}")

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            place = self._at(key.start_mark)
            if not isinstance(key, ScalarNode):
                self._problem(place, path, "expected a name as key, got a list or a mapping")
                continue
            inner = (*path, key.value)
            if key.value in data:
                first = self.keys[inner]
                self._problem(place, inner, f"expected each key once, got it a second time (first at {first})")
                continue
            self.keys[inner] = place
            data[key.value] = self._value(value, inner)
        return data

    def _scalar(self, node: ScalarNode, path: KeyPath, place: Place) -> Any:
        tag = str(node.tag)
        if tag == f"{_TAG}null":
            return None
        if tag in _TEXT:
            return node.value
        if tag not in _TYPED:
            self._problem(place, path, f"expected a plain value, got one with the tag {tag}")
            return None
        try:
            return self._yaml.constructor.construct_object(node)
        except (ValueError, OverflowError, KeyError):
            self._problem(place, path, f"expected a number of ordinary length, got {show(node.value)}")
            return None


#: What the YAML reader says of the mistakes that people make, and what a person is told.
_PLAINLY: Final = {
    "maximum depth": f"expected at most {_MAX_DEPTH} levels of mappings and lists, got more",
    "found character '\\t'": "expected spaces, got a tab: YAML indents with spaces",
    "mapping values are not allowed": (
        "expected no further ': ' here: check the indentation, or put a text that holds ': ' in quotes"
    ),
    "another document": "expected one scenario in a file, got a second document after '---'",
    "could not find expected ':'": "expected 'key: value', got a line without a colon",
}


def _syntax(error: MarkedYAMLError) -> str:
    """Say what is wrong with the syntax."""
    problem = str(error.problem)
    for said, plainly in _PLAINLY.items():
        if said in problem:
            return plainly
    if "undefined alias" in problem:
        return f"expected the value itself, got {problem.removeprefix('found undefined ')}: write it out"
    context = f" ({error.context})" if error.context else ""
    return f"this is not YAML: {problem}{context}"


def _description(text: str) -> str:
    lines = []
    for line in text.removeprefix("\ufeff").splitlines():
        if not line.startswith("#") or not line.strip("# "):
            break
        if not line.startswith("# yaml-language-server:"):  # which says to an editor where the schema is
            lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines)


def parse_source(text: str, path: Path) -> Source:
    """Read the text of a scenario; ``path`` names it in messages. Raises ScenarioError."""
    located = Located(str(path))
    data = located.read(text)
    if located.problems:
        raise ScenarioError(located.problems)
    if not isinstance(data, dict):
        got = "an empty file" if data is None else show(data)
        place = located.values.get((), Place(str(path)))
        problem = PlacedProblem(place, "", f"expected a mapping of keys such as 'system' and 'pipeline', got {got}")
        raise ScenarioError([problem])
    return Source(path, data, located.values, located.keys, _description(text))


def read_source(path: Path) -> Source:
    """Read a scenario file. Raises ScenarioError when it cannot be read or is not YAML."""

    def refuse(text: str) -> ScenarioError:
        return ScenarioError([PlacedProblem(Place(str(path)), "", text)])

    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        # By what tells files apart: with a suffix that all have, any two short names would be alike.
        near = did_you_mean(path.stem, sorted(other.stem for other in path.parent.glob("*.yaml")))
        near = near.removesuffix("?") + ".yaml?" if near else ""
        raise refuse(f"expected a scenario file, got no such file{near}") from None
    except IsADirectoryError:
        raise refuse("expected a scenario file, got a folder") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(f"expected a file that can be read, got: {reason}") from None
    if len(content) > _MAX_BYTES:
        raise refuse(f"expected a scenario of at most {_MAX_BYTES >> 10} KiB, got a larger file")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse(
            f"expected UTF-8 text, got the byte 0x{content[error.start]:02x} at offset {error.start}"
        ) from None
    return parse_source(text, path)
