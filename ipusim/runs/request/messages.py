"""Convert pydantic's validation errors to Problems in plain words.

Words for accepted values come from the JSON Schema of a scenario, which editors also use, so that messages, editors and
validation agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic_core import ErrorDetails

from ipusim.base.near_names import all_nearest, did_you_mean, equal_name, expected_last, list_names, one_mistake_away
from ipusim.runs.problems import KeyPath, Problem, one_of, show
from ipusim.runs.request.fields import NONE
from ipusim.runs.request.graphcore_options import instead_of
from ipusim.runs.request.meant import suggestion

#: Node of a JSON Schema.
JsonNode = dict[str, Any]
#: Last part of pydantic's path to an error in a mapping's key, not in its value.
_KEY: Final = "[key]"
#: Maximum length of an expectation before the hint, in characters.
_LONG_EXPECTATION: Final = 100
#: Maximum number of types, or of options, in a hint.
_MOST_TYPES: Final = 3
#: Note after a truncated list of keys or names.
_MORE_KEYS: Final = ", which `ipusim check --schema` lists"


def problems_of(errors: Iterable[ErrorDetails], schema: JsonNode) -> list[Problem]:
    """Return a Problem for each of pydantic's errors; ``schema`` is the JSON Schema of a request."""
    return [_problem(error, schema) for error in errors if not _is_echo(error)]


