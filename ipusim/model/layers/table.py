"""The table of layers and losses: a row for each, read off its class.

A class of this package with a ``kind`` is in the table: a dataclass whose fields are its keys,
annotated with bounds and meanings (:mod:`ipusim.model.layers.keys`), and whose docstring begins
with a paragraph that says what it does. Scenarios, their JSON Schema, the names in messages and
the docs are made of the rows, so that a module in this package is all that a new layer takes.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from annotated_doc import Doc

from ipusim.model import layers as room
from ipusim.model.layers.keys import Called

#: The order in which messages and docs name the layers of modules; those of others follow by the modules' names.
_ORDER: Final = (
    *("layers", "dropout", "embedding", "normalisation", "convolution", "pooling", "lstm", "gru", "attention"),
    *("residual", "parallel", "add", "losses"),
)


@dataclass(frozen=True)
class Key:
    """A key of a layer.

    Attributes:
        name: as a scenario has it.
        argument: as the layer's class has it.
        hint: kind of its value, with bounds.
        default: its value where it is left out; ``MISSING`` where it must be given.
        doc: its meaning.
        inherited: whether other layers have it too, from a class that they share.
    """

    name: str
    argument: str
    hint: Any
    default: Any
    doc: str
    inherited: bool


@dataclass(frozen=True)
class Row:
    """A layer or a loss.

    Attributes:
        kind: its name, the ``type`` of a scenario's layer.
        makes: its class.
        doc: what it does, in a sentence or two.
        within: whether it may stand within another layer.
        is_loss: whether it is a loss.
        keys: what is to be said of one, in order.
    """

    kind: str
    makes: type[Any]
    doc: str
    within: bool
    is_loss: bool
    keys: tuple[Key, ...]


@cache
def rows() -> tuple[Row, ...]:
    """Return all rows: layers that stand anywhere, those that stand in a model itself, losses.

    Raises ValueError for two layers of one name.
    """
    found: dict[str, Row] = {}
    for each in _classes():
        row = row_of(each)
        if row.kind in found:
            raise ValueError(f"two layers are called {row.kind!r}: {found[row.kind].makes} and {each}")
        found[row.kind] = row
    return tuple(sorted(found.values(), key=lambda row: (row.is_loss, not row.within)))


def row_of(layer: type[Any]) -> Row:
    """Return the row of a class with a ``kind``."""
    hints = get_type_hints(layer, include_extras=True)
    own = inspect.get_annotations(layer)
    is_loss = hasattr(layer, "check_labels")
    return Row(
        kind=layer.kind,
        makes=layer,
        doc=(inspect.getdoc(layer) or "").partition("\n\n")[0].replace("\n", " "),
        within=not is_loss and getattr(layer, "within", True),
        is_loss=is_loss,
        keys=tuple(_key(each, hints[each.name], each.name not in own) for each in fields(layer)),
    )


def _classes() -> Iterator[type[Any]]:
    """Yield the classes of this package with a kind of their own, in order."""
    names = [module.name for module in pkgutil.iter_modules(room.__path__)]
    for name in sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)):
        module = import_module(f"{room.__name__}.{name}")
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__ and "kind" in vars(each):
                yield each


def _key(field: Field[Any], hint: Any, inherited: bool) -> Key:
    base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    said = [mark for mark in marks if not isinstance(mark, Doc | Called)]
    return Key(
        name=next((mark.name for mark in marks if isinstance(mark, Called)), field.name),
        argument=field.name,
        hint=Annotated[base, *said] if said else base,
        default=field.default,
        doc=next((mark.documentation for mark in marks if isinstance(mark, Doc)), ""),
        inherited=inherited,
    )
