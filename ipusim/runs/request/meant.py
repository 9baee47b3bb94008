"""Suggest the probable meaning of an unexpected value, for messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ipusim.base.units import with_point
from ipusim.runs.problems import one_of, show

_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?")
#: Separators of a list of numbers or names written as a text, such as 28x28.
_SEPARATOR: Final = re.compile(r"\s*,\s*|(?<=\d)\s*[x×]\s*(?=\d)|(?<=\d)\s+(?=\d)")
_COUNT: Final = re.compile(r"(\d{1,18})\s*[A-Za-z ]{2,}")  # a number and a word, such as 8 samples
_GROUPED_DIGITS: Final = re.compile(r"\d{1,3}(?:[,'_ ]\d{3})+")
_PERCENT: Final = re.compile(r"(\d{1,6}(?:[.,]\d{1,6})?)\s*%")
#: Kinds of single values.
_SCALAR_KINDS: Final = ("integer", "number", "string", "boolean")
#: Words for true and false in older YAML and in Python.
_WORDS: Final = {**dict.fromkeys(("yes", "y", "on", "true", "1"), "true")} | dict.fromkeys(
    ("no", "n", "off", "false", "0"), "false"
)


def suggestion(value: object, node: Mapping[str, Any], siblings: Mapping[str, Any]) -> str:
    """Return ``; did you mean ...?`` for a value with another probable meaning; otherwise an empty text.

    Args:
        value: value as written.
        node: JSON Schema of the value's key, with references resolved.
        siblings: schemas of neighbouring keys, by key.
    """
    kind = node.get("type")
    if isinstance(value, list):
        return _hint([show(value[0])] if kind in _SCALAR_KINDS and len(value) == 1 else [])
    if kind == "boolean":
        words = _WORDS.get(str(value).lower())
        return _hint([words] if words else [])
    if isinstance(value, float):
        return _hint([f"{value:.0f}"] if kind == "integer" and value.is_integer() else [])
    if not isinstance(value, str | int) or isinstance(value, bool):
        return ""
    return _hint(
        _as_list(str(value), node)
        or (_as_numbers_or_key(value.strip(), str(kind), siblings) if isinstance(value, str) else [])
    )


def _as_list(text: str, node: Mapping[str, Any]) -> list[str]:
    """Return the list that a text probably means, as a single item; empty if the key does not take this list."""
    items = [item.strip() for item in _SEPARATOR.split(text.strip("[]() "))]
    for choice in (node, *node.get("oneOf", ())):
        if choice.get("type") == "array" and all(_fits(item, choice.get("items", {})) for item in items):
            return [f"[{', '.join(items)}]"]
    return []


def _as_numbers_or_key(text: str, kind: str, siblings: Mapping[str, Any]) -> list[str]:
    """Return the probable numbers behind a text, or sibling keys for its file."""
    numbers = _NUMBERS.get(kind)
    return [*dict.fromkeys(numbers(text))] if numbers else _keys_for_file(text, siblings)


def _hint(values: list[str]) -> str:
    return f"; did you mean {one_of(values)}?" if values else ""


def _fits(item: str, node: Mapping[str, Any]) -> bool:
    """Return whether a text is an item of a list of numbers or names."""
    if node.get("type") == "integer":
        return _INTEGER.fullmatch(item) is not None
    return node.get("type") == "string" and re.fullmatch(node.get("pattern", "$"), item) is not None


def _whole_numbers(text: str) -> list[str]:
    """Return the probable whole numbers behind a text."""
    if _INTEGER.fullmatch(text):
        return [f"{text}, without quotes"]
    if match := _COUNT.fullmatch(text):
        return [match[1]]
    return [re.sub(r"\D", "", text)] if _GROUPED_DIGITS.fullmatch(text) else []


def _decimal_numbers(text: str) -> list[str]:
    """Return the probable numbers behind a text."""
    if _NUMBER.fullmatch(text):
        return [f"{text}, without quotes"]
    if percent := _PERCENT.fullmatch(text):
        return [f"{float(percent[1].replace(',', '.')) / 100:g}"]
    return with_point(text)


_NUMBERS: Final[Mapping[str, Callable[[str], list[str]]]] = {"integer": _whole_numbers, "number": _decimal_numbers}


def _keys_for_file(text: str, siblings: Mapping[str, Any]) -> list[str]:
    """Return sibling keys for a file called ``text``, as ``key: text (description)``."""
    patterns = {
        key: pattern
        for key, node in siblings.items()
        for pattern in _patterns(node)
        if r"\." in pattern and re.fullmatch(pattern, text)
    }
    # Patterns for one kind of file are shorter than patterns for several kinds.
    keys = sorted(patterns, key=lambda key: len(patterns[key]))
    return [f"{key}: {text} ({siblings[key]['description'].split(',')[0]})" for key in keys]


def _patterns(node: Any) -> list[str]:
    """Return the patterns of all texts accepted by a key."""
    if isinstance(node, list):
        return [pattern for choice in node for pattern in _patterns(choice)]
    if not isinstance(node, dict):
        return []
    patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    return [*patterns, *_patterns(node.get("anyOf")), *_patterns(node.get("oneOf"))]
