"""Make tables of kinds, such as layers or optimizers, from classes.

A class with a ``kind`` makes a row: it is a dataclass whose fields are keys, annotated with bounds and meanings
(:mod:`ipusim.model.layers.keys`). The first paragraph of the docstring describes the kind. Scenarios, their JSON
Schema, names in messages and the docs are generated from rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import Field, dataclass, fields
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from annotated_doc import Doc

from ipusim.model.layers.keys import ScenarioName


@dataclass(frozen=True)
class Key:
    """A key of a kind.

    Attributes:
        name: name in scenarios.
        argument: name of the class's field.
        hint: type of the value, with bounds.
        default: value of a missing key; ``MISSING`` for a required key.
        doc: meaning of the key.
        inherited: whether the key comes from a base class.
    """

    name: str
    argument: str
    hint: Any
    default: Any
    doc: str
    inherited: bool


@dataclass(frozen=True)
class Row:
    """A kind, for example of layers.

    Attributes:
        kind: name of the kind, the ``type`` of a scenario's mapping.
        kind_class: class of the kind.
        doc: description in a sentence or two.
        keys: keys of the kind, in order.
        graphcore: the class's name in TensorFlow or Graphcore's addition to TensorFlow; empty if unknown.
    """

    kind: str
    kind_class: type[Any]
    doc: str
    keys: tuple[Key, ...]
    graphcore: str


def row_of(row_class: type[Any]) -> Row:
    """Return the row of a class with a ``kind``."""
    hints = get_type_hints(row_class, include_extras=True)
    annotations = inspect.get_annotations(row_class)
    return Row(
        kind=row_class.kind,
        kind_class=row_class,
        doc=(inspect.getdoc(row_class) or "").partition("\n\n")[0].replace("\n", " "),
        keys=tuple(
            _key(field, hints[field.name], field.name not in annotations) for field in fields(row_class) if field.init
        ),
        graphcore=getattr(row_class, "graphcore", ""),
    )


def classes(modules: Iterable[str]) -> Iterator[type[Any]]:
    """Yield the classes of modules that define a kind, in order.

    Raises ValueError for two classes of equal kind.
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
    constraints = [mark for mark in marks if not isinstance(mark, Doc | ScenarioName)]
    return Key(
        name=next((mark.name for mark in marks if isinstance(mark, ScenarioName)), field.name.rstrip("_")),
        argument=field.name,
        hint=Annotated[base, *constraints] if constraints else base,
        default=field.default,
        doc=next((mark.documentation for mark in marks if isinstance(mark, Doc)), ""),
        inherited=inherited,
    )
