"""Cut a traced step into passes of stages, and find tensors that cross between passes.

A step is the graph of one micro-batch: the feed, which prepares the first stage's inputs, and the stages' forward
passes and gradients. A position of the pipeline holds one stage, or several concurrent stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import accumulate
from typing import Final, NamedTuple

from ipusim.ipu.graph.needed import SHARED_TYPES, NeededNodes, runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output


class Kind(IntEnum):
    """Part of a step: feed, forward pass or backward pass."""

    FEED = 0
    FORWARD = 1
    BACKWARD = 2


class Role(NamedTuple):
    """A node's pass: kind and stage number."""

    kind: Kind
    stage: int

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key of the pass: a micro-batch runs feed, forward passes, then backward passes."""
        return self.kind, -self.stage if self.kind is Kind.BACKWARD else self.stage


FEED: Final = Role(Kind.FEED, 0)


@dataclass(frozen=True, eq=False)
class Trace:
    """A step traced by TensorFlow.

    Attributes:
        graph: all nodes of the step, read after gradients are built.
        owners: pass of every node that the feed or a stage created, by node name.
        gradient_nodes: names of nodes that the gradient computation created, in order.
        gradients: gradient by the variable's shared name.
        results: tensors returned or sent by the last stage.
        stage_count: number of stages, counting concurrent stages individually.
        uncounted: names of nodes that the host runs, without work on IPUs.
        parts: number of concurrent stages per position of the pipeline; empty if no stages are concurrent.
        update_inputs: tensors of the feed and forward passes that the weight update reads, with the last micro-batch's
            values.
    """

    graph: Graph
    owners: Mapping[str, Role]
    gradient_nodes: Sequence[str]
    gradients: Mapping[str, Output]
    results: tuple[Output, ...]
    stage_count: int
    uncounted: Collection[str] = ()
    parts: tuple[int, ...] = ()
    update_inputs: tuple[Output, ...] = ()

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """Stage numbers per position."""
        ends = list(accumulate(self.parts or (1,) * self.stage_count))
        return tuple(tuple(range(start, end)) for start, end in zip([0, *ends], ends, strict=False))

    @property
    def position_of(self) -> tuple[int, ...]:
        """Position per stage."""
        return tuple(position for position, stages in enumerate(self.positions) for _ in stages)


@dataclass(frozen=True, eq=False)
class StageCut:
    """Forward and backward pass of one stage.

    Attributes:
        forward, backward: node names per pass, in creation order.
        takes: tensors that the forward pass receives from the previous stage, or from the feed in the first stage.
        gives: tensors for the next stage; results of the step for the last stage.
        keeps: tensors that the forward pass keeps for the backward pass.
        arrives: tensors sent back by the next stage.
        returns: tensors sent back to the previous stage.
        gradients: gradients computed by the backward pass, by the variable's shared name.
        packs: for each stage at the previous position: its number of outputs, and the tensors of ``returns`` for this
            stage. None in pipelines without concurrent stages.
        sums: nodes that the trace lacks: sums of the gradients of a variable that the stage uses several times.
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    takes: tuple[Output, ...]
    gives: tuple[Output, ...]
    keeps: tuple[Output, ...]
    arrives: tuple[Output, ...]
    returns: tuple[Output, ...]
    gradients: Mapping[str, Output]
    packs: tuple[tuple[int, tuple[Output, ...]], ...] | None = None
    sums: Mapping[str, Node] = field(default_factory=dict)


def with_sums(graph: Graph, cuts: Iterable[StageCut]) -> Graph:
    """Return a graph extended by the stages' sums of gradients."""
    added = {name: node for stage_cut in cuts for name, node in stage_cut.sums.items()}
    return replace(graph, nodes={**graph.nodes, **added}) if added else graph


