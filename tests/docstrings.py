"""Docstrings of public names: their sections, what they name, and their examples."""

import ast
import builtins
import doctest
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, Final

import ipusim
from ipusim import api
from ipusim.base import errors
from tests.prose import statements

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


def methods() -> dict[str, Any]:
    """Return the public methods with parameters of the classes that ``ipusim`` and its door offer."""
    chosen = {}
    for path, made in public().items():
        for attribute in dir(made) if inspect.isclass(made) else ():
            method = inspect.getattr_static(made, attribute)
            method = getattr(method, "__func__", method)  # of a class method
            own = inspect.isfunction(method) and method.__module__.startswith("ipusim")
            if own and not attribute.startswith("_") and parameters(method):
                chosen[f"{path}.{attribute}"] = method
    return chosen


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
    return set(inspect.signature(thing).parameters) - {"self", "cls"}


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

    That of the private functions of its module which it calls counts; public ones document their own.
    """
    module = inspect.getmodule(inspect.unwrap(thing))
    assert module is not None
    is_class = inspect.isclass(thing)
    sources = (
        constructors(thing, "__init__", "__post_init__") if is_class else [inspect.getsource(inspect.unwrap(thing))]
    )
    trees = [ast.parse(textwrap.dedent(source)) for source in sources]
    return {error for tree in trees for error in _raised_by(module, tree, frozenset())}


def constructors(thing: type, *names: str) -> list[str]:
    """Return the source of what a class itself has of these methods; a dataclass' own, which is made, has none."""
    makers = [vars(thing)[name] for name in names if name in vars(thing)]
    functions = [maker for maker in makers if inspect.isfunction(maker)]
    return [inspect.getsource(maker) for maker in functions if not maker.__code__.co_filename.startswith("<")]


@cache
def _functions(module: ModuleType) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _raised_by(module: ModuleType, node: ast.AST, above: frozenset[str]) -> set[str]:
    errors_raised: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Raise) and isinstance(part.exc, ast.Call) and isinstance(part.exc.func, ast.Name):
            errors_raised.add(part.exc.func.id)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            name = part.func.id
            if name.startswith("_") and name in _functions(module) and name not in above:
                errors_raised |= _raised_by(module, _functions(module)[name], above | {name})
    return errors_raised


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
    lacks = [f"no words on {name}" for name in sorted(parameters(thing) - described(thing))]
    if inspect.isclass(thing):
        attributes = parameters(thing) | set(dir(thing)) | set(getattr(thing, "__annotations__", ()))
        attributes |= {name for base in thing.__mro__ for name in getattr(base, "__annotations__", ())}
        attributes |= assigned(thing)
        lacks += [f"there is no {name}" for name in sorted(named(parts.get("Attributes", "")) - attributes)]
    else:
        lacks += [f"there is no {name}" for name in sorted(named(parts.get("Args", "")) - parameters(thing))]
        if inspect.signature(thing).return_annotation not in ("None", None) and not parts.get("Returns", "").strip():
            lacks.append("no Returns")
    return lacks + error_faults(thing, parts)


def unknown_names(trees: Mapping[str, ast.Module]) -> list[tuple[str, str, str]]:
    """Return the names under Args and Attributes that no parameter or attribute has: file, definition, name.

    Sources are read, not imported, so that private functions and modules for TensorFlow are among them. A class has the
    attributes of its bases, or of all classes with the name of a base.

    Args:
        trees: syntax tree by file.
    """
    nodes = [(path, node) for path, tree in trees.items() for node in statements(tree)]
    classes: dict[str, list[ast.ClassDef]] = {}
    for _, node in nodes:
        if isinstance(node, ast.ClassDef):
            classes.setdefault(node.name, []).append(node)
    unknown = []
    for path, node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        is_class = isinstance(node, ast.ClassDef)
        said = named(sections(ast.get_docstring(node) or "").get("Attributes" if is_class else "Args", ""))
        if said:
            unknown += [(path, node.name, name) for name in sorted(said - _known(node, classes))]
    return unknown


def _known(node: ast.FunctionDef | ast.ClassDef, classes: Mapping[str, list[ast.ClassDef]]) -> set[str]:
    """Return the parameters of a function, or the attributes of a class."""
    if isinstance(node, ast.ClassDef):
        return _attributes(node, classes)
    return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}


def _attributes(node: ast.ClassDef, classes: Mapping[str, list[ast.ClassDef]]) -> set[str]:
    """Return the names that a class and its bases of the package define or assign to ``self``."""
    own = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    own |= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            own |= {target.id for target in part.targets if isinstance(target, ast.Name)}
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
            own.add(part.attr)
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    names = {base.id for base in bases if isinstance(base, ast.Name)} - {node.name}
    return own.union(*(_attributes(base, classes) for name in names for base in classes.get(name, ())))


def has_example(thing: Any) -> bool:
    """Whether a docstring has an example under that heading."""
    text = sections(inspect.cleandoc(thing.__doc__ or "")).get("Example", "")
    return bool(doctest.DocTestParser().get_examples(text))


def assigned(thing: type) -> set[str]:
    """Return the attributes that the constructors of a class and of its bases give to ``self``."""
    sources = [source for base in thing.__mro__ for source in constructors(base, "__init__")]
    return {name for source in sources for name in re.findall(r"\bself\.(\w+)\b", source)}


def error_faults(thing: Any, parts: dict[str, str]) -> list[str]:
    """Return what is wrong with the errors that a docstring names: missing, unknown, or in the words in front."""
    documented = named(parts.get("Raises", ""))
    lacks = [f"{name} is no error" for name in sorted(documented) if error_class(name) is None]
    if re.search(r"\b[Rr]aises \w*Error\b", parts[""]):
        lacks.append("errors outside of Raises")
    kinds = tuple(kind for name in documented if (kind := error_class(name)))
    for name in sorted(raised(thing)):
        kind = error_class(name)
        if kind is None or not issubclass(kind, kinds):
            lacks.append(f"does not say that it raises {name}")
    return lacks
