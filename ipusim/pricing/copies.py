"""Which bytes go from which IPU to which when the tensors of one step move to the next, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from ipusim.base.cache import shared
from ipusim.hardware.formulas import Sum
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import CopyRule, Edge
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.costs import CopyCosts, LinkShare, Send, StepCopy

#: What is sent: by replica, copy of the pipeline, stage, and stage that it goes to.
Sends = dict[tuple[int, int, int, int], Send]
#: Passes behind which nothing is copied.
_HANDING_ON_NOTHING: Final = (Pass.RECOMPUTE, Pass.WEIGHT_GRADIENT)


class StageCopy(NamedTuple):
    """One stage's tensor on its way to another stage: stage numbers, and bytes of one micro-batch."""

    source: int
    target: int
    bytes: int


def stage_copies(program: PipelineProgram, edge: Edge) -> Iterator[StageCopy]:
    """Yield the copies along ``edge`` for one micro-batch, within an IPU or across.

    Every stage of a step sends to every stage of the next. The last forward hands nothing
    over to the first backward: both are the same stage's.
    """
    shape = program.shape
    for source in shape.stages_of_step(edge.source_step):
        for target in shape.stages_of_step(edge.target_step):
            size = 0 if edge.source_step == shape.positions - 1 else program.sent_bytes(source, target)
            yield StageCopy(source, target, size)


def traffic(program: PipelineProgram, edges: Sequence[Edge], system: System) -> dict[tuple[int, int], int]:
    """Return the bytes that cross from each logical IPU to each other one when all ``edges`` are copied.

    Every replica of ``system`` copies its own.
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
    """Price the copies behind the time-steps of ``plan`` on ``system``, for all its replicas.

    They meet all together, or each replica by itself where the program says so. Copies are priced once in a
    shared cache.
    """
    if not plan.sync.meets:
        return CopyCosts((), (), ())
    sets, copy_of = _edge_sets(plan)
    meetings, links = shared()(_meetings, sets, plan.copy_rule, program, system)
    return CopyCosts(meetings, copy_of, links)


def _meetings(
    sets: tuple[tuple[Edge, ...], ...], rule: CopyRule, program: PipelineProgram, system: System
) -> tuple[tuple[tuple[StepCopy, ...], ...], tuple[LinkDirection, ...]]:
    """Return the copies of each set of edges for each group of replicas that meets, and the links that carry them."""
    alone = system.replicas > 1 and program.sync_replicas_independently
    devices = [system.replica(number) for number in range(system.replicas)] if alone else [system]
    links: dict[LinkDirection, int] = {}
    copies = tuple(tuple(_step_copy(rule, program, device, edges, links) for edges in sets) for device in devices)
    return copies, tuple(links)


def send_costs(
    plan: Plan,
    program: PipelineProgram,
    system: System,
    links: dict[LinkDirection, int],
) -> Sends:
    """Price what each replica of ``system`` sends from stage to stage in point-to-point, each tensor by itself.

    It costs what a merged copy of it alone would cost, without the meeting of all IPUs (assumed: an idealised
    machine). ``links`` numbers the link directions; those that are new get the next numbers. Sends that are priced in
    the shared cache are taken from there.
    """
    if plan.sync.meets:
        return {}
    sends, links_then = shared()(_sends, plan.edges(), program, system, tuple(links))
    links |= {direction: number for number, direction in enumerate(links_then)}
    return sends


def _sends(
    edges: tuple[Edge, ...], program: PipelineProgram, system: System, known: tuple[LinkDirection, ...]
) -> tuple[Sends, tuple[LinkDirection, ...]]:
    """Return what is sent along ``edges``, and the link directions by number: those ``known``, then the others."""
    links = {direction: number for number, direction in enumerate(known)}
    sends: Sends = {}
    for (number, mapping), edge in product(enumerate(program.shape.copies), edges):
        for copy in stage_copies(program, edge):
            source, target = mapping[copy.source], mapping[copy.target]
            if source == target or not copy.bytes:
                continue
            for replica, first in enumerate(range(0, system.count, system.shards)):
                cost = system.merged_copy({(first + source, first + target): copy.bytes})
                sends[replica, number, copy.source, copy.target] = Send(
                    copy.bytes,
                    Sum(tuple((term, 1) for term in laws.fixed_terms(cost.fixed._replace(sync_cycles=0)))),
                    tuple(links.setdefault(load.direction, len(links)) for load in cost.links),
                    laws.COPY_LINK(cost.transfer_cycles),
                )
    return sends, tuple(links)


def _edge_sets(plan: Plan) -> tuple[tuple[tuple[Edge, ...], ...], tuple[int, ...]]:
    """Return the distinct sets of edges that are copied together, and which set follows each time-step."""
    if plan.copy_rule is CopyRule.MERGED:
        return (plan.edges(),), (0,) * plan.emitted
    shape, edges = plan.shape, {edge.source_step: edge for edge in plan.edges()}
    step_of = np.array([[shape.step_of(kind, stage) for stage in range(shape.stages)] for kind in Pass])
    made: list[tuple[int, ...]] = [()] * plan.emitted
    handing = ~any_of(plan.kind, _HANDING_ON_NOTHING)
    for key in np.unique((plan.time_step * shape.steps + step_of[plan.kind, plan.stage])[handing]).tolist():
        time_step, step = divmod(key, shape.steps)
        if step in edges:
            made[time_step] = (*made[time_step], step)
    index: dict[tuple[int, ...], int] = {}
    copy_of = tuple([index.setdefault(after, len(index)) for after in made])
    return tuple(tuple(edges[step] for step in after) for after in index), copy_of


def _step_copy(
    rule: CopyRule, program: PipelineProgram, system: System, edges: tuple[Edge, ...], links: dict[LinkDirection, int]
) -> StepCopy:
    """Price one set of edges; a set that crosses no IPU syncs only under Sequential, and never on one IPU.

    ``links`` numbers the link directions that carry traffic; those that are new get the next numbers.
    """
    crossing = traffic(program, edges, system)
    if not crossing and (rule is not CopyRule.EACH_STAGE or len(set(program.shape.mapping)) == 1):
        return StepCopy(edges)
    cost = system.merged_copy(crossing)
    shares = tuple(
        LinkShare(links.setdefault(load.direction, len(links)), load.bytes, load.cycles) for load in cost.links
    )
    return StepCopy(edges, cost.fixed, shares, sum(crossing.values()))
