"""Define annotations of layer fields, from which scenario keys, messages and documentation are made.

A field's annotation contains its type, bounds (``annotated_types``) and meaning (``annotated_doc.Doc``), for example
``Annotated[int, Ge(1), Le(128), Doc("rows")]``. The bounds limit only scenarios. Values that are impossible in any
program raise a ModelError in the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NewType

from annotated_types import Ge, Le, Lt


@dataclass(frozen=True)
class OneOf:
    """Annotation of a text limited to these names."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ScenarioName:
    """Annotation with the key of a field, or of a field's items, in scenarios, if it differs from the field's name."""

    name: str


#: Size of an array axis.
Axis = Annotated[int, Ge(1), Le(65_536)]
#: Probability below 1.
Rate = Annotated[float, Ge(0), Lt(1)]
#: Name of an earlier layer in the network.
EarlierLayer = NewType("EarlierLayer", str)
