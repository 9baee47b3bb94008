"""Read and write pin files: recorded results of a run beside its scenario, read as untrusted data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ipusim.app.run_folder.output_file import PIN, check_output
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file, read_run_file, write_file

#: Name of the format.
FORMAT: Final = "ipusim pin"
#: Version of the format. Since version 2, spans of the same cycles have a fixed order, and the cause of a pass is the
#: pass's own IPU if a tensor arrives in the cycle in which this IPU becomes free.
VERSION: Final = 2
_READABLE_VERSIONS: Final = (1, VERSION)
#: Suffix of a pin's file name after the scenario's name.
SUFFIX: Final = ".pin.json"
#: Maximum size of a pin in bytes; ipusim writes at most a tenth.
_MOST_BYTES: Final = 1 << 20
#: Maximum number of characters of a text in a pin.
_MOST_TEXT_CHARACTERS: Final = 4000
#: Line width up to which a mapping or list stays on one line.
_LINE_WIDTH: Final = 110
#: Schema of a list's fingerprint.
_FINGERPRINT: Final = {"count": int, "first": [str], "hashes": [str]}
#: Types of a number; numbers that are not finite are texts.
_NUMBER: Final = (int, float, str)
#: Schema of a pin: mappings by key (None for any key), lists by item, types, and tuples of alternatives.
_SCHEMA: Final[dict[str | None, Any]] = {
    "format": str,
    "format_version": int,
    "scenario": str,
    "versions": {None: str},
    "asked": {None: (str, int, float, bool, type(None), [(str, int, float, bool, type(None))])},
    "device": {
        "system": str,
        "clock_hz": int,
        "ipus": [int],
        "selection_order": str,
        "replicas": int,
        "hosts": int,
    },
    "shape": {None: (str, int, bool, [(str, int)])},
    "plan": {None: _FINGERPRINT},
    "costs": {None: _NUMBER},
    "prices": {None: {None: str}},
    "rates": {None: str},
    "time": {None: (int, {None: [int]})},
    "spans": _FINGERPRINT,
    "memory": (type(None), {None: {"peak": int, "during": str, None: int}}),
    "learning": (
        type(None),
        {
            "precision": str,
            "losses": {"count": int, "sha256": str, "mean_by_step": [_NUMBER], "last": (*_NUMBER, type(None))},
            "evaluations": [[(*_NUMBER, type(None))]],
            "weights": {None: {"shape": [int], "sha256": str, "norm": _NUMBER, "mean": _NUMBER}},
        },
    ),
}


def pin_path(scenario: Path) -> Path:
    """Return the path of a scenario's pin."""
    return scenario.parent / (scenario.stem + SUFFIX)


def has_pin(scenario: Path) -> bool:
    """Return whether a scenario has a pin; raises OSError if the pin's path is no file."""
    return has_run_file(pin_path(scenario))


def pin_bytes(pin: Mapping[str, Any]) -> bytes:
    """Return a pin as JSON with short lines for diffs; equal data give equal bytes."""
    return (_text(pin, 0) + "\n").encode()


def _text(value: Any, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or (len(line) + 2 * depth <= _LINE_WIDTH and depth):
        return line
    indent = " " * depth
    if isinstance(value, list):
        items = [_text(element, depth + 1) for element in value]
    else:
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: {_text(element, depth + 1)}" for key, element in value.items()
        ]
    brackets = "[]" if isinstance(value, list) else "{}"
    return f"{brackets[0]}\n" + ",\n".join(f"{indent} {item}" for item in items) + f"\n{indent}{brackets[1]}"


def read_pin(path: Path, name: str) -> dict[str, Any]:
    """Return the pin at ``path`` of the scenario ``name``.

    Raises FileError for a pin of another scenario or format version and for malformed files, OSError for unreadable
    files.
    """
    content = read_run_file(path, _MOST_BYTES)
    expected = f"{path}: expected a pin as `ipusim test --pin` writes it"
    try:
        pin = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{expected}, got a file without valid JSON: {error}") from None
    if not isinstance(pin, dict) or pin.get("format") != FORMAT:
        raise FileError(f"{expected}, got other JSON")
    if pin.get("format_version") not in _READABLE_VERSIONS:
        text = f"expected version {VERSION} of the format, got {str(pin.get('format_version'))[:20]}"
        raise FileError(f"{path}: {text}: write the pin again with `ipusim test --pin`")
    if violation := _schema_violation(pin, _SCHEMA, ""):
        raise FileError(f"{expected}, got a damaged one: {violation}")
    if pin["scenario"] != name:
        text = f"expected the pin of {name}, got the pin of {pin['scenario'][:64]!r}"
        raise FileError(f"{path}: {text}: write the pin again with `ipusim test --pin`")
    return pin


def _schema_violation(value: Any, shape: Any, place: str) -> str:  # noqa: PLR0911 - one return for each form of shape
    """Return a message about the first part of a pin that violates the schema; empty for a valid pin."""
    if isinstance(shape, tuple):
        fits = any(not _schema_violation(value, alternative, place) for alternative in shape)
        return "" if fits else f"{place} has another type"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is not a list"
        return next(filter(None, (_schema_violation(item, shape[0], place) for item in value)), "")
    if not isinstance(shape, dict):
        has_type = type(value) is shape or (shape is float and type(value) is int)
        return "" if has_type and (shape is not str or _is_clear(value)) else f"{place or 'the pin'} has another type"
    if not isinstance(value, dict):
        return f"{place} is not a mapping"
    keys = shape.keys() - {None}
    if not keys <= value.keys() or (None not in shape and value.keys() != keys):
        return f"{place or 'the pin'} lacks the keys {', '.join(filter(None, shape))}"
    if unclear := next((key for key in value if not _is_clear(key)), None):
        return f"{place or 'the pin'} has the key {unclear[:40]!r}"
    kinds = ((key, item, shape.get(key, shape.get(None))) for key, item in value.items())
    return next(
        filter(None, (_schema_violation(item, kind, f"{place} {key}".strip()) for key, item, kind in kinds)), ""
    )


def _is_clear(text: str) -> bool:
    """Return whether a message can show a text."""
    return text.isprintable() and len(text) <= _MOST_TEXT_CHARACTERS


def write_pin(scenario: Path, content: bytes) -> Path:
    """Write the pin beside its scenario, overwriting only pins; return its path.

    Raises OutputError for an unwritable path, and for a foreign file at it.
    """
    path = pin_path(scenario)
    check_target(path)
    write_file(path, content, follow=False)
    return path


def check_target(path: Path) -> None:
    """Refuse to overwrite anything except a pin; raises OutputError."""
    check_output(path, PIN)
