"""The table of layers and losses for the docs, in Markdown, with the words that messages use."""

from __future__ import annotations

from typing import Any

from ipusim.model.layers.table import Row, rows
from ipusim.runs.request.messages import JsonNode, describe
from ipusim.runs.request.schema import json_schema


def layer_table() -> str:
    """Return a Markdown table with a row for each layer and loss: its type, what it does, and its keys.

    A key stands with what it takes, its default, and its meaning.
    """
    schema = json_schema()
    nodes = {
        node["properties"]["type"]["const"]: node["properties"]
        for node in schema["$defs"].values()
        if "const" in node.get("properties", {}).get("type", {})
    }
    lines = ["| `type` | what it does | keys |", "|---|---|---|"]
    for row in rows():
        keys = "<br>".join(_key(key.name, key.doc, nodes[row.kind][key.name], schema) for key in row.keys)
        lines.append(f"| `{row.kind}` | {_cell(row.doc)}{_where(row)} | {keys} |")
    return "\n".join(lines) + "\n"


def _where(row: Row) -> str:
    return "" if row.within or row.is_loss else " Not within another layer."


def _key(name: str, doc: str, node: JsonNode, schema: JsonNode) -> str:
    default = f"; default {_value(node['default'])}" if "default" in node and node["default"] not in (None, []) else ""
    return _cell(f"`{name}`: {doc} ({describe(node, schema)}{default})")


def _value(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
