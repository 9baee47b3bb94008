"""Write an HTML file with styles, scripts and data inlined."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

#: Names of the page's style sheets.
STYLES: Final = ("page", "play")
#: Names of the page's scripts; later scripts use earlier ones.
SCRIPTS: Final = (
    *("data", "looks", "canvas", "axis", "trace", "memory", "tables", "section"),
    *("clock", "lanes", "stash", "played", "play", "page"),
)
#: Placeholder in the page's frame.
_MARK: Final = re.compile(r"\{\{(\w+)\}\}")
#: Characters that could end a script element or a line of its text.
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html_page(title: str, data: Mapping[str, Any], contents: Sequence[str]) -> bytes:
    """Return a page from its JSON ``data`` and the base64 columns of each run and each played execution.

    The content security policy allows only the page's inline script and style, and no network access.
    """
    style = "".join(_asset(f"{name}.css") for name in STYLES)
    parts_of_script = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{parts_of_script}}})();\n'
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
    """Return JSON that cannot end its HTML element, whatever names it holds."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, code in _ESCAPED.items():
        text = text.replace(character, code)
    return text


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """Return the hash by which a policy names an inline script or style."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
