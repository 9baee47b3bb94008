"""From pydantic's findings to Problems in plain words.

What a key expects is read from the JSON Schema of a scenario, the same that
editors use, so that messages, editors and validation cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic_core import ErrorDetails

from ipusim.scenario.problems import KeyPath, Problem, did_you_mean, dotted, one_of, show
from ipusim.scenario.source import Source

#: A node of a JSON Schema.
JsonNode = dict[str, Any]
#: What pydantic puts at the end of a path to say that the key of a mapping is wrong, not its value.
_KEY: Final = "[key]"


def problems_of(errors: Iterable[ErrorDetails], source: Source, schema: JsonNode) -> list[Problem]:
    """Return a Problem for each of pydantic's errors on ``source``; ``schema`` is the scenario's JSON Schema."""
    return [_problem(error, source, schema) for error in errors if not _is_echo(error)]


def _is_echo(error: ErrorDetails) -> bool:
    """Whether a list is called too short only because items of it are wrong, which is reported anyway."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _problem(error: ErrorDetails, source: Source, schema: JsonNode) -> Problem:
    path: KeyPath = tuple(step for step in error["loc"] if not _is_tag(step) and step != _KEY)
    node, parent = _walk(schema, error["loc"])
    if error["loc"][-1:] == (_KEY,):
        return Problem(source.key_place(path), dotted(path), f"expected {describe(node, schema)}, got {show(path[-1])}")
    match error["type"]:
        case "missing":
            place, key = source.place(path), dotted(path)
            return Problem(place, key, f"expected {describe(node, schema)}, got nothing{_purpose(node)}")
        case "extra_forbidden":
            names = list(parent.get("properties", ()))
            text = f"expected one of the keys {', '.join(names)}, got {show(path[-1])}"
            return Problem(source.key_place(path), dotted(path), text + did_you_mean(path[-1], names))
        case "told":
            return Problem(source.place(path), dotted(path), error["msg"])
        case "union_tag_not_found" if isinstance(error["input"], dict):
            path, got = (*path, "type"), error["input"].get("type")
            text = f"expected {one_of(_kinds(node, schema))}, got {show(got)}"
            return Problem(source.place(path), dotted(path), text)
        case "union_tag_invalid":
            kinds, path = _kinds(node, schema), (*path, "type")
            got = error["input"]["type"]
            text = f"expected {one_of(kinds)}, got {show(got)}{did_you_mean(got, kinds)}"
            return Problem(source.place(path), dotted(path), text)
        case _:
            got = error["input"]
            near = did_you_mean(got, node.get("x-names", []))
            return Problem(source.place(path), dotted(path), f"expected {describe(node, schema)}, got {show(got)}{near}")


def _is_tag(step: str | int) -> bool:
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def _walk(schema: JsonNode, steps: Iterable[str | int]) -> tuple[JsonNode, JsonNode]:
    """Return the node of ``schema`` that ``steps`` lead to, and the one before it.

    A tag as a step chooses among the kinds of a union: the one of that title.
    """
    node, parent = schema, schema
    for step in steps:
        here = _resolve(node, schema)
        if _is_tag(step) and "oneOf" in here:
            title = str(step)[1:-1]
            node = next(
                kind for kind in _branches(here, schema) if title == kind.get("title") or title in kind.get("x-names", ())
            )
        elif step == _KEY:
            node = parent.get("propertyNames", {})
        elif isinstance(step, int):
            node, parent = here.get("items", {}), here
        else:
            (any_key,) = here.get("patternProperties", {"": {}}).values()
            node, parent = here.get("properties", {}).get(step, any_key), here
    return _resolve(node, schema), _resolve(parent, schema)


def _resolve(node: JsonNode, schema: JsonNode) -> JsonNode:
    """Follow references and leave null out of a choice; what stands beside a reference goes over it."""
    if "$ref" in node:
        target = schema["$defs"][node["$ref"].rpartition("/")[2]]
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _resolve(target, schema) | beside
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        beside = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return _resolve(options[0], schema) | beside
    return node


def _branches(node: JsonNode, schema: JsonNode) -> list[JsonNode]:
    return [_resolve(branch, schema) for branch in node["oneOf"]]


def _kinds(node: JsonNode, schema: JsonNode) -> list[str]:
    """Return the values that ``type`` can take in a union of mappings."""
    types = [branch.get("properties", {}).get("type", {}) for branch in _branches(node, schema)]
    return [kind["const"] for kind in types if "const" in kind]


def _purpose(node: JsonNode) -> str:
    return f" ({node['description']})" if "description" in node else ""


def describe(node: JsonNode, schema: JsonNode) -> str:
    """Return what a node of the JSON Schema expects, as words that follow "expected"."""
    node = _resolve(node, schema)
    if "errorMessage" in node:
        return str(node["errorMessage"])
    if "const" in node:
        return str(node["const"])
    if "oneOf" in node:
        return one_of([describe(branch, schema) for branch in _branches(node, schema)])
    match node.get("type"):
        case "integer":
            return f"a whole number{_span(node)}"
        case "number":
            return f"a number{_span(node)}"
        case "string":
            return "a text"
        case "boolean":
            return "true or false"
        case "array":
            return _list(node, schema)
        case _:
            keys = ", ".join(node.get("properties", ()))
            return f"a mapping with keys out of {keys}" if keys else "a mapping"


def _span(node: JsonNode) -> str:
    least, most, above, below = (
        int(bound) if isinstance(bound, float) and bound.is_integer() else bound
        for bound in map(node.get, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    )
    low = f" from {least}" if least is not None else f" above {above}" if above is not None else ""
    high = f" to {most}" if most is not None else f" below {below}" if below is not None else ""
    return low + (f" and{high}" if below is not None and low else high)


def _list(node: JsonNode, schema: JsonNode) -> str:
    least, most = node.get("minItems", 0), node.get("maxItems")
    count = f"a list of {least} to {most}" if most is not None else "a list"
    if least == most:
        count = f"a list of {least}"
    items = _resolve(node.get("items", {}), schema)
    return f"{count} items, each {describe(items, schema)}"
