"""Annotations of a layer's fields, from which scenario keys, their messages and their documentation are generated.

A field's annotation is its kind, then bounds (``annotated_types``) and its meaning
(``annotated_doc.Doc``), as in ``Annotated[int, Ge(1), Le(128), Doc("rows")]``. They bound what
a scenario may ask for; what a layer cannot be at all it refuses itself, with a ModelError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NewType

from annotated_types import Ge, Le, Lt


@dataclass(frozen=True)
class OneOf:
    """Annotation of a text that is one of these names."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Called:
    """Annotation of a field, or of the items of one, that a scenario calls otherwise."""

    name: str


#: The size of one axis of an array.
Axis = Annotated[int, Ge(1), Le(65_536)]
#: A probability below 1.
Rate = Annotated[float, Ge(0), Lt(1)]
#: The name of a layer that stands earlier in the network.
EarlierLayer = NewType("EarlierLayer", str)
