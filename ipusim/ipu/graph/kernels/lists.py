"""Run operations on lists of tensors and on optional values, which loops and branches keep for their gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import add
from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, kernel, register


@dataclass(frozen=True, eq=False)
class TensorList:
    """A list of tensors.

    Attributes:
        items: tensors; None for a reserved element without a value.
        shape: shape of elements, with -1 for unknown lengths; empty if the rank is unknown.
        dtype: dtype of elements.
    """

    items: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __add__(self, added: TensorList) -> TensorList:
        """Return elementwise sums; unset elements count as zero."""
        sums = (b if a is None else a if b is None else a + b for a, b in zip(self.items, added.items, strict=True))
        return replace(self, items=tuple(sums))

    def zeros(self) -> TensorList:
        """Return a list of zeros with the same form."""
        return replace(self, items=tuple(None if item is None else np.zeros_like(item) for item in self.items))

    def item(self, number: int, shape: Any) -> Any:
        """Return an element; for an unset element, zeros of ``shape`` or of the list's element shape."""
        element = self.items[number]
        if element is not None:
            return element
        lengths = [int(length) for length in (shape if np.ndim(shape) and np.size(shape) else self.shape)]
        if any(length < 0 for length in lengths):
            lengths = list(next((np.shape(item) for item in self.items if item is not None), ()))
        return np.zeros(lengths, self.dtype)


@dataclass(frozen=True, eq=False)
class Optional:
    """Values that a branch may have computed.

    Attributes:
        values: tensors of the branch; None if the branch did not run.
    """

    values: tuple[Any, ...] | None

    def __add__(self, added: Optional) -> Optional:
        """Return sums of two optionals from one branch."""
        if self.values is None or added.values is None:
            return Optional(None)
        return Optional(tuple(map(add, self.values, added.values)))

    def zeros(self) -> Optional:
        """Return zeros instead of values."""
        return Optional(None if self.values is None else tuple(map(zeros_like, self.values)))


@kernel("ZerosLike")
def zeros_like(value: Any) -> Any:
    """Return zeros shaped like a tensor, list or optional."""
    return value.zeros() if isinstance(value, TensorList | Optional) else np.zeros_like(value)


def _lengths(shape: Any) -> tuple[int, ...]:
    return tuple(int(length) for length in np.atleast_1d(shape)) if np.ndim(shape) else ()


@kernel("TensorListSetItem")
def _set_item(tensors: TensorList, number: Any, item: Any) -> TensorList:
    index = int(number)
    items = (*tensors.items[:index], *(None,) * (index - len(tensors.items)), item, *tensors.items[index + 1 :])
    return replace(tensors, items=items)


@kernel("TensorListResize")
def _resize(tensors: TensorList, size: Any) -> TensorList:
    count = int(size)
    return replace(tensors, items=(*tensors.items[:count], *(None,) * (count - len(tensors.items))))


@kernel("TensorListStack")
def _stack(tensors: TensorList, shape: Any) -> Array:
    if not tensors.items:
        return np.zeros((0, *(max(length, 0) for length in (_lengths(shape) or tensors.shape))), tensors.dtype)
    return np.stack([tensors.item(number, shape) for number in range(len(tensors.items))])


kernel("EmptyTensorList", "element_dtype")(lambda dtype, shape, _: TensorList((), _lengths(shape), dtype))
kernel("TensorListReserve", "element_dtype")(
    lambda dtype, shape, count: TensorList((None,) * int(count), _lengths(shape), dtype)
)
kernel("TensorListFromTensor")(lambda x, shape: TensorList(tuple(x), x.shape[1:], x.dtype))
kernel("TensorListPushBack")(lambda tensors, item: replace(tensors, items=(*tensors.items, item)))
kernel("TensorListPopBack")(
    lambda tensors, shape: (replace(tensors, items=tensors.items[:-1]), tensors.item(-1, shape))
)
kernel("TensorListGetItem")(lambda tensors, number, shape: tensors.item(int(number), shape))
kernel("TensorListLength")(lambda tensors: np.int32(len(tensors.items)))
kernel("TensorListGather")(
    lambda tensors, indices, shape: np.stack([tensors.item(int(number), shape) for number in indices])
)
kernel("TensorListElementShape", "shape_type")(lambda dtype, tensors: np.array(tensors.shape, dtype))

kernel("OptionalFromValue")(lambda *values: Optional(values))
kernel("OptionalNone")(lambda: Optional(None))
kernel("OptionalHasValue")(lambda value: np.bool_(value.values is not None))


@register("OptionalGetValue")
def _value(node: Node) -> Kernel:
    """Return the values of an optional, or None for each of them if the branch did not run."""
    count = len(node.output_types)
    return lambda value: (None,) * count if value.values is None else value.values
