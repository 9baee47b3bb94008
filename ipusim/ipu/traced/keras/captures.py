"""Read eager TensorFlow variables in a function's graph, which captures variable handles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ipusim.ipu.graph.node import Graph, Node, Variable
from ipusim.ipu.graph.reading import assign_handle, read_graph, read_handle
from ipusim.ipu.graph.tensorflow_import import load

tf = load()


class Captures:
    """Names the variables that functions capture; names are unique."""

    def __init__(self) -> None:
        """Begin without variables."""
        self._names: dict[int, str] = {}
        self._handles: dict[str, Any] = {}

    def name_of(self, handle: Any, default: str = "variable") -> str:
        """Return the name of a handle's variable; a new handle gets ``default``, numbered if taken."""
        if id(handle) not in self._names:
            base = name = default.partition(":")[0]
            number = 0
            while name in self._handles:
                number += 1
                name = f"{base}_{number}"
            self._names[id(handle)] = name
            self._handles[name] = handle
        return self._names[id(handle)]

    def read(self, graph: Any) -> Graph:
        """Return a function's graph, with captured handles as variables and captured values as constants."""
        plain = read_graph(graph)
        pairs = zip(graph.external_captures, graph.internal_captures, strict=True)
        inside = [self._captured(plain.nodes[inner.op.name], outer) for outer, inner in pairs]
        return replace(plain, nodes={**plain.nodes, **{node.name: node for node in inside}})

    def variables(self) -> dict[str, Variable]:
        """Return all variables with current values."""
        return {name: Variable(name, read_handle(handle)) for name, handle in self._handles.items()}

    def assign(self, variables: Iterable[Variable]) -> None:
        """Copy assigned values to TensorFlow's variables."""
        for variable in variables:
            if variable.assigned:
                assign_handle(self._handles[variable.name], variable.value)

    def _captured(self, node: Node, outer: Any) -> Node:
        """Return the placeholder of a captured tensor as a variable handle or a constant."""
        if outer.dtype == tf.resource:
            return replace(node, type="VarHandleOp", attributes={"shared_name": self.name_of(outer, node.name)})
        return replace(node, type="Const", attributes={"value": np.array(outer.numpy())})
