"""The HTML file: its frame with styles, scripts and data put in."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final, NamedTuple


class Layout(NamedTuple):
    """What a page is made of: its style sheets, and its scripts in the order in which each builds on those before."""

    styles: tuple[str, ...]
    scripts: tuple[str, ...]


#: The page of runs, and the one that plays an execution.
RUNS: Final = Layout(("page",), ("data", "looks", "canvas", "axis", "trace", "memory", "tables", "section", "page"))
PLAY: Final = Layout(("page", "play"), ("data", "looks", "canvas", "axis", "clock", "lanes", "stash", "played", "play"))
#: Where a part of the page goes.
_MARK: Final = re.compile(r"\{\{(\w+)\}\}")
#: Characters that could end a script's element, or a line of it.
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html_page(title: str, data: Mapping[str, Any], contents: Sequence[str], layout: Layout = RUNS) -> bytes:
    """Return a page: ``data`` as the scripts of its layout read it, and the packed columns of each run, base64.

    The page may run its own script alone, and reach nothing: its policy says so to the browser.
    """
    style, script = "".join(_asset(f"{name}.css") for name in layout.styles), _script(layout)
    blocks = "".join(f'<script type="application/octet-stream" data-run>{content}</script>\n' for content in contents)
    parts = {
        "title": escape(title),
        "policy": f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        "style": style,
        "data": json_text(data),
        "columns": blocks,
        "script": script,
    }
    return _MARK.sub(lambda mark: parts[mark[1]], _asset("page.html")).encode()


def json_text(data: Mapping[str, Any]) -> str:
    """Return data as JSON that cannot end the element it stands in, whatever names it holds."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, written in _ESCAPED.items():
        text = text.replace(character, written)
    return text


def _script(layout: Layout) -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in layout.scripts)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """Return how a policy names an inline script or style."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
