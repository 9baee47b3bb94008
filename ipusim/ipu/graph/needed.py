"""Find the nodes that compute the results and effects of a graph's part, in topological order."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from ipusim.ipu.graph.control_flow import WITHOUT_EFFECTS
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.registry import entry_of

#: Operation types whose nodes every part repeats: constants and handles of variables.
SHARED_TYPES: Final = frozenset({"Const", "VarHandleOp"})
#: First words of TensorFlow's operation types that change variables. Operations that only read have kernels.
CHANGES_OF_VARIABLES: Final = ("Resource", "Assign")


def runs_for_effect(node: Node) -> bool:
    """Tell whether a node runs even if no node reads the results.

    A stateful operation without a kernel, such as a write to a file, counts as an effect: a run must refuse the node,
    not leave the write out.
    """
    entry = entry_of(node)
    if entry is None:
        changes = node.stateful or node.type.startswith(CHANGES_OF_VARIABLES)
        return node.type in WITHOUT_EFFECTS or (changes and node.type not in SHARED_TYPES)
    return entry.effect or node.type in WITHOUT_EFFECTS


class NeededNodes:
    """Nodes that compute a part's results and effects.

    A control edge adds only nodes with effects. TensorFlow 1 orders the two gradients of a product by a control edge;
    following that edge would add a gradient that nobody reads.

    Attributes:
        names: names of the nodes.
        external: tensors from outside the part, in order of discovery.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Iterable[Output],
        fetches: Sequence[Output],
        targets: Iterable[str] = (),
        part: Collection[str] | None = None,
    ) -> None:
        """Follow inputs and control edges backwards.

        Args:
            graph: the graph.
            feeds: tensors with values from the caller.
            fetches: tensors to compute.
            targets: names of nodes with effects.
            part: node names of the part, by default all nodes; other tensors are external.
        """
        self._graph = graph
        self._effects = _Effects(graph)
        #: Nodes with effects that control edges put before a node.
        self._predecessors: dict[str, list[str]] = {}
        self.names: set[str] = set()
        inside: Collection[str] = graph.nodes.keys() if part is None else part
        fed, external = set(feeds), dict[Output, None]()
        stack = [*targets, *(tensor.node for tensor in fetches if tensor not in fed)]
        stack.reverse()
        while stack:
            name = stack.pop()
            if name in self.names:
                continue
            self.names.add(name)
            node = graph.nodes[name]
            for tensor in node.inputs:
                if tensor in fed:
                    continue
                source = graph.nodes.get(tensor.node)
                if source is not None and _is_made_inside(source, inside):
                    stack.append(tensor.node)
                else:
                    external[tensor] = None
            effects = {effect for control in node.controls for effect in self._effects.nearest(control)}
            self._predecessors[name] = [effect for effect in sorted(effects) if effect in inside]
            stack += self._predecessors[name]
        self.external = tuple(external)

    def in_order(self) -> Iterator[Node]:
        """Yield nodes after their dependencies; ties go to the earliest created node.

        Creation order is not a topological order: a loop's gradient gives the loop new inputs, created after the loop.
        """
        nodes = [node for name, node in self._graph.nodes.items() if name in self.names]
        index_of = {node.name: index for index, node in enumerate(nodes)}
        open_counts = [0] * len(nodes)
        followers: list[list[int]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            predecessors = {tensor.node for tensor in node.inputs} | set(self._predecessors[node.name])
            sources = [index_of[source] for source in predecessors if source in index_of]
            open_counts[index] = len(sources)
            for source in sources:
                followers[source].append(index)
        ready = [index for index, count in enumerate(open_counts) if not count]
        while ready:
            index = heapq.heappop(ready)
            yield nodes[index]
            for follower in followers[index]:
                open_counts[follower] -= 1
                if not open_counts[follower]:
                    heapq.heappush(ready, follower)


def _is_made_inside(node: Node, inside: Collection[str]) -> bool:
    """Tell whether a part computes a node's results.

    A placeholder inside a part stands for a captured tensor, which another part computes.
    """
    return node.type in SHARED_TYPES or (node.type != "Placeholder" and node.name in inside)


class _Effects:
    """Search for the nearest nodes with an effect among a node and its ancestors."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._effects_of: dict[str, frozenset[str]] = {}

    def nearest(self, name: str) -> frozenset[str]:
        """Return the names of the nearest nodes with an effect; only the node's own name if it has an effect."""
        stack = [name]
        while stack:
            current = stack[-1]
            node = self._graph.nodes.get(current)
            if current in self._effects_of:
                stack.pop()
            elif node is None:
                self._effects_of[current] = frozenset()
            elif runs_for_effect(node):
                self._effects_of[current] = frozenset((current,))
            else:
                open_sources = [source for source in node.sources if source not in self._effects_of]
                stack += open_sources
                if not open_sources:
                    self._effects_of[current] = frozenset().union(
                        *(self._effects_of[source] for source in node.sources)
                    )
        return self._effects_of[name]
