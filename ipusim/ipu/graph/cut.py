"""Cuts a traced training step, or inference, into passes of stages, and finds the tensors that cross between passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ipusim.ipu.graph.needed import SHARED, NeededNodes, runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output


class Kind(IntEnum):
    """The part of a step that a node belongs to."""

    FEED = 0
    FORWARD = 1
    BACKWARD = 2


class Role(NamedTuple):
    """The pass of a node: kind and stage number."""

    kind: Kind
    stage: int

    @property
    def rank(self) -> tuple[int, int]:
        """The place of the pass in the order in which a micro-batch goes through them."""
        return self.kind, -self.stage if self.kind is Kind.BACKWARD else self.stage


FEED: Final = Role(Kind.FEED, 0)


@dataclass(frozen=True, eq=False)
class Trace:
    """A step as TensorFlow traced it.

    Attributes:
        graph: all nodes of the step, read behind the gradients.
        owners: the pass of each node that was written while a feed or a stage was traced, by the node's name.
        gradient_nodes: names of the nodes that were written while gradients were taken, in order.
        gradients: gradient of each variable, by the variable's shared name.
        results: what the last stage returns, or sends.
        stages: number of stages.
        uncounted: names of nodes that stand for work of the host, and cost IPUs nothing.
    """

    graph: Graph
    owners: Mapping[str, Role]
    gradient_nodes: Sequence[str]
    gradients: Mapping[str, Output]
    results: tuple[Output, ...]
    stages: int
    uncounted: Collection[str] = ()


@dataclass(frozen=True, eq=False)
class StageCut:
    """The passes of one stage.

    Attributes:
        forward, backward: names of the nodes of each pass, in the order of their creation.
        takes: tensors that come from the stage before, of the first stage from the feed.
        gives: tensors that go to the next stage; of the last stage the results of the step.
        keeps: tensors from the forward pass to the backward pass.
        arrives: tensors that come back from the next stage.
        returns: tensors that go back to the stage before.
        gradients: gradient of each variable that its backward pass makes, by the variable's shared name.
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    takes: tuple[Output, ...]
    gives: tuple[Output, ...]
    keeps: tuple[Output, ...]
    arrives: tuple[Output, ...]
    returns: tuple[Output, ...]
    gradients: Mapping[str, Output]


def cut(trace: Trace) -> tuple[StageCut, ...]:
    """Return the passes of every stage of a traced step.

    A gradient node belongs to the stage of its origin. A gradient node without an origin, such as a sum of several
    gradients of a tensor, belongs to the earliest stage among the stages of its operands. A node that an earlier pass
    reads moves to the earlier pass: the gradient of a loop makes lists, and the loop fills them.
    """
    roles = dict(trace.owners)
    _assign_gradients(trace, roles)
    _move_forward(trace.graph, roles)
    return _Cutter(trace, roles).stages()


def _assign_gradients(trace: Trace, roles: dict[str, Role]) -> None:
    nodes = trace.graph.nodes
    last = trace.stages - 1
    without: list[Node] = []
    for name in trace.gradient_nodes:
        node = nodes[name]
        origin = nodes.get(node.origin)
        while origin is not None and origin.name not in roles:
            origin = nodes.get(origin.origin)
        if origin is None:
            without.append(node)
        else:
            roles[name] = Role(Kind.BACKWARD, roles[origin.name].stage)
    for node in without:
        owners = [roles[tensor.node] for tensor in node.inputs if tensor.node in roles]
        stages = [owner.stage for owner in owners if owner.kind is not Kind.FEED]
        roles[node.name] = Role(Kind.BACKWARD, min(stages, default=last))


def _move_forward(graph: Graph, roles: dict[str, Role]) -> None:
    """Move each node to the earliest pass among its readers."""
    work = [name for name in graph.nodes if name in roles]
    while work:
        node = graph.nodes[work.pop()]
        for source in (*(tensor.node for tensor in node.inputs), *node.controls):
            if source in roles and roles[source].rank > roles[node.name].rank:
                roles[source] = roles[node.name]
                work.append(source)


