"""Split a training loop's body into forward pass, gradients and weight update."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ipusim.base.errors import UnsupportedProgramError
from ipusim.base.units import enumerated
from ipusim.ipu.graph.accumulation import Accumulation
from ipusim.ipu.graph.averaging import Averaged
from ipusim.ipu.graph.cut import FEED, Kind, Role, Trace
from ipusim.ipu.graph.enqueued import EnqueueItem
from ipusim.ipu.graph.executable import shared_name
from ipusim.ipu.graph.needed import NeededNodes, runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output, StaticShape, reach
from ipusim.ipu.graph.registry import value_of
from ipusim.ipu.graph.traced_step import TracedStep, handed_to_update

#: Node attribute holding the IPU number.
SHARD: Final = "_ipusim_shard"
#: Operation types that make an empty list of tensors. Gradients of loops make such lists; the forward loops fill them.
LISTS: Final = frozenset({"EmptyTensorList", "TensorListReserve"})
#: Operation types whose outputs equal their inputs.
_IDENTITIES: Final = frozenset({"Identity", "IdentityN"})


@dataclass(frozen=True, eq=False)
class BodyNodes:
    """Nodes of a loop body by purpose.

    Attributes:
        forward: nodes independent of gradients.
        gradient: nodes of gradients.
        update: nodes that run after gradients: weight updates, and nodes that wait for weight updates.
    """

    forward: tuple[str, ...]
    gradient: tuple[str, ...]
    update: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Shards:
    """Placement of a body's nodes on stages.

    A stage is a run of nodes on the same IPU, in creation order.

    Attributes:
        mapping: IPU per stage.
        stage_of: stage number by node name.
    """

    mapping: tuple[int, ...]
    stage_of: Mapping[str, int]

    @property
    def stage_count(self) -> int:
        """Number of stages."""
        return len(self.mapping)

    def owners(self, names: Collection[str], feeds: Collection[str]) -> dict[str, Role]:
        """Return the pass of every forward-pass node; nodes in ``feeds`` take elements of queues."""
        return {name: FEED if name in feeds else Role(Kind.FORWARD, self.stage_of[name]) for name in names}


def shards_of(graph: Graph, names: Collection[str]) -> Shards:
    """Return the placement of body nodes by IPU number; unplaced nodes follow the previous node.

    Args:
        graph: the graph.
        names: node names of the forward pass.

    Raises:
        UnsupportedProgramError: if the body of a loop, branch or function is on several IPUs.
    """
    mapping: list[int] = []
    stage_of: dict[str, int] = {}
    for name, node in graph.nodes.items():
        if name not in names:
            continue
        shard = _body_shard(graph, node, node.attributes.get(SHARD))
        if shard is not None and (not mapping or mapping[-1] != shard):
            mapping.append(int(shard))
        stage_of[name] = max(len(mapping) - 1, 0)
    return Shards(tuple(mapping) or (0,), stage_of)


def _body_shard(graph: Graph, node: Node, shard: int | None) -> int | None:
    """Return the IPU of a node's functions; by default ``shard``, the IPU of the node."""

    def called(caller: Node) -> Iterator[Node]:
        values = (value if isinstance(value, list) else [value] for value in caller.attributes.values())
        for name in filter(lambda value: isinstance(value, str), chain(*values)):
            yield from graph.functions[name].nodes.values() if name in graph.functions else ()

    shards = {int(inner.attributes[SHARD]) for inner in reach([node], called) - {node} if SHARD in inner.attributes}
    if len(shards) > 1:
        raise UnsupportedProgramError(
            "ipu_shard: expected one IPU for the body of a loop, branch or function, got IPUs "
            f"{enumerated(sorted(shards))}"
        )
    return shards.pop() if shards else shard