def cut_stages(trace: Trace) -> tuple[StageCut, ...]:
    """Return the passes of every stage of a traced step.

    A gradient node belongs to the stage of its origin, the forward node whose gradient it computes. A node without
    origin, such as a sum of a tensor's gradients, belongs to the earliest stage that computes an operand. If concurrent
    stages compute operands, the sum belongs to the stage before them that reads it. Nodes read by an earlier pass move
    to that pass: a loop's gradient creates lists that the loop fills. If several stages use a variable, every stage
    computes a part of the gradient.
    """
    roles = dict(trace.owners)
    _assign_gradients(trace, roles)
    _move_forward(trace.graph, roles)
    return _Cutter(trace, roles).stages()


def _assign_gradients(trace: Trace, roles: dict[str, Role]) -> None:
    """Add the pass of every gradient node to ``roles``, as :func:`cut_stages` describes."""
    nodes, position_of = trace.graph.nodes, trace.position_of
    orphans: list[Node] = []
    readers: dict[str, list[str]] = {}
    for name in trace.gradient_nodes:
        node = nodes[name]
        for tensor in node.inputs:
            readers.setdefault(tensor.node, []).append(name)
        origin = nodes.get(node.origin)
        while origin is not None and origin.name not in roles:
            origin = nodes.get(origin.origin)
        if origin is None:
            orphans.append(node)
        else:
            roles[name] = Role(Kind.BACKWARD, roles[origin.name].stage)
    for node in orphans:
        owners = [roles[tensor.node] for tensor in node.inputs if tensor.node in roles]
        stages = [owner.stage for owner in owners if owner.kind is not Kind.FEED]
        stage = min(stages, default=trace.stage_count - 1)
        position = position_of[stage]
        if any(reader != stage and position_of[reader] == position for reader in stages):
            reading = [roles[name].stage for name in readers.get(node.name, ()) if name in roles]
            readers_ahead = [reader for reader in reading if position_of[reader] < position]
            stage = max(readers_ahead, default=trace.positions[position - 1][0])
        roles[node.name] = Role(Kind.BACKWARD, stage)


def _move_forward(graph: Graph, roles: dict[str, Role]) -> None:
    """Move nodes to the earliest pass among their readers."""
    work = [name for name in graph.nodes if name in roles]
    while work:
        node = graph.nodes[work.pop()]
        for source in node.sources:
            if source in roles and roles[source].rank > roles[node.name].rank:
                roles[source] = roles[node.name]
                work.append(source)