class _Cutter:
    """Finds what crosses between passes."""

    def __init__(self, trace: Trace, roles: Mapping[str, Role]) -> None:
        self._trace, self._nodes, self._roles = trace, trace.graph.nodes, roles
        self._changed = _changed_handles(trace.graph, roles)
        effects = [
            name
            for name, role in roles.items()
            if role.kind is Kind.FORWARD and name in self._nodes and runs_for_effect(self._nodes[name])
        ]
        fetches = [*trace.gradients.values(), *trace.results]
        alive = NeededNodes(trace.graph, (), fetches, effects, roles.keys())
        self._order = [node.name for node in alive.in_order()]
        self._readers = self._read_by()

    def stages(self) -> tuple[StageCut, ...]:
        """Return the passes of each stage."""
        count = self._trace.stages
        forward_cuts = [self._crossing_forward(stage) for stage in range(count)]
        arrivals = [self._crossing_back(stage) for stage in range(count)]
        result = []
        for stage in range(count):
            forward, backward = (self._names(Role(kind, stage)) for kind in (Kind.FORWARD, Kind.BACKWARD))
            gives = self._trace.results if stage == count - 1 else forward_cuts[stage + 1]
            gradients = {
                name: tensor for name, tensor in self._trace.gradients.items() if self._gradient_stage(tensor) == stage
            }
            result.append(
                StageCut(
                    forward=forward,
                    backward=backward,
                    takes=forward_cuts[stage],
                    gives=gives,
                    keeps=self._kept(stage, gradients.values()),
                    arrives=arrivals[stage],
                    returns=() if stage == 0 else arrivals[stage - 1],
                    gradients=gradients,
                )
            )
        return tuple(result)

    def _names(self, role: Role) -> tuple[str, ...]:
        """Return the nodes of a pass, with repeated nodes for values at hand."""
        again: dict[str, None] = {}
        for tensor, readers in self._readers.items():
            if role in readers and self._is_at_hand(tensor.node):
                again |= dict.fromkeys(self._made_of(tensor.node))
        return (*again, *(name for name in self._order if self._roles.get(name) == role))

    def _is_at_hand(self, name: str) -> bool:
        """Tell whether any pass can have a node's result by itself.

        So it is with a variable that no pass changes, whose weights lie on the IPU, and with a value of outside of the
        step that stages hand on as it came: it is a constant of the run and travels over no link.
        """
        *_, first = self._made_of(name)
        node = self._nodes[first]
        if node.type == "ReadVariableOp":
            return node.inputs[0] not in self._changed
        return node.type == "Identity" and node.inputs[0].node not in self._roles

    def _made_of(self, name: str) -> list[str]:
        """Return a node and the nodes before it that hand its value on."""
        chain = [name]
        while self._nodes[chain[-1]].type == "Identity" and self._nodes[chain[-1]].inputs[0].node in self._roles:
            chain.append(self._nodes[chain[-1]].inputs[0].node)
        return chain

    def _read_by(self) -> dict[Output, list[Role]]:
        """Return the passes that read each tensor of another pass, in the order in which the tensors are made."""
        readers: dict[Output, list[Role]] = {}
        for name in self._order:
            role = self._roles.get(name)
            if role is None:
                continue
            for tensor in self._nodes[name].inputs:
                maker = self._roles.get(tensor.node)
                if maker is not None and maker != role and self._nodes[tensor.node].type not in SHARED:
                    roles = readers.setdefault(tensor, [])
                    if role not in roles:
                        roles.append(role)
        for tensor in self._trace.gradients.values():
            maker = self._roles.get(tensor.node)
            if maker is not None and maker.kind is not Kind.BACKWARD:
                readers.setdefault(tensor, []).append(Role(Kind.BACKWARD, self._gradient_stage(tensor)))
        place = {name: number for number, name in enumerate(self._order)}
        return dict(sorted(readers.items(), key=lambda item: (place[item[0].node], item[0].number)))

    def _gradient_stage(self, tensor: Output) -> int:
        role = self._roles.get(tensor.node)
        return self._trace.stages - 1 if role is None else role.stage

    def _crossing_forward(self, stage: int) -> tuple[Output, ...]:
        """Return the tensors that earlier stages, or the feed, make and that this stage or a later one reads."""
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if self._is_before(self._roles[tensor.node], stage)
            and not self._is_at_hand(tensor.node)
            and any(reader.stage >= stage for reader in readers if reader.kind is not Kind.FEED)
        )

    @staticmethod
    def _is_before(maker: Role, stage: int) -> bool:
        return maker.kind is Kind.FEED or (maker.kind is Kind.FORWARD and maker.stage < stage)

    def _crossing_back(self, stage: int) -> tuple[Output, ...]:
        """Return the tensors that later stages make and that the backward pass of this or an earlier one reads."""
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if (maker := self._roles[tensor.node]).stage > stage
            and maker.kind is not Kind.FEED
            and not self._is_at_hand(tensor.node)
            and any(reader.kind is Kind.BACKWARD and reader.stage <= stage for reader in readers)
        )

    def _kept(self, stage: int, gradients: Iterable[Output]) -> tuple[Output, ...]:
        """Return what the backward pass of a stage, or of an earlier one, reads of the stage's forward pass."""
        fetched = set(gradients)
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if (maker := self._roles[tensor.node]).kind is not Kind.BACKWARD
            and not self._is_at_hand(tensor.node)
            and (
                any(reader == Role(Kind.BACKWARD, stage) for reader in readers)
                or (maker == Role(Kind.FORWARD, stage) and any(reader.kind is Kind.BACKWARD for reader in readers))
                or tensor in fetched
            )
            and (maker.kind is Kind.FEED or maker.stage <= stage)
        )


def _changed_handles(graph: Graph, names: Collection[str]) -> set[Output]:
    """Return the handles of variables that nodes with an effect take."""
    return {
        handle
        for name in names
        if name in graph.nodes and runs_for_effect(graph.nodes[name])
        for handle in graph.nodes[name].inputs
        if graph.nodes.get(handle.node) is not None and graph.nodes[handle.node].type == "VarHandleOp"
    }
