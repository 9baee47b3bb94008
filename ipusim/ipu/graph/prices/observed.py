"""What a run of a pass shows of its nodes: the form of every value, inside of loops and branches too."""

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
    """Shape and dtype of a value.

    Attributes:
        shape: shape of an array; empty for a value that is no array.
        dtype: of its elements; ``object`` for a value that is no array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements, 0 of a value that is no array."""
        return 0 if self.dtype.hasobject else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize


_NO_ARRAY = Form((), np.dtype(object))


def form_of(value: Any) -> Form:
    """Return the form of a value; a variable has the form of its array."""
    if isinstance(value, Variable):
        return form_of(value.value)
    if value is None or isinstance(value, TensorList) or not hasattr(value, "dtype"):
        return _NO_ARRAY
    return Form(np.shape(value), value.dtype)


@dataclass(frozen=True, eq=False)
class ObservedNode:
    """A node that has run.

    Attributes:
        node: the node.
        inputs, outputs: forms of the input and output values.
        inner: nodes of loop and branch bodies, in the order of execution, once for each execution.
        price: takes the numbers of the results that are read, returns the work of an operation of Graphcore's; None for
            any other node.
    """

    node: Node
    inputs: tuple[Form, ...]
    outputs: tuple[Form, ...]
    inner: tuple[ObservedNode, ...] = ()
    price: Callable[[Collection[int]], Work] | None = None


@dataclass(eq=False)
class Observation:
    """Observes the steps of a run; an :data:`~ipusim.ipu.graph.executable.Observer`.

    Attributes:
        graph: nodes of this graph are noted by themselves, nodes of bodies with the node that runs them.
        seen: the nodes that have run, in order.
    """

    graph: Graph
    seen: list[ObservedNode] = field(default_factory=list)
    _inner: list[ObservedNode] = field(default_factory=list)

    def __call__(self, step: Step, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Note a step behind its run."""
        values = inputs[len(inputs) - len(step.node.inputs) :]
        forms = tuple(map(form_of, values)), tuple(map(form_of, outputs))
        if self.graph.nodes.get(step.node.name) is step.node:
            self.seen.append(ObservedNode(step.node, *forms, tuple(self._inner), _price_of(step.node, values)))
            self._inner.clear()
        else:
            self._inner.append(ObservedNode(step.node, *forms, price=_price_of(step.node, values)))

    def take(self) -> list[ObservedNode]:
        """Return the nodes noted so far, and begin anew."""
        noted, self.seen = self.seen, []
        return noted


def _price_of(node: Node, values: Sequence[Any]) -> Callable[[Collection[int]], Work] | None:
    """Return the price of an operation of Graphcore's on these values; None for any other node."""
    entry = entry_of(node)
    return None if entry is None or entry.price is None else partial(entry.price, values)
