"""What a value that is none of those expected was likely meant to be, as the hint of a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ipusim.runs.problems import one_of
from ipusim.units import with_point

_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?")
_GROUPED: Final = re.compile(r"\d{1,3}(?:[,'_ ]\d{3})+")
_PERCENT: Final = re.compile(r"(\d{1,6}(?:[.,]\d{1,6})?)\s*%")
#: Words for true and false of older YAML and of Python.
_WORDS: Final = {**dict.fromkeys(("yes", "y", "on", "true", "1"), "true")} | dict.fromkeys(
    ("no", "n", "off", "false", "0"), "false"
)


def meant(got: object, node: Mapping[str, Any], siblings: Mapping[str, Any]) -> str:
    """Return ``; did you mean ...?`` for a value that was likely meant otherwise, or nothing.

    Args:
        got: the value as it was written.
        node: the JSON Schema of its key, whose references are resolved.
        siblings: the schemas of the keys beside it, by key.
    """
    kind = node.get("type")
    if kind == "boolean":
        words = _WORDS.get(str(got).lower())
        return _hint([words] if words else [])
    if kind == "integer" and isinstance(got, float) and got.is_integer():
        return _hint([f"{got:.0f}"])
    if not isinstance(got, str | int) or isinstance(got, bool):
        return ""
    if kind == "array":
        items = [item.strip() for item in str(got).strip("[]() ").split(",")]
        if all(_fits(item, node.get("items", {})) for item in items):
            return _hint([f"[{', '.join(items)}]"])
    if isinstance(got, str):
        numbers = _NUMBERS.get(str(kind))
        return _hint([*dict.fromkeys(numbers(got.strip()))] if numbers else [*_file_of(got, siblings)])
    return ""


def _hint(values: list[str]) -> str:
    return f"; did you mean {one_of(values)}?" if values else ""


def _fits(item: str, node: Mapping[str, Any]) -> bool:
    """Whether a text is one item of a list of numbers or names."""
    if node.get("type") == "integer":
        return _INTEGER.fullmatch(item) is not None
    return node.get("type") == "string" and re.fullmatch(node.get("pattern", "$"), item) is not None


def _whole(text: str) -> list[str]:
    """Return the whole numbers that a text may mean."""
    if _INTEGER.fullmatch(text):
        return [f"{text}, without quotes"]
    return [re.sub(r"\D", "", text)] if _GROUPED.fullmatch(text) else []


def _real(text: str) -> list[str]:
    """Return the numbers that a text may mean."""
    if _NUMBER.fullmatch(text):
        return [f"{text}, without quotes"]
    if percent := _PERCENT.fullmatch(text):
        return [f"{float(percent[1].replace(',', '.')) / 100:g}"]
    return with_point(text)


_NUMBERS: Final[Mapping[str, Callable[[str], list[str]]]] = {"integer": _whole, "number": _real}


def _file_of(text: str, siblings: Mapping[str, Any]) -> list[str]:
    """Return the keys beside this one that take a file of such a name, with it and with what they are."""
    taking = {
        key: pattern
        for key, node in siblings.items()
        for pattern in _patterns(node)
        if r"\." in pattern and re.fullmatch(pattern, text)
    }
    # A pattern of one kind of file is shorter than one of several.
    keys = sorted(taking, key=lambda key: len(taking[key]))
    return [f"{key}: {text} ({siblings[key]['description'].split(',')[0]})" for key in keys]


def _patterns(node: Any) -> list[str]:
    """Return the patterns of all texts that a key takes."""
    if isinstance(node, list):
        return [pattern for each in node for pattern in _patterns(each)]
    if not isinstance(node, dict):
        return []
    own = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    return [*own, *_patterns(node.get("anyOf")), *_patterns(node.get("oneOf"))]
