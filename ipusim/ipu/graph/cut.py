"""Cuts a traced training step, or inference, into passes of stages, and finds the tensors that cross between passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import accumulate
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
        stages: number of stages, each of concurrent ones counted.
        uncounted: names of nodes that stand for work of the host, and cost IPUs nothing.
        parts: number of concurrent stages at each position of the pipeline; empty for one stage at each.
        handed: tensors of forward passes and of the feed that the weight update reads, with the values of the last
            micro-batch.
    """

    graph: Graph
    owners: Mapping[str, Role]
    gradient_nodes: Sequence[str]
    gradients: Mapping[str, Output]
    results: tuple[Output, ...]
    stages: int
    uncounted: Collection[str] = ()
    parts: tuple[int, ...] = ()
    handed: tuple[Output, ...] = ()

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the stages at each position."""
        ends = list(accumulate(self.parts or (1,) * self.stages))
        return tuple(tuple(range(start, end)) for start, end in zip([0, *ends], ends, strict=False))

    @property
    def position_of(self) -> tuple[int, ...]:
        """The position of each stage."""
        return tuple(position for position, stages in enumerate(self.positions) for _ in stages)


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
        packs: for each stage at the position before, the number of its outputs and those of ``returns`` that it
            takes, in a pipeline with concurrent stages; None in other pipelines.
        sums: nodes that are not in the trace: sums of the gradients of a variable that the stage uses several times.
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
    """Return a graph with the sums of gradients of these stages."""
    added = {name: node for one in cuts for name, node in one.sums.items()}
    return replace(graph, nodes={**graph.nodes, **added}) if added else graph


def cut(trace: Trace) -> tuple[StageCut, ...]:
    """Return the passes of every stage of a traced step.

    A gradient node belongs to the stage of its origin. A gradient node without an origin, such as a sum of several
    gradients of a tensor, belongs to the earliest stage among the stages of its operands; of concurrent stages, to the
    stage before that reads it. A node that an earlier pass reads moves to the earlier pass: the gradient of a loop
    makes lists, and the loop fills them. Where several stages use a variable, each makes its part of the gradient.
    """
    roles = dict(trace.owners)
    _assign_gradients(trace, roles)
    _move_forward(trace.graph, roles)
    return _Cutter(trace, roles).stages()


def _assign_gradients(trace: Trace, roles: dict[str, Role]) -> None:
    nodes, position_of = trace.graph.nodes, trace.position_of
    without: list[Node] = []
    readers: dict[str, list[str]] = {}
    for name in trace.gradient_nodes:
        node = nodes[name]
        for tensor in node.inputs:
            readers.setdefault(tensor.node, []).append(name)
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
        stage = min(stages, default=trace.stages - 1)
        position = position_of[stage]
        if any(other != stage and position_of[other] == position for other in stages):
            reading = [roles[name].stage for name in readers.get(node.name, ()) if name in roles]
            before = [other for other in reading if position_of[other] < position]
            stage = max(before, default=trace.positions[position - 1][0])
        roles[node.name] = Role(Kind.BACKWARD, stage)


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
        self._trace, self._nodes, self._roles = trace, dict(trace.graph.nodes), dict(roles)
        self._positions, self._position_of = trace.positions, trace.position_of
        self._gradients = self._gradients_of_stages()
        self._changed = _changed_handles(trace.graph, roles)
        effects = [
            name
            for name, role in roles.items()
            if role.kind is Kind.FORWARD and name in self._nodes and runs_for_effect(self._nodes[name])
        ]
        fetches = [*(tensor for _, _, tensor in self._gradients), *trace.results, *trace.handed]
        alive = NeededNodes(replace(trace.graph, nodes=self._nodes), (), fetches, effects, self._roles.keys())
        self._order = [node.name for node in alive.in_order()]
        self._readers = self._read_by()

    def stages(self) -> tuple[StageCut, ...]:
        """Return the passes of each stage."""
        gives = [self._given(stage) for stage in range(self._trace.stages)]
        arrivals = [self._crossing_back(stage) for stage in range(self._trace.stages)]
        result = []
        for stage, position in enumerate(self._position_of):
            forward, backward = (self._names(Role(kind, stage)) for kind in (Kind.FORWARD, Kind.BACKWARD))
            before = self._positions[position - 1] if position else ()
            returned = {each: self._returned(stage, arrivals[each]) for each in before}
            gradients = {name: tensor for owner, name, tensor in self._gradients if owner == stage}
            several = len(before) > 1
            packs = tuple((len(gives[each]) if several else 1, tensors) for each, tensors in returned.items())
            result.append(
                StageCut(
                    forward=forward,
                    backward=backward,
                    takes=tuple(tensor for each in before for tensor in gives[each])
                    or self._crossing_forward(position),
                    gives=gives[stage],
                    keeps=self._kept(stage, gradients.values()),
                    arrives=arrivals[stage],
                    returns=tuple(tensor for tensors in returned.values() for tensor in tensors),
                    gradients=gradients,
                    packs=packs if self._trace.parts else None,
                    sums={name: self._nodes[name] for name in backward if name not in self._trace.graph.nodes},
                )
            )
        return tuple(result)

    def _given(self, stage: int) -> tuple[Output, ...]:
        """Return what a stage gives; the first of concurrent stages hands on what comes from stages before."""
        position = self._position_of[stage]
        if position == len(self._positions) - 1:
            return (*self._trace.results, *self._trace.handed)
        first = stage == self._positions[position][0]
        return tuple(
            tensor
            for tensor in self._crossing_forward(position + 1)
            if self._roles[tensor.node] == Role(Kind.FORWARD, stage)
            or (first and self._is_before(self._roles[tensor.node], position))
        )

    def _returned(self, stage: int, arriving: Sequence[Output]) -> tuple[Output, ...]:
        """Return the part of what arrives at an earlier stage that comes from this stage, or through it."""
        position = self._position_of[stage]
        first = stage == self._positions[position][0]
        makers = [(tensor, self._roles[tensor.node].stage) for tensor in arriving]
        return tuple(
            tensor for tensor, maker in makers if maker == stage or (first and self._position_of[maker] > position)
        )

    def _gradients_of_stages(self) -> list[tuple[int, str, Output]]:
        """Return stage, variable and tensor of each gradient, apart for each stage that uses a variable."""
        found: list[tuple[int, str, Output]] = []
        for name, tensor in self._trace.gradients.items():
            node = self._nodes[tensor.node]
            by_stage: dict[int, list[Output]] = {}
            if node.type == "AddN" and not node.origin and node.name in self._roles:
                for each in node.inputs:
                    by_stage.setdefault(self._gradient_stage(each), []).append(each)
            if len(by_stage) < 2:
                found.append((self._gradient_stage(tensor), name, tensor))
                continue
            for stage, tensors in sorted(by_stage.items()):
                part = replace(node, name=f"{node.name}/stage{stage}", inputs=tuple(tensors))
                if len(tensors) > 1:
                    self._nodes[part.name], self._roles[part.name] = part, Role(Kind.BACKWARD, stage)
                found.append((stage, name, Output(part.name, 0) if len(tensors) > 1 else tensors[0]))
        return found

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
        wanted = [(tensor, Role(Kind.BACKWARD, stage)) for stage, _, tensor in self._gradients]
        last = Role(Kind.FORWARD, self._trace.stages - 1)
        for tensor, reader in [*wanted, *((each, last) for each in (*self._trace.results, *self._trace.handed))]:
            maker = self._roles.get(tensor.node)
            if maker is not None and maker != reader and maker.kind is not Kind.BACKWARD:
                roles = readers.setdefault(tensor, [])
                if reader not in roles:
                    roles.append(reader)
        place = {name: number for number, name in enumerate(self._order)}
        return dict(sorted(readers.items(), key=lambda item: (place[item[0].node], item[0].number)))

    def _gradient_stage(self, tensor: Output) -> int:
        role = self._roles.get(tensor.node)
        return self._trace.stages - 1 if role is None else role.stage

    def _crossing_forward(self, position: int) -> tuple[Output, ...]:
        """Return the tensors that stages before a position, or the feed, make and that stages from there on read."""
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if self._is_before(self._roles[tensor.node], position)
            and not self._is_at_hand(tensor.node)
            and any(self._position_of[reader.stage] >= position for reader in readers if reader.kind is not Kind.FEED)
        )

    def _is_before(self, maker: Role, position: int) -> bool:
        return maker.kind is Kind.FEED or (maker.kind is Kind.FORWARD and self._position_of[maker.stage] < position)

    def _crossing_back(self, stage: int) -> tuple[Output, ...]:
        """Return the tensors that later stages make and that the backward pass of this or an earlier one reads.

        What stages at earlier positions read comes through the first of concurrent stages.
        """
        position = self._position_of[stage]
        first = stage == self._positions[position][0]
        return tuple(
            tensor
            for tensor, readers in self._readers.items()
            if (maker := self._roles[tensor.node]).kind is not Kind.FEED
            and self._position_of[maker.stage] > position
            and not self._is_at_hand(tensor.node)
            and any(
                reader.kind is Kind.BACKWARD
                and (reader.stage == stage or (first and self._position_of[reader.stage] < position))
                for reader in readers
            )
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
