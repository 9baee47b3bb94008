"""Find nodes of a stage that the host runs inside a pass, and copies between host and IPU.

A host block holds the nodes of one ``outside_compilation_scope``, or one Python function of the program.

A tensor is placed on the side, host or IPU, of the node that computes the tensor. The first read by the opposite side
copies the tensor; afterwards both sides hold the tensor, also during the backward pass. Gradient nodes run on the
side of their origin; variables lie on the IPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ipusim.api import Work, models
from ipusim.ipu.graph.cut import StageCut
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.prices.observed import ObservedNode
from ipusim.ipu.graph.registry import is_program_function

#: Attribute of host nodes: number and name of the program's enclosing block.
SCOPE: Final = "_ipusim_host"
#: Separator of number and name.
_SEPARATOR: Final = "/"
#: Nodes whose tensors always lie on the IPU.
_ON_IPU: Final = frozenset({"ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
#: Nodes that read only shapes and dtypes, known to both sides.
_SHAPE_READERS: Final = frozenset({"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "ZerosLike", "OnesLike"})
#: Nodes that forward tensors unchanged.
_FORWARDING_TYPES: Final = frozenset(
    {"Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape"}
)


def scope_text(number: int, name: str) -> str:
    """Return the attribute value for nodes of a block."""
    return f"{number}{_SEPARATOR}{name}"


class HostScopes:
    """Host blocks of a graph."""

    def __init__(self, graph: Graph) -> None:
        """Take the graph."""
        self._nodes = graph.nodes
        self._block_of: dict[str, str] = {}
        self._readers: dict[str, list[Node]] = {}
        self.has_blocks = any(SCOPE in node.attributes or is_program_function(node) for node in graph.nodes.values())
        if self.has_blocks:
            for node in graph.nodes.values():
                for tensor in node.inputs:
                    self._readers.setdefault(tensor.node, []).append(node)

    def block_of(self, name: str) -> str:
        """Return number and name of a node's host block as text; empty if the node runs on the IPU."""
        node = self._nodes.get(name)
        if not self.has_blocks or node is None:
            return ""
        if name not in self._block_of:
            self._block_of[name] = ""
            self._block_of[name] = self._block_of_node(node)
        return self._block_of[name]

    def outside(self, nodes: Iterable[ObservedNode]) -> list[ObservedNode]:
        """Return the nodes that run on the IPU."""
        return [entry for entry in nodes if not self.block_of(entry.node.name)]

    def _block_of_node(self, node: Node) -> str:
        if node.type in _ON_IPU:
            return ""
        if SCOPE in node.attributes:
            return str(node.attributes[SCOPE])
        if is_program_function(node):
            return scope_text(0, node.name)
        if node.origin:
            return self.block_of(node.origin)
        return self._block_of_sum(node)

    def _block_of_sum(self, node: Node) -> str:
        """Return a gradient sum's block; empty if the sum runs on the IPU, and for other nodes.

        If the host computes all addends, the sum runs in the block of the last addend. If the host computes only some,
        the sum runs in the block of the first gradient node that reads the sum.
        """
        parts = [self.block_of(tensor.node) for tensor in node.inputs]
        if node.type != "AddN" or not any(parts):
            return ""
        if all(parts):
            return parts[-1]
        return next((self.block_of(reader.name) for reader in self._readers.get(node.name, ()) if reader.origin), "")

    def source(self, tensor: Output) -> Output:
        """Return the tensor that nodes forward unchanged as the given tensor."""
        node = self._nodes.get(tensor.node)
        while node is not None and node.type in _FORWARDING_TYPES and tensor.number < len(node.inputs):
            tensor = node.inputs[tensor.number]
            node = self._nodes.get(tensor.node)
        return tensor


class HostCalls:
    """Counts a stage's host calls: the work of a block, and bytes copied to the host and back."""

    def __init__(self, graph: Graph, scopes: HostScopes, stage_cut: StageCut) -> None:
        """Start counting; the backward pass finds tensors of the forward pass on both sides."""
        self._nodes, self._scopes, self._stage_cut = graph.nodes, scopes, stage_cut
        #: Node names of this stage.
        self._stage_nodes: set[str] = set()
        self._tensors_on_both_sides: set[Output] = set()
        self._bytes: dict[Output, int] = {}
        self._bytes_sent: dict[str, int] = {}
        self._bytes_returned: dict[str, int] = {}

    def of_pass(
        self,
        nodes: Sequence[ObservedNode],
        outputs: Iterable[Output],
        price: Callable[[list[ObservedNode]], tuple[Work, ...]],
    ) -> tuple[models.HostCall, ...]:
        """Return the host calls of a pass in order; ask for the forward pass first.

        Args:
            nodes: observed nodes of the pass.
            outputs: tensors for other stages, the next pass or weight updates.
            price: returns the work of a block's nodes.
        """
        self._bytes_sent, self._bytes_returned = {}, {}
        blocks: dict[str, list[ObservedNode]] = {}
        self._stage_nodes |= {entry.node.name for entry in nodes}
        for entry in nodes:
            block = self._scopes.block_of(entry.node.name)
            self._bytes.update(zip(entry.node.outputs, (form.nbytes for form in entry.outputs), strict=True))
            if block:
                blocks.setdefault(block, []).append(entry)
            if entry.node.type not in _SHAPE_READERS and entry.node.type not in _FORWARDING_TYPES:
                for tensor, size in self._read_tensors(entry, block):
                    self._count_copy(tensor, block, size)
        for tensor in outputs:
            self._count_copy(tensor, "", self._bytes.get(tensor, 0))
        calls = []
        for block in dict.fromkeys((*blocks, *self._bytes_sent, *self._bytes_returned)):
            work = price(blocks.get(block, []))
            bytes_sent, bytes_returned = self._bytes_sent.get(block, 0), self._bytes_returned.get(block, 0)
            if work or bytes_sent or bytes_returned:
                calls.append(models.HostCall(block.partition(_SEPARATOR)[2], work, bytes_sent, bytes_returned))
        return tuple(calls)

    def _read_tensors(self, entry: ObservedNode, block: str) -> Iterator[tuple[Output, int]]:
        """Yield the tensors read by a node.

        Each side first adds its own parts of a sum, so only one tensor crosses sides.
        """
        has_crossed = False
        for tensor, form in zip(entry.node.inputs, entry.inputs, strict=True):
            crosses = entry.node.type == "AddN" and bool(self._side(tensor)) != bool(block)
            if not (crosses and has_crossed):
                yield tensor, form.nbytes
            has_crossed = has_crossed or crosses

    def _side(self, tensor: Output) -> str:
        """Return the block that computes a tensor; empty for tensors of the IPU and of other stages."""
        return self._scopes.block_of(tensor.node) if tensor.node in self._stage_nodes else ""

    def _count_copy(self, tensor: Output, block: str, size: int) -> None:
        """Count a copy of a tensor, unless the reading side already holds the tensor."""
        tensor = self._scopes.source(tensor)
        maker = self._nodes.get(tensor.node)
        if maker is not None and (maker.type == "Const" or maker.type in _SHAPE_READERS):
            return
        if maker is not None and maker.type == "ReadVariableOp":
            tensor = maker.inputs[0]
        source_block = self._side(tensor)
        if tensor in self._tensors_on_both_sides or bool(source_block) == bool(block):
            return
        self._tensors_on_both_sides.add(tensor)
        if block:
            self._bytes_sent[block] = self._bytes_sent.get(block, 0) + size
        else:
            self._bytes_returned[source_block] = self._bytes_returned.get(source_block, 0) + size
