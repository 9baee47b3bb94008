"""Derive pydantic models of scenario sections from dataclasses, such as optimizers and disturbances.

A row (:class:`~ipusim.model.rows.Row`) describes a dataclass, with a key for each of its annotated fields.
"""

from __future__ import annotations

from dataclasses import MISSING, is_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import Field, Strict, create_model

from ipusim.base.units import Unit
from ipusim.model.layers.keys import EarlierLayer, OneOf, ScenarioName
from ipusim.model.layers.network import NamedLayer
from ipusim.model.rows import Key, Row, row_of
from ipusim.runs.request.fields import Choice, CycleCount, Name, Node, Quantity, expects

#: Pydantic annotations of numbers, by kind of unit. Cycles are limited to some hours, so that the longest run fits in
#: 64 bits.
_UNITS: Final[dict[str, Any]] = {
    "cycles": CycleCount(10**14),
    "share": Quantity("share", 0, 10, "0 to 1000 %", whole=False),
    "times": Quantity("times", 1, 10**6, "1 to 1000000", whole=False),
}


class RowSpec(Node):
    """Base of the pydantic models made from rows.

    Attributes:
        row: row with the keys.
    """

    row: ClassVar[Row]

    def build(self) -> Any:
        """Return the object built from the values of the row's keys, nested rows first."""
        values = {key.argument: getattr(self, key.argument) for key in self.row.keys}
        inner = {name: value.build() for name, value in values.items() if isinstance(value, RowSpec)}
        return self.row.kind_class(**values | inner)


def spec_of(row: Row, base: type[RowSpec], inner: Any = None) -> type[Any]:
    """Return the pydantic model of ``row``.

    The model has the keys of ``base``, then inherited keys, ``type``, and the row's other keys.
    ``inner`` is the annotation of a layer within the layer.
    """
    inherited_fields = {key.argument: _field(key, inner) for key in row.keys if key.inherited}
    own_fields = {key.argument: _field(key, inner) for key in row.keys if not key.inherited}
    kind: Any = Literal[row.kind]
    return _model_of(row, base, {**inherited_fields, "type": (kind, ...), **own_fields})


def _model_of(row: Row, base: type[RowSpec], fields: dict[str, Any]) -> type[Any]:
    name = "".join(part.title() for part in row.kind.split("_"))
    spec = create_model(
        f"{name}Spec", __base__=base, __doc__=row.doc, __module__=__name__, __cls_kwargs__={"title": row.kind}, **fields
    )
    spec.row = row
    return spec


def _field(key: Key, inner: Any) -> tuple[Any, Any]:
    default = ... if key.default is MISSING else key.default
    alias = key.name if key.name != key.argument else None
    return _pydantic_hint(key.hint, inner), Field(default=default, alias=alias, description=key.doc)


def _pydantic_hint(hint: Any, inner: Any) -> Any:  # noqa: PLR0911 - a case for each kind of annotation
    """Return pydantic's annotation for a dataclass field with the annotation ``hint``."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is EarlierLayer:
        return Name
    if origin is Annotated:
        return Annotated[_pydantic_hint(args[0], inner), *map(_pydantic_mark, args[1:])]
    if origin is Literal:
        return Annotated[hint, Choice(args)]
    if isinstance(hint, type) and is_dataclass(hint):
        return keys_of(hint)
    if origin in (Union, UnionType):
        return reduce(or_, (_pydantic_hint(argument, inner) for argument in args))
    if origin is NamedLayer:
        return inner
    if origin is tuple and args[-1] is not ...:
        return _pair_of_numbers(args)
    if origin is tuple:
        return _list_of(_pydantic_hint(args[0], inner))
    return hint


@cache
def keys_of(kind: Any) -> type[Any]:
    """Return the pydantic model of a dataclass without alternatives, which has no key ``type``."""
    row = row_of(kind)
    return _model_of(row, RowSpec, {key.argument: _field(key, None) for key in row.keys})


def _pydantic_mark(mark: Any) -> Any:
    """Return pydantic's counterpart of a metadata object in an annotation."""
    if isinstance(mark, OneOf):
        return Choice(mark.names)
    if isinstance(mark, Unit):
        return _UNITS[mark.kind]
    return Field(title=mark.name) if isinstance(mark, ScenarioName) else mark


def _pair_of_numbers(items: tuple[Any, ...]) -> Any:
    """Return the annotation of a pair of whole numbers with equal bounds; a joint message states the bounds once."""
    (kind,) = set(items)
    _, *bounds = get_args(kind)
    least = next(mark.ge for mark in bounds if isinstance(mark, Ge))
    most = next(mark.le for mark in bounds if isinstance(mark, Le))
    text = f"two whole numbers from {least} to {most}, such as {[3, 3] if least else [0, 1]}"
    size = len(items)
    return Annotated[_list_of(kind), Field(min_length=size, max_length=size, json_schema_extra=expects(text))]


def _list_of(kind: Any) -> Any:
    return Annotated[tuple.__class_getitem__((kind, ...)), Strict(False)]
