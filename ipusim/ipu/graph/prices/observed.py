"""Observe the shapes and dtypes of values during a run; nodes are priced by them.

Bodies of loops and branches are observed too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ipusim.api import Work
from ipusim.ipu.graph.executable import Step
from ipusim.ipu.graph.kernels.lists import TensorList
from ipusim.ipu.graph.node import Graph, Node, Variable
from ipusim.ipu.graph.registry import entry_of


class Form(NamedTuple):
    """A value's shape and dtype.

    Attributes:
        shape: shape of an array; empty for other values.
        dtype: dtype of array elements; ``object`` for other values.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of array elements, 0 for other values."""
        return 0 if self.dtype.hasobject else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize


#: Form of a value that is no array.
_NO_ARRAY = Form((), np.dtype(object))


def form_of(value: Any) -> Form:
    """Return a value's shape and dtype; a variable counts as an array."""
    if isinstance(value, Variable):
        return form_of(value.value)
    if value is None or isinstance(value, TensorList) or not hasattr(value, "dtype"):
        return _NO_ARRAY
    return Form(np.shape(value), value.dtype)


def bytes_of(value: Any) -> int:
    """Return the bytes of an array, or of all elements of a list."""
    if isinstance(value, TensorList):
        return sum(map(bytes_of, value.items))
    return form_of(value).nbytes


@dataclass(frozen=True, eq=False)
class ObservedNode:
    """A node after execution.

    Attributes:
        node: the node.
        inputs, outputs: forms of input and output values.
        inner: nodes of loop and branch bodies in order of execution; a node that runs again is listed again.
        price: returns the work of one of Graphcore's operations, given the indices of the results that are read; None
            for other nodes.
    """

    node: Node
    inputs: tuple[Form, ...]
    outputs: tuple[Form, ...]
    inner: tuple[ObservedNode, ...] = ()
    price: Callable[[Collection[int]], Work] | None = None


@dataclass(eq=False)
class Observation:
    """Observes a run's steps; an :data:`~ipusim.ipu.graph.executable.Observer`.

    Attributes:
        graph: observed graph. Nodes of loop and branch bodies are attached to the node of this graph that runs them.
        nodes: executed nodes of ``graph``, in order.
    """

    graph: Graph
    nodes: list[ObservedNode] = field(default_factory=list)
    _inner: list[ObservedNode] = field(default_factory=list)

    def __call__(self, step: Step, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Record a step after execution."""
        values = inputs[len(inputs) - len(step.node.inputs) :]
        forms = tuple(map(form_of, values)), tuple(map(form_of, outputs))
        if self.graph.nodes.get(step.node.name) is step.node:
            self.nodes.append(ObservedNode(step.node, *forms, tuple(self._inner), _price_of(step.node, values)))
            self._inner.clear()
        else:
            self._inner.append(ObservedNode(step.node, *forms, price=_price_of(step.node, values)))

    def take(self) -> list[ObservedNode]:
        """Return the recorded nodes and clear the record."""
        nodes, self.nodes = self.nodes, []
        return nodes


def _price_of(node: Node, values: Sequence[Any]) -> Callable[[Collection[int]], Work] | None:
    """Return a Graphcore operation's price function on given values; None for other nodes."""
    entry = entry_of(node)
    return None if entry is None or entry.price is None else partial(entry.price, values)
