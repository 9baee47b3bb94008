"""Look up readers and sources of values in a forward pass, for the search of layers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from ipusim.ipu.graph.node import Graph, Node, Output, source_of
from ipusim.ipu.graph.prices.observed import Form, ObservedNode

#: Node types that forward their first input unchanged.
SAME_VALUE: Final = frozenset({"Identity", "StopGradient", "Snapshot", "EnsureShape", "CheckNumerics"})
#: Node types that change at most the shape or the order of axes of their first input.
VIEWS: Final = SAME_VALUE | {"Reshape", "Transpose", "Squeeze", "ExpandDims"}


class PassView:
    """Executed nodes of a forward pass.

    Attributes:
        graph: the graph.
        entries: nodes by name, in order of execution.
        claimed: names of nodes already assigned to a layer.
    """

    def __init__(self, graph: Graph, nodes: Iterable[ObservedNode]) -> None:
        """Take the nodes in order of execution."""
        self.graph = graph
        self._nodes: Mapping[str, Node] = graph.nodes
        self.entries = {entry.node.name: entry for entry in nodes}
        self._pass_nodes = {name: entry.node for name, entry in self.entries.items()}
        self.claimed: set[str] = set()
        self._readers: dict[str, list[Node]] = {}
        for entry in self.entries.values():
            for name in dict.fromkeys(tensor.node for tensor in entry.node.inputs):
                self._readers.setdefault(name, []).append(entry.node)
        self._constancy: dict[str, bool] = {}

    def node(self, tensor: Output) -> Node | None:
        """Return the node that computes a tensor; None for nodes of another pass."""
        return self._pass_nodes.get(tensor.node)

    def form(self, tensor: Output) -> Form:
        """Return the form of a tensor computed or read in the pass."""
        entry_of_tensor = self.entries.get(tensor.node)
        if entry_of_tensor is not None:
            return entry_of_tensor.outputs[tensor.number]
        for entry in self.entries.values():
            if tensor in entry.node.inputs:
                return entry.inputs[entry.node.inputs.index(tensor)]
        raise KeyError(tensor)

    def readers(self, node: Node) -> list[Node]:
        """Return nodes of the pass that read a node's results."""
        return self._readers.get(node.name, [])

    def only_reader(self, node: Node) -> Node | None:
        """Return the single reader of a node's results, skipping identities; None for several readers."""
        readers = self.readers(node)
        while len(readers) == 1 and readers[0].type in SAME_VALUE:
            readers = self.readers(readers[0])
        return readers[0] if len(readers) == 1 else None

    def source(self, tensor: Output, through: Container[str] = VIEWS) -> Output:
        """Return a tensor's source, skipping views."""
        return source_of(self._pass_nodes, tensor, through)

    def reader_behind_views(self, node: Node) -> tuple[Node | None, list[Node]]:
        """Return the single reader of a node's result that is no view, and the views before; None for several."""
        views, reader = list[Node](), self.only_reader(node)
        while reader is not None and reader.type in VIEWS:
            views.append(reader)
            reader = self.only_reader(reader)
        return reader, views

    def is_weight(self, tensor: Output) -> bool:
        """Tell whether a tensor is the value of a variable, in any view or precision."""
        node = self.node(self.source(tensor, VIEWS | {"Cast"}))
        return node is not None and node.type == "ReadVariableOp"

    def variables_of(self, names: Iterable[str]) -> Iterator[str]:
        """Yield handle names of variables read by nodes, directly or through views and casts."""
        for name in names:
            for tensor in self._nodes[name].inputs:
                if self.is_weight(tensor):
                    read = self.node(self.source(tensor, VIEWS | {"Cast"}))
                    if read is not None:
                        yield read.inputs[0].node
                elif tensor.node in self._nodes and self._nodes[tensor.node].type == "VarHandleOp":
                    yield tensor.node

    def constant(self, tensor: Output) -> Any:
        """Return a constant's value; None for other tensors."""
        node = self._nodes.get(tensor.node)
        return node.attributes["value"] if node is not None and node.type == "Const" else None

    def is_constant(self, tensor: Output) -> bool:
        """Tell whether a tensor depends only on constants."""
        node = self._nodes.get(tensor.node)
        return node is not None and is_constant(self._nodes, node, self._constancy)


def is_constant(nodes: Mapping[str, Node], node: Node, constancy: dict[str, bool]) -> bool:
    """Tell whether a node depends only on constants; the compiler folds these nodes.

    Args:
        nodes: all nodes by name.
        node: the node.
        constancy: earlier answers by node name.
    """
    open_nodes = [] if node.name in constancy else [node]  # longer than Python's limit of recursion
    while open_nodes:
        current = open_nodes[-1]
        constancy[current.name] = False  # also the answer for a node that a cycle reaches again
        varies = current.type.startswith(("Random", "Stateless", "PyFunc"))
        makers = [] if varies else [nodes.get(tensor.node) for tensor in current.inputs]
        unknown = next((maker for maker in makers if maker is not None and maker.name not in constancy), None)
        if unknown is not None:
            open_nodes.append(unknown)
            continue
        constancy[current.name] = current.type == "Const" or (
            bool(makers) and all(maker is not None and constancy[maker.name] for maker in makers)
        )
        open_nodes.pop()
    return constancy[node.name]