def _is_echo(error: ErrorDetails) -> bool:
    """Return whether an error says that a list is too short only because invalid items, reported too, are left out."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _problem(error: ErrorDetails, schema: JsonNode) -> Problem:
    path: KeyPath = tuple(key for key in error["loc"] if not _is_tag(key) and key != _KEY)
    node, parent = _walk(schema, error["loc"])
    value, of_key, hint = error["input"], False, ""
    if error["type"] == "value_error":  # the error has a complete message
        return Problem(path, str(error["ctx"]["error"]), error["loc"][-1:] == (_KEY,))
    if error["type"] == "missing":
        note = f" ({node['description']})" if "description" in node else ""
        return Problem(path, _message(describe(node, schema), f"nothing{note}", ""))
    if error["type"] == "extra_forbidden":
        value, names, of_key = path[-1], list(parent.get("properties", ())), True
        expectation, hint = (
            f"one of the keys {list_names(names, value, _MORE_KEYS)}",
            _key_hint(path, names, error["loc"], schema),
        )
    elif error["loc"][-1:] == (_KEY,):
        value, names, of_key = path[-1], [], True
        expectation = describe(node, schema)
    elif error["type"].startswith("union_tag") and isinstance(value, dict) and (names := _kinds(node, schema)):
        path, value = (*path, "type"), value.get("type")
        expectation = _one_of(names, value)
    else:
        names, expectation = node.get("x-names", []), describe(node, schema)
        hint = suggestion(value, node, parent.get("properties", {}))
    return Problem(path, _message(expectation, show(value), hint or did_you_mean(value, names)), of_key)


def _message(expectation: str, value: str, hint: str) -> str:
    """Return "expected ..., got ..." with the hint; a long expectation comes last, after the hint."""
    if len(expectation) <= _LONG_EXPECTATION:
        return f"expected {expectation}, got {value}{hint}"
    return expected_last(f"got {value}", hint, expectation)


def _key_hint(path: KeyPath, names: list[str], location: tuple[str | int, ...], schema: JsonNode) -> str:
    """Return a hint at the probable meaning of an unknown key; the first of several candidates wins.

    Candidates are, in this order: an option of Graphcore's; one of ``names`` (the keys allowed at this position); a key
    of another type in the same union; an option of another section; and the nearest of ``names``.
    """
    key = str(path[-1])
    # Graphcore's options belong at the top, in the pipeline or in the system.
    if path[:-1] in ((), ("pipeline",), ("system",)) and (graphcores := instead_of(key)):
        return graphcores
    if match := equal_name(key, names):
        return f"; did you mean {match}?"
    if candidate := _in_other_kinds(key, location, schema) or _elsewhere(key, path[:-1], schema):
        return f"; did you mean {candidate}?"
    if one_mistake_away(key, names):
        return did_you_mean(key, names)
    paths = _paths_elsewhere(path[:-1], schema)
    return _in_section(one_mistake_away(key, paths), paths) or (
        did_you_mean(key, names) or _in_section(all_nearest(key, paths), paths)
    )


def _in_other_kinds(key: str, location: tuple[str | int, ...], schema: JsonNode) -> str | None:
    """Return ``key of type a or b`` for other types with the key, in the union at ``location``.

    None if no other type has the key, or if many types have it.
    """
    tags = [position for position, part in enumerate(location) if _is_tag(part)]
    if not tags:
        return None
    node, _ = _walk(schema, location[: tags[-1]])
    key_of = {
        _type_node(kind)["const"]: name
        for kind in _branches(node, schema)
        if "const" in _type_node(kind) and (name := equal_name(key, kind["properties"]))
    }
    names = set(key_of.values())
    return f"{names.pop()} of type {one_of(key_of)}" if len(names) == 1 and len(key_of) <= _MOST_TYPES else None


def _elsewhere(key: str, section: KeyPath, schema: JsonNode) -> str | None:
    """Return the only option called ``key`` at the top or in another section; None without a unique option."""
    if len(section) > 1:
        return None
    top = schema["properties"]
    if option := equal_name(key, top):
        return f"{option} at the top"
    places = [
        (part, name) for part in top if part not in section and (name := equal_name(key, _keys(top[part], schema)))
    ]
    return ".".join(places[0]) if len(places) == 1 else None


def _paths_elsewhere(section: KeyPath, schema: JsonNode) -> dict[str, list[str]]:
    """Return paths of options at the top or in other sections, by name; empty if ``section`` is nested."""
    if len(section) > 1:
        return {}
    top = schema["properties"]
    paths = {name: [f"{name} at the top"] for name in top} if section else {}
    for part in top:
        if part not in section:
            for name in _keys(top[part], schema):
                paths.setdefault(name, []).append(f"{part}.{name}")
    return paths


def _in_section(names: Iterable[str], paths: Mapping[str, list[str]]) -> str:
    """Return a hint with the paths of options called ``names``; empty where there are many."""
    near = [path for name in names for path in paths[name]]
    return f"; did you mean {one_of(near)}?" if 0 < len(near) <= _MOST_TYPES else ""


def _one_of(names: list[str], value: object) -> str:
    """Join names as an English list; a long list keeps only the nearest names to ``value``."""
    nearest_names = list_names(names, value, _MORE_KEYS)
    return nearest_names if nearest_names.endswith(_MORE_KEYS) else one_of(names)


def _keys(node: JsonNode, schema: JsonNode) -> list[str]:
    """Return the keys of a mapping, or of all types of a union."""
    node = _resolve(node, schema)
    kinds = _branches(node, schema) if "oneOf" in node else [node]
    return list(dict.fromkeys(key for kind in kinds for key in kind.get("properties", ())))


def _is_tag(key: str | int) -> bool:
    return isinstance(key, str) and key.startswith("<") and key.endswith(">")


def _walk(schema: JsonNode, path: Iterable[str | int]) -> tuple[JsonNode, JsonNode]:
    """Return the node of ``schema`` at ``path``, and its parent.

    A tag in the path selects the type of a union that has this title.
    """
    node, parent = schema, schema
    for key in path:
        inner = _resolve(node, schema)
        if _is_tag(key) and "oneOf" in inner:
            title = str(key)[1:-1]
            node = next(
                kind
                for kind in (_resolve(branch, schema) for branch in inner["oneOf"])
                if title == kind.get("title") or title in kind.get("x-names", ())
            )
        elif key == _KEY:
            node = parent.get("propertyNames", {})
        elif isinstance(key, int):
            node, parent = inner.get("items", {}), inner
        else:
            (any_key,) = inner.get("patternProperties", {"": {}}).values()
            node, parent = inner.get("properties", {}).get(key, any_key), inner
    return _resolve(node, schema), _resolve(parent, schema)


def _resolve(node: JsonNode, schema: JsonNode) -> JsonNode:
    """Resolve references and drop null from choices; keys beside a reference override it."""
    if "$ref" in node:
        target = _resolve(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
        if len(node) == 1:  # most references have no other keys
            return target
        return target | {key: value for key, value in node.items() if key != "$ref"}
    options = [option for option in node.get("anyOf", ()) if option not in ({"type": "null"}, NONE)]
    if len(options) == 1:
        other_keys = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return _resolve(options[0], schema) | other_keys
    return node


def _branches(node: JsonNode, schema: JsonNode) -> list[JsonNode]:
    return [_resolve(branch, schema) for branch in node["oneOf"]]


def _type_node(kind: JsonNode) -> JsonNode:
    """Return the schema node of the key ``type`` in a type of a union; empty without one."""
    type_node: JsonNode = kind.get("properties", {}).get("type", {})
    return type_node


def _kinds(node: JsonNode, schema: JsonNode) -> list[str]:
    """Return the accepted values of ``type`` in a union of mappings."""
    types = map(_type_node, _branches(node, schema))
    return [kind["const"] for kind in types if "const" in kind]


def describe(node: JsonNode, schema: JsonNode) -> str:
    """Describe the values accepted by a JSON Schema node, to follow "expected"."""
    node = _resolve(node, schema)
    words = node.get("errorMessage") or node.get("const") or _BY_TYPE.get(node.get("type", ""))
    if words:
        return f"{words}{_span(node)}"
    if "oneOf" in node:
        return one_of([describe(branch, schema) for branch in _branches(node, schema)])
    if node.get("type") == "array":
        return f"a list of {_length(node)}items, each {describe(node['items'], schema)}"
    keys = ", ".join(node.get("properties", ()))
    return f"a mapping with keys out of {keys}" if keys else "a mapping"


_BY_TYPE: Final = {"integer": "a whole number", "number": "a number", "string": "a text", "boolean": "true or false"}


def _length(node: JsonNode) -> str:
    least, most = node.get("minItems", 0), node.get("maxItems")
    return "" if most is None else f"{least} to {most} "


def _span(node: JsonNode) -> str:
    least, most, lower, upper = (
        int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for limit in map(node.get, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    )
    low = f" from {least}" if least is not None else f" above {lower}" if lower is not None else ""
    high = f" to {most}" if most is not None else f" below {upper}" if upper is not None else ""
    return low + (f" and{high}" if upper is not None and low else high)