def split_body(graph: Graph, names: Collection[str]) -> BodyNodes:
    """Return a body's nodes by purpose.

    A node belongs to a gradient if TensorFlow records its origin, the forward node whose gradient it computes, or
    if the node lies between two nodes with an origin. A forward loop's lists of values for the gradient are forward
    nodes. Nodes that depend on gradients, by data or control edges, belong to the update. Nodes that would give the
    same result before the update are excepted: a loss that only control edges connect to the update belongs to the
    forward pass.

    Args:
        graph: the graph.
        names: names of the body's nodes.
    """
    nodes = [node for name, node in graph.nodes.items() if name in names]
    used_forwards = {tensor.node for node in nodes if not node.origin for tensor in node.inputs}
    lists = [node for node in nodes if node.type in LISTS and node.name in used_forwards]
    list_parts = {node.name for node in lists} | {tensor.node for node in lists for tensor in node.inputs}
    origins = {node.name for node in nodes if node.origin and node.name not in list_parts}
    descendants = _reach(nodes, origins, forwards=True)
    ancestors = _reach(nodes, origins, forwards=False)
    gradient = origins | (descendants & ancestors)
    update = descendants - gradient
    update -= _independent_of_update(graph, nodes, gradient, update)
    forward = [node.name for node in nodes if node.name not in gradient and node.name not in update]
    order = [node.name for node in nodes]
    return BodyNodes(
        tuple(forward),
        tuple(name for name in order if name in gradient),
        tuple(name for name in order if name in update),
    )


def _independent_of_update(graph: Graph, nodes: Sequence[Node], gradient: set[str], update: set[str]) -> set[str]:
    """Return update nodes whose results do not depend on the update.

    Only control edges make these nodes wait. Reads of variables always depend on the update. An assignment does not
    if no other update node uses the variable.
    """
    independent: set[str] = set()
    handle_of_assignment: dict[str, str] = {}
    for node in nodes:
        if node.name not in update or node.type == "ReadVariableOp":
            continue
        sources = {tensor.node for tensor in node.inputs}
        if sources & gradient or (sources & update) - independent:
            continue
        independent.add(node.name)
        if runs_for_effect(node):
            handle_of_assignment[node.name] = node.inputs[0].node if node.inputs else ""
    dependents = {node.name for node in nodes if node.name in update and node.name not in independent}
    effects = [name for name in dependents if runs_for_effect(graph.nodes[name])]
    names = {node.name for node in nodes} - gradient
    names_of_effects = NeededNodes(graph, (), (), effects, names - set(handle_of_assignment)).names
    return independent - {name for name, handle in handle_of_assignment.items() if handle in names_of_effects}


def _reach(nodes: Sequence[Node], start: Collection[str], *, forwards: bool) -> set[str]:
    """Return the start nodes with all descendants (``forwards``), or with all ancestors."""
    edges: dict[str, list[str]] = {}
    for node in nodes:
        for source in node.sources:
            pair = (source, node.name) if forwards else (node.name, source)
            edges.setdefault(pair[0], []).append(pair[1])
    return reach(start, lambda name: edges.get(name, ()))


def as_training(
    graph: Graph,
    parts: BodyNodes,
    feeds: Collection[str],
    results: Sequence[Output],
    effects: Collection[str],
    shards: Shards,
) -> TracedStep | None:
    """Return a body as a training step; None for any other body.

    A training step has gradients of variables, which operations such as ``ResourceApplyAdam`` apply, and its forward
    pass computes all results.

    Args:
        graph: the graph.
        parts: the body's nodes.
        feeds: names of nodes taking elements of queues.
        results: tensors that the body sends.
        effects: names of nodes whose effects the body requests.
        shards: placement of the nodes.
    """
    fed = _gradients_of_updates(graph, parts)
    gradients = {name: _accumulated(graph, tensor) for name, tensor in fed.items()}
    outputs = [_source(graph, tensor) for tensor in results]
    forward = {*parts.forward, *feeds}
    if not gradients or any(tensor.node not in forward for tensor in outputs):
        return None
    owners = shards.owners(forward, feeds)
    targets = [name for name in parts.update if name in effects]
    needed_nodes = NeededNodes(graph, fed.values(), (), targets, {*parts.update, *parts.forward})
    if any(tensor.node in parts.gradient for tensor in needed_nodes.external):
        return None
    update = tuple(name for name in parts.update if name in needed_nodes.names)
    update_inputs = handed_to_update(graph, owners, fed, update)
    trace = Trace(
        graph, owners, parts.gradient, gradients, tuple(outputs), shards.stage_count, update_inputs=update_inputs
    )
    return TracedStep(trace, fed, update)


