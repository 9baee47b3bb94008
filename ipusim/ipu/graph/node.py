"""Represent a traced graph as plain Python values: nodes, called functions and variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ipusim.api import Array

T = TypeVar("T")

#: Static shape of a tensor: None for unknown rank; sizes may be None.
StaticShape = tuple[int | None, ...] | None


class Output(NamedTuple):
    """A tensor of a graph: node name, and number among the node's results."""

    node: str
    number: int


@dataclass(frozen=True, eq=False)
class Node:
    """An operation of a traced graph.

    Attributes:
        name: unique name in its graph.
        type: TensorFlow operation type, such as ``MatMul``.
        attributes: TensorFlow's attributes by name, as Python values: text, numbers, NumPy dtypes (``object`` for
            text, handles and variants), shapes as tuples, arrays, lists of these, and names of functions as text.
        inputs: input tensors.
        controls: names of nodes with a control edge to this node.
        output_types: NumPy dtype per result; ``object`` for text, resource handles and variants.
        output_shapes: static shape per result.
        origin: name of the node whose gradient includes this node, as recorded by TensorFlow; empty for other nodes.
        stateful: True if TensorFlow counts the operation as stateful: a run reads or changes more than tensors.

    Example:
        >>> from ipusim.ipu.graph.node import Node, Output
        >>> node = Node("h", "LeakyRelu", {"alpha": 0.2}, (Output("x", 0),))
        >>> node.attributes["alpha"]
        0.2
    """

    name: str
    type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Output, ...] = ()
    controls: tuple[str, ...] = ()
    output_types: tuple[np.dtype[Any], ...] = ()
    output_shapes: tuple[StaticShape, ...] = ()
    origin: str = ""
    stateful: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of direct predecessors along data edges and control edges."""
        return (*(tensor.node for tensor in self.inputs), *self.controls)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Output tensors."""
        return tuple(Output(self.name, number) for number in range(len(self.output_types)))


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in creation order, and called functions.

    Attributes:
        nodes: the nodes by name.
        functions: bodies of called functions by name: loops, branches and calls, including nested functions.
        inputs, outputs: arguments and results of a function body; empty for other graphs.
    """

    nodes: Mapping[str, Node]
    functions: Mapping[str, Graph] = field(default_factory=dict)
    inputs: tuple[Output, ...] = ()
    outputs: tuple[Output, ...] = ()


def reach(start: Iterable[T], neighbours: Callable[[T], Iterable[T]]) -> set[T]:
    """Return ``start`` and every item reachable from ``start`` through ``neighbours``."""
    result = set(start)
    work = list(result)
    while work:
        new = [item for item in neighbours(work.pop()) if item not in result]
        result.update(new)
        work += new
    return result


def source_of(nodes: Mapping[str, Node], tensor: Output, types: Container[str]) -> Output:
    """Return a tensor's source behind all nodes of given types; such nodes forward their first input."""
    node = nodes.get(tensor.node)
    while node is not None and node.type in types:
        tensor = node.inputs[0]
        node = nodes.get(tensor.node)
    return tensor


def with_attribute(graph: Graph, types: Collection[str], name: str, value: Any) -> Graph:
    """Return a graph with an extra attribute on all nodes of some types, also in function bodies.

    Args:
        graph: the graph.
        types: operation types.
        name: name of the attribute.
        value: value of the attribute.
    """
    functions: dict[str, Graph] = {}  # filled below; shared by all graphs, because functions may be recursive

    def change(other_graph: Graph) -> Graph:
        nodes = {
            key: replace(node, attributes={**node.attributes, name: value}) if node.type in types else node
            for key, node in other_graph.nodes.items()
        }
        return replace(other_graph, nodes=nodes, functions=functions)

    functions.update((key, change(body)) for key, body in graph.functions.items())
    return change(graph)


class Variable:
    """A variable during a program run.

    Attributes:
        name: shared name of the variable's handle.
        value: current value; an assignment replaces the array and never changes it in place.
        assigned: whether the current run assigned a value.
    """

    __slots__ = ("assigned", "name", "value")

    def __init__(self, name: str, value: Array) -> None:
        """Start from a value."""
        self.name, self.value, self.assigned = name, value, False

    def assign(self, value: Array) -> None:
        """Set a new value."""
        self.value, self.assigned = value, True
