"""Docstrings of public names: their sections, what they name, and their examples."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, Final

import ipusim
from ipusim import api
from ipusim.base import errors

#: Headings of the sections, each in a line of its own.
SECTIONS: Final = ("Args", "Attributes", "Returns", "Raises", "Example")
_HEADING: Final = re.compile(rf"^({'|'.join(SECTIONS)}):\n", re.M)
_ENTRY: Final = re.compile(r"^    (\*{0,2}[A-Za-z_]\w*(?:, \w+)*): \S", re.M)


def public() -> dict[str, Any]:
    """Return the functions and classes that ``ipusim`` and its door offer, by their dotted names."""
    return {
        f"{module.__name__}.{name}": thing
        for module in (ipusim, api)
        for name in module.__all__
        if inspect.isclass(thing := getattr(module, name)) or inspect.isfunction(thing)
    }


def sections(text: str) -> dict[str, str]:
    """Return the text of each section of a cleaned docstring, and in front of them all, as that of "", its words."""
    first, *rest = _HEADING.split(text)
    return {"": first, **dict(zip(rest[::2], map(_indented, rest[1::2]), strict=True))}


def _indented(text: str) -> str:
    """Return the lines of a section, which end where a line is not indented."""
    return re.split(r"^(?=\S)", text, maxsplit=1, flags=re.M)[0]


def named(section: str) -> set[str]:
    """Return the names that a section of entries such as ``start, end: cycles`` describes."""
    return {name for entry in _ENTRY.findall(section) for name in entry.replace("*", "").split(", ")}


def parameters(thing: Any) -> set[str]:
    """Return what a function or the constructor of a class takes; of an Enum, what its members have."""
    if inspect.isclass(thing) and issubclass(thing, Enum):
        return set(thing.__annotations__)
    if inspect.isclass(thing) and thing.__init__ is Exception.__init__:  # of which Python knows no signature
        return set()
    return set(inspect.signature(thing).parameters)


def described(thing: Any) -> set[str]:
    """Return the parameters that the docstrings of a name, its bases and its fields describe."""
    bases = thing.__mro__ if inspect.isclass(thing) else (thing,)
    texts = [sections(inspect.cleandoc(base.__doc__ or "")) for base in bases if base is not object]
    entries = {name for text in texts for part in ("Args", "Attributes") for name in named(text.get(part, ""))}
    if is_dataclass(thing):
        entries |= {field.name for field in fields(thing) if "meaning" in field.metadata}
    return entries


def raised(thing: Any) -> set[str]:
    """Return the errors that the code of a function, or what makes an object of a class, raises by name.

    That of the functions of the same module which it calls counts.
    """
    module = inspect.getmodule(inspect.unwrap(thing))
    assert module is not None
    if not inspect.isclass(thing):
        return _raised_in(module, thing.__name__, frozenset())
    return {
        error
        for source in constructors(thing, "__init__", "__post_init__")
        for error in _raised_by(module, ast.parse(textwrap.dedent(source)), frozenset())
    }


def constructors(thing: type, *names: str) -> list[str]:
    """Return the source of what a class itself has of these methods; a dataclass' own, which is made, has none."""
    makers = [vars(thing)[name] for name in names if name in vars(thing)]
    functions = [maker for maker in makers if inspect.isfunction(maker)]
    return [inspect.getsource(maker) for maker in functions if not maker.__code__.co_filename.startswith("<")]


@cache
def _functions(module: ModuleType) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _raised_in(module: ModuleType, name: str, above: frozenset[str]) -> set[str]:
    return _raised_by(module, _functions(module)[name], above | {name})


def _raised_by(module: ModuleType, node: ast.AST, above: frozenset[str]) -> set[str]:
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call) and isinstance(each.exc.func, ast.Name):
            found.add(each.exc.func.id)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            name = each.func.id
            if name in _functions(module) and name not in above:
                found |= _raised_in(module, name, above)
    return found


def error_class(name: str) -> type[BaseException] | None:
    """Return the error of that name: ipusim's, or Python's; None where there is none."""
    own = [errors.IpusimError]
    for kind in own:  # which grows meanwhile by the errors below those in it
        own += kind.__subclasses__()
    return next((kind for kind in own if kind.__name__ == name), getattr(builtins, name, None))


def faults(thing: Any) -> list[str]:
    """Return what the docstring of a public function or class lacks."""
    text = inspect.cleandoc(thing.__doc__ or "")
    parts = sections(text)
    found = [f"no words on {name}" for name in sorted(parameters(thing) - described(thing))]
    if inspect.isclass(thing):
        attributes = parameters(thing) | set(dir(thing)) | set(getattr(thing, "__annotations__", ()))
        attributes |= {name for base in thing.__mro__ for name in getattr(base, "__annotations__", ())}
        attributes |= assigned(thing)
        found += [f"there is no {name}" for name in sorted(named(parts.get("Attributes", "")) - attributes)]
    else:
        found += [f"there is no {name}" for name in sorted(named(parts.get("Args", "")) - parameters(thing))]
        if inspect.signature(thing).return_annotation not in ("None", None) and not parts.get("Returns", "").strip():
            found.append("no Returns")
    found += error_faults(thing, parts)
    if not doctest.DocTestParser().get_examples(parts.get("Example", "")):
        found.append("no Example")
    return found


def assigned(thing: type) -> set[str]:
    """Return the attributes that the constructors of a class and of its bases give to ``self``."""
    sources = [source for base in thing.__mro__ for source in constructors(base, "__init__")]
    return {name for source in sources for name in re.findall(r"\bself\.(\w+)\b", source)}


def error_faults(thing: Any, parts: dict[str, str]) -> list[str]:
    """Return what is wrong with the errors that a docstring names: missing, unknown, or in the words in front."""
    told = named(parts.get("Raises", ""))
    found = [f"{name} is no error" for name in sorted(told) if error_class(name) is None]
    if re.search(r"\b[Rr]aises \w*Error\b", parts[""]):
        found.append("errors outside of Raises")
    kinds = tuple(kind for name in told if (kind := error_class(name)))
    for name in sorted(raised(thing)):
        kind = error_class(name)
        if kind is None or not issubclass(kind, kinds):
            found.append(f"does not say that it raises {name}")
    return found
