"""Public names of Graphcore's API, with the matching objects of ipusim.

The names, with their arguments and defaults, are read from a list made from Graphcore's references.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, EnumType
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.ipu.config import AttributeMetadata, IPUConfig
from ipusim.ipu.imports.rows import graphcore_rows

#: File of the names in Graphcore's references.
LIST: Final = Path(__file__).parent / "graphcore_api.txt"
#: Line of this file: kind, path, and remaining text.
_LINE: Final = re.compile(r"(?P<kind>\w+) (?P<path>[\w.]+)(?P<rest>.*)")
#: Path prefix of the configuration's attributes and categories.
CONFIG: Final = "ipu.config.IPUConfig."
#: Module of ipusim for each path of Graphcore, and for Graphcore's Keras.
_MODULES: Final = {path: row for path, row in graphcore_rows("ipu").items() if isinstance(row, str)} | {
    "keras.ipu": "ipusim.ipu.keras",
    "keras.ipu.extensions": "ipusim.ipu.keras.extensions",
}


@dataclass(frozen=True)
class Argument:
    """Argument of a function in the reference: name with stars, and text of the default value, if any."""

    name: str
    default: str | None


@dataclass(frozen=True)
class Name:
    """Public name of Graphcore's API.

    Attributes:
        kind: class, function, method, property, member (of an enumeration), attribute or category (of the
            configuration), or alias.
        path: path below ``tensorflow.python``.
        rest: remaining text of the reference: arguments, type and default, or target of an alias.
    """

    kind: str
    path: str
    rest: str

    @property
    def group(self) -> str:
        """Module or configuration that holds the name."""
        above, _, last = self.path.rpartition(".")
        if self.kind in ("attribute", "category"):
            return CONFIG.rstrip(".")
        return above.rpartition(".")[0] if above.rpartition(".")[2][:1].isupper() else above or last

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Arguments in order."""
        if not self.rest.startswith("("):
            return ()
        function = ast.parse(f"def call{self.rest}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        found = function.args
        pairs = [*zip(reversed(found.args), reversed(found.defaults), strict=False)][::-1]
        texts = {entry.arg: ast.unparse(default) for entry, default in pairs}
        texts |= {
            entry.arg: ast.unparse(text)
            for entry, text in zip(found.kwonlyargs, found.kw_defaults, strict=True)
            if text
        }
        order = [entry.arg for entry in found.args]
        order += [f"*{found.vararg.arg}"] if found.vararg else []
        order += [entry.arg for entry in found.kwonlyargs]
        order += [f"**{found.kwarg.arg}"] if found.kwarg else []
        return tuple(Argument(entry, texts.get(entry)) for entry in order)

    @property
    def here(self) -> Any:
        """Matching object of ``ipusim``; None if missing."""
        if self.path.startswith(CONFIG) and self.kind in ("attribute", "category"):
            return _metadata(self.path.removeprefix(CONFIG))
        return _object_at(self.path)

    def differences(self) -> dict[str, str]:
        """Return the differences from the reference by argument; the empty key stands for the whole object."""
        here = self.here
        if self.kind == "attribute":
            said = f": {here.type} = {as_text(here.default)}"
            return {} if said == self.rest.replace('"', "'") else {"": f"here it is{said}"}
        if self.kind == "alias":
            return {} if here is _object_at(self.rest.removeprefix(" = ")) else {"": "is another object"}
        if not self.rest.startswith("(") or isinstance(here, EnumType):
            return {}
        return dict(_differences(self, here))


def _differences(name: Name, here: Any) -> Iterator[tuple[str, str]]:
    found = list(inspect.signature(here).parameters.values())
    if found and found[0].name in ("self", "cls"):
        found = found[1:]
    kinds = {entry.kind for entry in found}
    position_of = {entry.name: position for position, entry in enumerate(found)}
    for position, argument in enumerate(name.arguments):
        plain_name = argument.name.lstrip("*")
        stars = {0: None, 1: inspect.Parameter.VAR_POSITIONAL, 2: inspect.Parameter.VAR_KEYWORD}
        star = stars[len(argument.name) - len(plain_name)]
        if star is not None:
            if star not in kinds:
                yield argument.name, "not taken"
        elif plain_name not in position_of:
            yield plain_name, "not taken"
        else:
            parameter = found[position_of[plain_name]]
            text = None if parameter.default is inspect.Parameter.empty else as_text(parameter.default)
            if text != argument.default:
                yield plain_name, f"by default {text}" if text else "without a default"
            elif position_of[plain_name] != position or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                yield plain_name, "by its name alone, as its place is another"


def as_text(value: Any) -> str:
    """Return a default as written in the reference."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, type) and issubclass(value, np.generic):
        return f"tf.{value.__name__}"
    return repr(value)


def _metadata(name: str) -> AttributeMetadata | None:
    try:
        return IPUConfig().get_attribute_metadata(name)
    except ValueError:
        return None


def _object_at(path: str) -> Any:
    """Return the object that a program would import from a path; None if missing."""
    module = next((module for module in _above(path) if module in _MODULES), None)
    if module is None:
        return None
    result: Any = importlib.import_module(_MODULES[module])
    for part in path.removeprefix(module).split(".")[1:]:
        below = inspect.getattr_static(result, part, None) if inspect.isclass(result) else None
        result = getattr(result, part, None) if below is None else below
    return result


def _above(path: str) -> Iterator[str]:
    """Yield a path and all parent paths, longest first."""
    while path:
        yield path
        path = path.rpartition(".")[0]


@cache
def names() -> tuple[Name, ...]:
    """Return all names in the order of the references."""
    found = [_LINE.fullmatch(line) for line in LIST.read_text().splitlines() if not line.startswith("#")]
    return tuple(Name(entry["kind"], entry["path"], entry["rest"]) for entry in found if entry)