def _gradients_of_updates(graph: Graph, parts: BodyNodes) -> dict[str, Output]:
    """Return gradients by updated variable; empty if the variables are unknown.

    An operation that updates a variable names the gradient's variable, even if the update first computes with
    gradients, for example to clip their global norm. In other updates the marks of gradient accumulation name the
    variables.
    """
    gradients: dict[str, Output] = {}
    marks = {name: mark for name in parts.update if (mark := value_of(graph.nodes[name], Accumulation)) is not None}
    by_mark = {mark.variable: Output(name, 0) for name, mark in marks.items()}
    ends, inside = marks.keys() | parts.gradient, set(parts.update)
    for name in parts.update:
        node = graph.nodes[name]
        if not runs_for_effect(node) or value_of(node, EnqueueItem) is not None or value_of(node, Averaged) is not None:
            continue
        if name in marks or not _read_ends(graph, node, ends, inside):
            continue
        handle = graph.nodes[node.inputs[0].node]
        read = [tensor for tensor in (_source(graph, source, ends) for source in node.inputs) if tensor.node in ends]
        shape = handle.attributes.get("shape")
        read = read or ([] if shape is None else _read_ends(graph, node, ends, inside, shape))
        if not node.type.startswith("ResourceApply") or len(read) != 1 or handle.type != "VarHandleOp":
            return {} if "" in by_mark else by_mark
        gradients[shared_name(handle)] = read[0]
    return gradients


def _read_ends(
    graph: Graph, node: Node, ends: Collection[str], inside: Collection[str], shape: StaticShape = None
) -> list[Output]:
    """Return the tensors of the nodes ``ends`` that a node reads, directly or through nodes of ``inside``.

    With a shape, the path leads only through tensors of this shape.
    """
    result: dict[Output, None] = {}
    work, seen = list(node.inputs), set(node.inputs)
    while work:
        tensor = work.pop()
        maker = graph.nodes[tensor.node]
        if shape is not None and maker.output_shapes[tensor.number] != shape:
            continue
        if tensor.node in ends:
            result[tensor] = None
        elif tensor.node in inside:
            new = [operand for operand in maker.inputs if operand not in seen]
            seen.update(new)
            work += new
    return list(result)


def _accumulated(graph: Graph, tensor: Output) -> Output:
    """Return the micro-batch gradient behind an accumulated tensor; other tensors are returned unchanged."""
    node = graph.nodes[tensor.node]
    return tensor if value_of(node, Accumulation) is None else node.inputs[0]


def _source(graph: Graph, tensor: Output, ends: Collection[str] = ()) -> Output:
    """Return a tensor's source, skipping identities and averages over replicas outside ``ends``."""
    node = graph.nodes[tensor.node]
    while (node.type in _IDENTITIES or value_of(node, Averaged) is not None) and node.name not in ends:
        tensor = node.inputs[tensor.number]
        node = graph.nodes[tensor.node]
    return tensor


def as_one_pass(
    graph: Graph, names: Collection[str], feeds: Collection[str], results: Sequence[Output], shards: Shards
) -> TracedStep:
    """Return a body as a step with only a forward pass, which may change variables.

    Args:
        graph: the graph.
        names: names of the body's nodes.
        feeds: names of nodes taking elements of queues.
        results: tensors that the body sends.
        shards: placement of the nodes.
    """
    for name in names:
        mark = value_of(graph.nodes[name], Averaged)
        if mark is not None:
            mark.in_pass = True
    return TracedStep(Trace(graph, shards.owners(names, feeds), (), {}, tuple(results), shards.stage_count), {}, ())
