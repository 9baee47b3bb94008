"""Price the copies between IPUs: tensors that move from step to step, and moved activations.

A step is a pass of a micro-batch through one position of the pipeline; an edge leads from a step to the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from ipusim.base.cache import shared
from ipusim.hardware.formulas import Sum
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.moves import Way, moves_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import CopyRule, Edge
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.costs import CopyCosts, LinkShare, Send, StepCopy

#: Sends by (replica, copy of the pipeline, source stage, target stage).
Sends = dict[tuple[int, int, int, int], Send]
#: Moves of activations by (replica, IPU in the replica, stage, way: out or back).
Moves = dict[tuple[int, int, int, int], Send]
#: Bytes moved with a merged copy, by (source IPU, target IPU) in a replica.
MovedTensors = tuple[tuple[tuple[int, int], int], ...]
#: Passes without a subsequent copy.
_PASSES_WITHOUT_COPY: Final = (Pass.RECOMPUTE, Pass.WEIGHT_GRADIENT)


class StageCopy(NamedTuple):
    """Tensor travelling between two stages: stage numbers, and bytes per micro-batch."""

    source: int
    target: int
    bytes: int


def stage_copies(program: PipelineProgram, edge: Edge) -> Iterator[StageCopy]:
    """Yield the copies along ``edge`` for one micro-batch, including copies within an IPU.

    Every stage of a step sends to every stage of the next step. The last forward pass sends nothing to the first
    backward pass, since both belong to the last stage.
    """
    shape = program.shape
    for source in shape.stages_of_step(edge.source_step):
        for target in shape.stages_of_step(edge.target_step):
            size = 0 if edge.source_step == shape.positions - 1 else program.sent_bytes(source, target)
            yield StageCopy(source, target, size)


def traffic(program: PipelineProgram, edges: Sequence[Edge], system: System) -> dict[tuple[int, int], int]:
    """Return the bytes between logical IPUs when every replica of ``system`` copies ``edges``.

    Returns:
        Bytes by (source IPU, target IPU); copies within an IPU do not count.
    """
    total: dict[tuple[int, int], int] = {}
    for mapping, edge in product(program.shape.copies, edges):
        for copy in stage_copies(program, edge):
            source, target = mapping[copy.source], mapping[copy.target]
            if source != target:
                for first in range(0, system.count, system.shards):
                    pair = first + source, first + target
                    total[pair] = total.get(pair, 0) + copy.bytes
    return total


def copy_costs(plan: Plan, program: PipelineProgram, system: System) -> CopyCosts:
    """Price the copies that follow ``plan``'s time-steps, for every replica of ``system``.

    Replicas meet together, or separately if the program syncs replicas independently. A shared cache keeps
    the prices of copies.
    """
    if not plan.sync.has_time_steps:
        return CopyCosts((), (), ())
    sets, copy_of = _edge_sets(plan)
    contents: list[tuple[tuple[Edge, ...], MovedTensors]] = [(edges, ()) for edges in sets]
    if step_moves := _moved_with_copies(plan, program):
        index: dict[tuple[int, MovedTensors], int] = {}
        copy_of = tuple(
            [index.setdefault((number, step_moves.get(step, ())), len(index)) for step, number in enumerate(copy_of)]
        )
        contents = [(sets[number], more) for number, more in index]
    by_group, links = shared()(_copies_by_group, tuple(contents), plan.copy_rule, program, system)
    return CopyCosts(by_group, copy_of, links)


def _moved_with_copies(plan: Plan, program: PipelineProgram) -> dict[int, MovedTensors]:
    """Return the bytes of activations moved to and from partners, by time-step."""
    activations = program.moved_activations
    if activations is None or activations.to != "partner":
        return {}
    moves: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for move in moves_of(plan.table, plan.shape, activations, has_time_steps=True):
        partner, size = activations.receiving_ipu(move.ipu, plan.shape.mapping), program.saved_bytes(move.stage)
        moves[int(plan.time_step[move.forward_row])][move.ipu, partner] += size
        moves[int(plan.time_step[move.use_row]) - 1][partner, move.ipu] += size
    return {step: tuple(sorted(traffic.items())) for step, traffic in moves.items()}


def move_costs(plan: Plan, program: PipelineProgram, system: System, links: dict[LinkDirection, int]) -> Moves:
    """Price single moves of stage activations.

    A move to Streaming Memory has bytes and no cycles, since IPUs share the bandwidth at run time; on the free system
    it has 0 bytes. In point-to-point, a move to a partner costs the same as a sent tensor. In lock-step the merged copy
    carries the bytes.

    Args:
        links: numbers of link directions; new directions are added.
    """
    activations, shape = program.moved_activations, plan.shape
    moves: Moves = {}
    if activations is None:
        return moves
    for (stage, ipu), replica in product(shape.homes, range(system.replicas)):
        receiver, size = activations.receiving_ipu(ipu, shape.mapping), program.saved_bytes(stage)
        if stage not in (activations.stages or ()) or (activations.to == "partner" and receiver == ipu):
            continue
        for way in Way:
            send = Send()
            if activations.to == "streaming_memory":
                send = Send(0 if system.free else size)
            elif not plan.sync.has_time_steps:
                first = replica * system.shards
                pair = (first + ipu, first + receiver) if way is Way.OUT else (first + receiver, first + ipu)
                send = _send(pair, size, system, links)
            moves[replica, ipu, stage, way] = send
    return moves


def _copies_by_group(
    sets: tuple[tuple[tuple[Edge, ...], MovedTensors], ...], rule: CopyRule, program: PipelineProgram, system: System
) -> tuple[tuple[tuple[StepCopy, ...], ...], tuple[LinkDirection, ...]]:
    """Return the copies by group of meeting replicas and edge set, and the link directions used."""
    is_independent = system.replicas > 1 and program.sync_replicas_independently
    devices = [system.replica(number) for number in range(system.replicas)] if is_independent else [system]
    links: dict[LinkDirection, int] = {}
    copies = tuple(tuple(_step_copy(rule, program, device, content, links) for content in sets) for device in devices)
    return copies, tuple(links)


def send_costs(
    plan: Plan,
    program: PipelineProgram,
    system: System,
    links: dict[LinkDirection, int],
) -> Sends:
    """Price the tensors sent between stages in point-to-point, for every replica of ``system``.

    A send costs the same as a merged copy of a single tensor, minus the meeting of IPUs (assumed: an idealised
    machine). A shared cache keeps the prices of sends.

    Args:
        links: numbers of link directions; new directions are added.
    """
    if plan.sync.has_time_steps:
        return {}
    sends, links_then = shared()(_sends, plan.edges(), program, system, tuple(links))
    links |= {direction: number for number, direction in enumerate(links_then)}
    return sends


def _sends(
    edges: tuple[Edge, ...], program: PipelineProgram, system: System, directions: tuple[LinkDirection, ...]
) -> tuple[Sends, tuple[LinkDirection, ...]]:
    """Return the sends along ``edges``, and the numbered link directions: ``directions``, then new ones."""
    links = {direction: number for number, direction in enumerate(directions)}
    sends: Sends = {}
    for (number, mapping), edge in product(enumerate(program.shape.copies), edges):
        for copy in stage_copies(program, edge):
            source, target = mapping[copy.source], mapping[copy.target]
            if source == target or not copy.bytes:
                continue
            for replica, first in enumerate(range(0, system.count, system.shards)):
                pair = first + source, first + target
                sends[replica, number, copy.source, copy.target] = _send(pair, copy.bytes, system, links)
    return sends, tuple(links)


def _send(pair: tuple[int, int], size: int, system: System, links: dict[LinkDirection, int]) -> Send:
    """Price a single send between two IPUs."""
    cost = system.merged_copy({pair: size})
    return Send(
        size,
        Sum(tuple((term, 1) for term in laws.fixed_terms(cost.fixed._replace(sync_cycles=0)))),
        tuple(links.setdefault(load.direction, len(links)) for load in cost.links),
        laws.COPY_LINK(cost.transfer_cycles),
    )


def _edge_sets(plan: Plan) -> tuple[tuple[tuple[Edge, ...], ...], tuple[int, ...]]:
    """Return the distinct sets of edges, and the set's index for every time-step."""
    if plan.copy_rule is CopyRule.MERGED:
        return (plan.edges(),), (0,) * plan.emitted
    shape, edges = plan.shape, {edge.source_step: edge for edge in plan.edges()}
    step_of = np.array([[shape.step_of(kind, stage) for stage in range(shape.stages)] for kind in Pass])
    steps_of: list[tuple[int, ...]] = [()] * plan.emitted
    has_copy = ~any_of(plan.kind, _PASSES_WITHOUT_COPY)
    for key in np.unique((plan.time_step * shape.steps + step_of[plan.kind, plan.stage])[has_copy]).tolist():
        time_step, step = divmod(key, shape.steps)
        if step in edges:
            steps_of[time_step] = (*steps_of[time_step], step)
    index: dict[tuple[int, ...], int] = {}
    copy_of = tuple([index.setdefault(steps, len(index)) for steps in steps_of])
    return tuple(tuple(edges[step] for step in steps) for steps in index), copy_of


def _step_copy(
    rule: CopyRule,
    program: PipelineProgram,
    system: System,
    content: tuple[tuple[Edge, ...], MovedTensors],
    links: dict[LinkDirection, int],
) -> StepCopy:
    """Price the copy along a set of edges, together with moves of activations to partner IPUs.

    If no edge leads to another IPU, the IPUs sync only under Sequential. A single IPU with all stages never syncs.

    Args:
        links: numbers of link directions with traffic; new directions are added.
    """
    edges, moves = content
    crossing = traffic(program, edges, system)
    for ((source, target), size), first in product(moves, range(0, system.count, system.shards)):
        pair = first + source, first + target
        crossing[pair] = crossing.get(pair, 0) + size
    if not crossing and (rule is not CopyRule.EACH_STAGE or len(set(program.shape.mapping)) == 1):
        return StepCopy(edges)
    cost = system.merged_copy(crossing)
    shares = tuple(
        LinkShare(links.setdefault(load.direction, len(links)), load.bytes, load.cycles) for load in cost.links
    )
    return StepCopy(edges, cost.fixed, shares, sum(crossing.values()))
