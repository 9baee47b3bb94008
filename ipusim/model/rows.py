"""Tables of kinds of things, layers or optimizers, each row read off a class: its dataclass is the spec.

A class with a ``kind`` is a row: a dataclass whose fields are its keys, annotated with bounds and
meanings (:mod:`ipusim.model.layers.keys`), and whose docstring begins with a paragraph that says
what it does. Scenarios, their JSON Schema, the names in messages and the docs are made of rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import Field, dataclass, fields
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from annotated_doc import Doc

from ipusim.model.layers.keys import Called


@dataclass(frozen=True)
class Key:
    """A key of a thing.

    Attributes:
        name: as a scenario has it.
        argument: as its class has it.
        hint: kind of its value, with bounds.
        default: its value where it is left out; ``MISSING`` where it must be given.
        doc: its meaning.
        inherited: whether others have it too, from a class that they share.
    """

    name: str
    argument: str
    hint: Any
    default: Any
    doc: str
    inherited: bool


@dataclass(frozen=True)
class Row:
    """A kind of thing.

    Attributes:
        kind: its name, the ``type`` of a scenario's mapping.
        makes: its class.
        doc: what it does, in a sentence or two.
        keys: what is to be said of one, in order.
        graphcore: its class in TensorFlow or Graphcore's addition to it; empty where that is not said.
    """

    kind: str
    makes: type[Any]
    doc: str
    keys: tuple[Key, ...]
    graphcore: str


def row_of(made: type[Any]) -> Row:
    """Return the row of a class with a ``kind``."""
    hints = get_type_hints(made, include_extras=True)
    own = inspect.get_annotations(made)
    return Row(
        kind=made.kind,
        makes=made,
        doc=(inspect.getdoc(made) or "").partition("\n\n")[0].replace("\n", " "),
        keys=tuple(_key(field, hints[field.name], field.name not in own) for field in fields(made) if field.init),
        graphcore=getattr(made, "graphcore", ""),
    )


def classes(modules: Iterable[str]) -> Iterator[type[Any]]:
    """Yield the classes of modules with a kind of their own, in order.

    Raises ValueError for two of one kind.
    """
    class_of: dict[str, type[Any]] = {}
    for name in modules:
        module = import_module(name)
        for variable in vars(module).values():
            if isinstance(variable, type) and variable.__module__ == name and "kind" in vars(variable):
                kind: str = vars(variable)["kind"]
                if kind in class_of:
                    raise ValueError(f"two of one kind {kind!r}: {class_of[kind]} and {variable}")
                class_of[kind] = variable
                yield variable


def _key(field: Field[Any], hint: Any, inherited: bool) -> Key:
    base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    constraints = [mark for mark in marks if not isinstance(mark, Doc | Called)]
    return Key(
        name=next((mark.name for mark in marks if isinstance(mark, Called)), field.name.rstrip("_")),
        argument=field.name,
        hint=Annotated[base, *constraints] if constraints else base,
        default=field.default,
        doc=next((mark.documentation for mark in marks if isinstance(mark, Doc)), ""),
        inherited=inherited,
    )
