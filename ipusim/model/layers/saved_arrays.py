"""Find the arrays that a forward pass keeps alive by its saved data: a view keeps its base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.layers.outline import Outline


def saved_arrays(saved_values: Any, parameters: Parameters) -> list[Array]:
    """Return the distinct arrays that ``saved_values`` keeps alive, without the parameters."""
    distinct = {id(root): root for root in map(root_of, _arrays(saved_values))}
    for parameter in parameters.values():
        distinct.pop(id(root_of(parameter)), None)
    return list(distinct.values())


def root_of(array: Array) -> Array:
    """Return the array that owns the memory of ``array``: a view keeps the whole base alive."""
    while isinstance(array.base, np.ndarray | Outline):
        array = array.base
    return array


def _arrays(saved_values: Any) -> Iterator[Any]:
    """Yield the arrays that ``saved_values`` keeps alive: in containers, dataclasses, closures of an autograd trace."""
    things_by_id: dict[int, Any] = {}
    stack = [saved_values]
    while stack:
        thing = stack.pop()
        if id(thing) in things_by_id:
            continue
        things_by_id[id(thing)] = thing  # keeps the object alive, and the id unique
        match thing:
            case np.ndarray() | Outline():
                yield thing
            case tuple() | list() | set() | frozenset():
                stack.extend(thing)
            case dict():
                stack.extend(thing.values())
            case FunctionType():
                stack.extend(cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell))
            case MethodType():
                stack.append(thing.__self__)
            case _ if is_dataclass(thing) and not isinstance(thing, type):
                stack.extend(getattr(thing, field.name) for field in fields(thing))
            case _ if hasattr(type(thing), "__slots__"):
                stack.extend(getattr(thing, slot, None) for slot in type(thing).__slots__)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
