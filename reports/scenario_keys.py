"""Mappings of a scenario with their keys, found in the JSON Schema: a section of the scenario page for each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]


@dataclass
class Section:
    """Keys of one mapping.

    Attributes:
        path: path of the mapping in a scenario, ``[]`` for a list element; empty for the scenario itself.
        kind: kind of the mapping, if the path allows several kinds.
        about: description of the mapping.
        keys: schema of each key's value, by name.
        required: required keys.
        within: heading of the section with the keys shared by all kinds; empty without that section.
        also: further paths with the same keys.
    """

    path: str
    kind: str
    about: str
    keys: dict[str, Schema]
    required: frozenset[str]
    within: str = ""
    also: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """Title of the section, also the target of links."""
        return f"{self.path}: {self.kind}" if self.kind else self.path or "The scenario itself"


def sections(schema: Schema) -> dict[str, Section]:
    """Return a schema's sections in page order, by the mapping's definition."""
    result = {"": _section("", "", schema)}
    _walk("", schema["properties"], schema["$defs"], result)
    return result


def definition(reference: str) -> str:
    """Return the name of a definition from its ``$ref``."""
    return reference.rsplit("/", 1)[1]


def _walk(path: str, keys: dict[str, Schema], definitions: dict[str, Schema], result: dict[str, Section]) -> None:
    """Add sections for all mappings below ``keys``.

    Sections for mappings of the same key follow each other.
    """
    for key, value in keys.items():
        path_of = dict(_mappings(value, f"{path}.{key}" if path else key))
        new = {name: mapping_path for name, mapping_path in path_of.items() if name not in result}
        kinds_by_type = {name: definitions[name] for name in new if "type" in definitions[name]["properties"]}
        common = _common(path_of[next(iter(kinds_by_type))], kinds_by_type) if len(kinds_by_type) > 1 else None
        if common:
            result[common.heading] = common
        for name, mapping_path in path_of.items():
            if name in result:
                for heading in {name, result[name].within or name}:
                    result[heading].also.append(mapping_path)
                continue
            kind = definitions[name]["title"] if len(path_of) > 1 else ""
            result[name] = _section(mapping_path, kind, definitions[name], common if name in kinds_by_type else None)
        for name, mapping_path in new.items():
            # A recursive mapping nests with the keys of its parent.
            inner_keys = {
                key: node for key, node in definitions[name]["properties"].items() if name not in _names(node)
            }
            _walk(mapping_path, inner_keys, definitions, result)


def _section(path: str, kind: str, mapping: Schema, common: Section | None = None) -> Section:
    shared: Collection[str] = common.keys if common else ()
    keys = {name: node for name, node in mapping["properties"].items() if name not in shared}
    about = mapping["description"].replace("``", "`")
    return Section(path, kind, about, keys, frozenset(mapping.get("required", ())), common.heading if common else "")


def _common(path: str, kinds: dict[str, Schema]) -> Section:
    """Return a section for keys shared by all ``kinds``, including ``type``."""
    first, *others = kinds.values()
    names = [kind["title"] for kind in kinds.values()]
    keys: dict[str, Schema] = {"type": {"type": "string", "x-names": names, "description": "the kind"}}
    for name, node in first["properties"].items():
        if all(other["properties"].get(name) == node for other in others):
            keys[name] = node
    return Section(path, "", "One of the kinds below. Keys of every kind:", keys, frozenset(first["required"]))


def _names(node: Schema) -> set[str]:
    """Return the names of the definitions of all mappings in a value."""
    return {name for name, _ in _mappings(node, "")}


def _mappings(node: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Yield definition name and path of each mapping in a value."""
    if "$ref" in node:
        yield definition(node["$ref"]), path
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _mappings(choice, path)
    if "items" in node:
        yield from _mappings(node["items"], f"{path}[]")