class _Cutter:
    """Finds tensors that cross between passes."""

    def __init__(self, trace: Trace, roles: Mapping[str, Role]) -> None:
        self._trace, self._nodes, self._roles = trace, dict(trace.graph.nodes), dict(roles)
        self._positions, self._position_of = trace.positions, trace.position_of
        self._gradients = self._gradients_of_stages()
        self._assigned = _changed_handles(trace.graph, roles)
        effects = [
            name
            for name, role in roles.items()
            if role.kind is Kind.FORWARD and name in self._nodes and runs_for_effect(self._nodes[name])
        ]
        fetches = [*(tensor for _, _, tensor in self._gradients), *trace.results, *trace.update_inputs]
        needed_nodes = NeededNodes(replace(trace.graph, nodes=self._nodes), (), fetches, effects, self._roles.keys())
        self._order = [node.name for node in needed_nodes.in_order()]
        self._readers = self._find_readers()

    def stages(self) -> tuple[StageCut, ...]:
        """Return the passes per stage."""
        gives = [self._outputs_of(stage) for stage in range(self._trace.stage_count)]
        arrivals = [self._crossing_back(stage) for stage in range(self._trace.stage_count)]
        result = []
        for stage, position in enumerate(self._position_of):
            forward, backward = (self._names_of_pass(Role(kind, stage)) for kind in (Kind.FORWARD, Kind.BACKWARD))
            senders = self._positions[position - 1] if position else ()
            gradients_sent = {sender: self._gradients_for(stage, arrivals[sender]) for sender in senders}
            gradients = {name: tensor for owner, name, tensor in self._gradients if owner == stage}
            has_concurrent_senders = len(senders) > 1
            packs = tuple(
                (len(gives[sender]) if has_concurrent_senders else 1, tensors)
                for sender, tensors in gradients_sent.items()
            )
            result.append(
                StageCut(
                    forward=forward,
                    backward=backward,
                    takes=tuple(tensor for sender in senders for tensor in gives[sender])
                    or self._crossing_forward(position),
                    gives=gives[stage],
                    keeps=self._stash_of(stage, gradients.values()),
                    arrives=arrivals[stage],
                    returns=tuple(tensor for tensors in gradients_sent.values() for tensor in tensors),
                    gradients=gradients,
                    packs=packs if self._trace.parts else None,
                    sums={name: self._nodes[name] for name in backward if name not in self._trace.graph.nodes},
                )
            )
        return tuple(result)

    def _outputs_of(self, stage: int) -> tuple[Output, ...]:
        """Return a stage's output tensors.

        The first of concurrent stages also forwards tensors of earlier stages.
        """
        position = self._position_of[stage]
        if position == len(self._positions) - 1:
            return (*self._trace.results, *self._trace.update_inputs)
        is_first = stage == self._positions[position][0]
        return tuple(
            tensor
            for tensor in self._crossing_forward(position + 1)
            if self._roles[tensor.node] == Role(Kind.FORWARD, stage)
            or (is_first and self._is_before(self._roles[tensor.node], position))
        )

    def _gradients_for(self, stage: int, arriving: Sequence[Output]) -> tuple[Output, ...]:
        """Return those of the tensors arriving at an earlier stage that this stage computes or forwards."""
        position = self._position_of[stage]
        is_first = stage == self._positions[position][0]
        makers = [(tensor, self._roles[tensor.node].stage) for tensor in arriving]
        return tuple(
            tensor for tensor, maker in makers if maker == stage or (is_first and self._position_of[maker] > position)
        )

    def _gradients_of_stages(self) -> list[tuple[int, str, Output]]:
        """Return (stage, variable, tensor) per gradient; a variable of several stages has a gradient in each."""
        parts: list[tuple[int, str, Output]] = []
        for name, tensor in self._trace.gradients.items():
            node = self._nodes[tensor.node]
            by_stage: dict[int, list[Output]] = {}
            if node.type == "AddN" and not node.origin and node.name in self._roles:
                for operand in node.inputs:
                    by_stage.setdefault(self._gradient_stage(operand), []).append(operand)
            if len(by_stage) < 2:
                parts.append((self._gradient_stage(tensor), name, tensor))
                continue
            for stage, tensors in sorted(by_stage.items()):
                part = replace(node, name=f"{node.name}/stage{stage}", inputs=tuple(tensors))
                if len(tensors) > 1:
                    self._nodes[part.name], self._roles[part.name] = part, Role(Kind.BACKWARD, stage)
                parts.append((stage, name, Output(part.name, 0) if len(tensors) > 1 else tensors[0]))
        return parts

    def _names_of_pass(self, role: Role) -> tuple[str, ...]:
        """Return the nodes of a pass, preceded by nodes that the pass repeats to avoid a transfer."""
        copies: dict[str, None] = {}
        for tensor, readers in self._readers.items():
            if role in readers and self._needs_no_transfer(tensor.node):
                copies |= dict.fromkeys(self._identity_chain(tensor.node))
        return (*copies, *(name for name in self._order if self._roles.get(name) == role))

    def _needs_no_transfer(self, name: str) -> bool:
        """Tell whether passes can recompute or read a node's result without a transfer.

        A variable that no pass changes can be read on the IPU. A value from outside the step, which stages
        only forward, is a constant of the run and crosses no link.
        """
        *_, start = self._identity_chain(name)
        node = self._nodes[start]
        if node.type == "ReadVariableOp":
            return node.inputs[0] not in self._assigned
        return node.type == "Identity" and node.inputs[0].node not in self._roles

    def _identity_chain(self, name: str) -> list[str]:
        """Return a node, then the nodes before it as long as the nodes are identities."""
        chain = [name]
        while self._nodes[chain[-1]].type == "Identity" and self._nodes[chain[-1]].inputs[0].node in self._roles:
            chain.append(self._nodes[chain[-1]].inputs[0].node)
        return chain

    def _find_readers(self) -> dict[Output, list[Role]]:
        """Return the passes that read a tensor of another pass, by tensor."""
        readers: dict[Output, list[Role]] = {}
        for name in self._order:
            role = self._roles.get(name)
            if role is None:
                continue
            for tensor in self._nodes[name].inputs:
                maker = self._roles.get(tensor.node)
                if maker is not None and maker != role and self._nodes[tensor.node].type not in SHARED_TYPES:
                    roles = readers.setdefault(tensor, [])
                    if role not in roles:
                        roles.append(role)
        ends = [(tensor, Role(Kind.BACKWARD, stage)) for stage, _, tensor in self._gradients]
        last = Role(Kind.FORWARD, self._trace.stage_count - 1)
        for tensor, reader in [
            *ends,
            *((result, last) for result in (*self._trace.results, *self._trace.update_inputs)),
        ]:
            maker = self._roles.get(tensor.node)
            if maker is not None and maker != reader and maker.kind is not Kind.BACKWARD:
                roles = readers.setdefault(tensor, [])
                if reader not in roles:
                    roles.append(reader)
        order_index = {name: number for number, name in enumerate(self._order)}
        return dict(sorted(readers.items(), key=lambda item: (order_index[item[0].node], item[0].number)))

    def _gradient_stage(self, tensor: Output) -> int:
        """Return the stage that computes a gradient; the last stage if no pass owns the node."""
        role = self._roles.get(tensor.node)
        return self._trace.stage_count - 1 if role is None else role.stage

    def _crossing_forward(self, position: int) -> tuple[Output, ...]:
        """Return tensors of earlier positions that are read at a position or later."""
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if self._is_before(self._roles[tensor.node], position)
            and not self._needs_no_transfer(tensor.node)
            and any(self._position_of[reader.stage] >= position for reader in readers if reader.kind is not Kind.FEED)
        )

    def _is_before(self, maker: Role, position: int) -> bool:
        return maker.kind is Kind.FEED or (maker.kind is Kind.FORWARD and self._position_of[maker.stage] < position)

    def _crossing_back(self, stage: int) -> tuple[Output, ...]:
        """Return tensors of later stages that the backward pass of this stage or of an earlier stage reads.

        Tensors for earlier positions travel through the first of concurrent stages.
        """
        position = self._position_of[stage]
        is_first = stage == self._positions[position][0]
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if (maker := self._roles[tensor.node]).kind is not Kind.FEED
            and self._position_of[maker.stage] > position
            and not self._needs_no_transfer(tensor.node)
            and any(
                reader.kind is Kind.BACKWARD
                and (reader.stage == stage or (is_first and self._position_of[reader.stage] < position))
                for reader in readers
            )
        )

    def _stash_of(self, stage: int, gradients: Iterable[Output]) -> tuple[Output, ...]:
        """Return the tensors that a stage keeps after its forward pass.

        The stage's backward pass reads such a tensor; or the stage computed the tensor, and another backward pass reads
        it; or the tensor itself is the gradient of a variable.
        """
        fetched = set(gradients)
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if (maker := self._roles[tensor.node]).kind is not Kind.BACKWARD
            and not self._needs_no_transfer(tensor.node)
            and (
                any(reader == Role(Kind.BACKWARD, stage) for reader in readers)
                or (maker == Role(Kind.FORWARD, stage) and any(reader.kind is Kind.BACKWARD for reader in readers))
                or tensor in fetched
            )
            and (maker.kind is Kind.FEED or maker.stage <= stage)
        )


def _changed_handles(graph: Graph, names: Collection[str]) -> set[Output]:
    """Return handles of variables that nodes with an effect, such as assignments, take."""
    return {
        handle
        for name in names
        if name in graph.nodes and runs_for_effect(graph.nodes[name])
        for handle in graph.nodes[name].inputs
        if graph.nodes.get(handle.node) is not None and graph.nodes[handle.node].type == "VarHandleOp"
    }
