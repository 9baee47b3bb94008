"""How long each thing of a Plan takes on a System, in whole cycles; the machine itself never rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System
from ipusim.machine.copies import traffic
from ipusim.model.cost import pass_cycles
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import CopyRule, Edge, Plan
from ipusim.pipeline.program import PipelineProgram


@dataclass(frozen=True)
class LinkShare:
    """What one link direction carries of a merged copy: its number (see :func:`durations`), bytes, cycles."""

    link: int
    bytes: int
    cycles: int


@dataclass(frozen=True)
class StepCopy:
    """The copies that follow a time-step.

    Attributes:
        edges: steps of a micro-batch's life along which tensors move, within an IPU or across.
        lead_cycles: synchronisation, overhead and hop latency before the first byte; 0 without a sync.
        links: what each link direction on the routes carries.
        bytes: bytes of all tensors that cross to another IPU.
    """

    edges: tuple[Edge, ...]
    lead_cycles: int
    links: tuple[LinkShare, ...]
    bytes: int


class Stream(NamedTuple):
    """Bytes that are loaded from Streaming Memory, and that are stored there again."""

    load: int = 0
    store: int = 0

    def plus(self, load: int = 0, store: int = 0) -> Stream:
        """Return the stream with more bytes to load and to store."""
        return Stream(self.load + load, self.store + store)


@dataclass(frozen=True)
class Durations:
    """All durations of a program on a system, in cycles of the tile clock.

    Attributes:
        passes: cycles of each (pass, stage).
        update: cycles of the weight update of each IPU that holds a stage.
        copies: the distinct copies that follow time-steps.
        copy_of: for each emitted time-step, which of ``copies`` follows it.
        links: the link directions that carry traffic.
        infeed, host_fill: IPU's read of one infeed element, host's preparation of it.
        outfeed, host_drain: IPU's write of one outfeed element, host's taking of it.
        pass_streams: bytes that come from Streaming Memory before each (pass, stage) and go back after it.
        update_streams: the same of each IPU's weight update.
    """

    passes: dict[tuple[int, int], int]
    update: dict[int, int]
    copies: tuple[StepCopy, ...]
    copy_of: tuple[int, ...]
    links: tuple[LinkDirection, ...]
    infeed: int
    host_fill: int
    outfeed: int
    host_drain: int
    pass_streams: dict[tuple[int, int], Stream]
    update_streams: dict[int, Stream]


def durations(
    plan: Plan, program: PipelineProgram, system: System, links: dict[LinkDirection, int] | None = None
) -> Durations:
    """Price every pass, update, copy and host transfer of ``plan`` on ``system``, copies for all its replicas.

    ``links`` numbers the link directions that carry traffic; those that are new get the next numbers.
    """
    shape = program.shape
    passes: dict[tuple[int, int], int] = {}
    update = dict.fromkeys(plan.ipus, 0)
    for stage, profile in enumerate(program.stages):
        passes[Pass.FORWARD, stage] = passes[Pass.RECOMPUTE, stage] = pass_cycles(profile.forward, system.ipu)
        passes[Pass.BACKWARD, stage] = pass_cycles(profile.backward, system.ipu)
        if program.recomputes_inside(stage):
            again = profile.forward if profile.recompute is None else profile.recompute
            passes[Pass.BACKWARD, stage] += pass_cycles(again, system.ipu)
        # On the free system a counted update costs nothing; given cycles are kept, as those of the passes are.
        if not system.free or isinstance(profile.update, int):
            update[shape.mapping[stage]] += pass_cycles(profile.update, system.ipu)
    sets, copy_of = _edge_sets(plan)
    links = {} if links is None else links
    copies = tuple(_step_copy(plan, program, system, edges, links) for edges in sets)
    pass_streams, update_streams = _streams(plan, program)
    used = {share.link for copy in copies for share in copy.links}
    return Durations(
        passes=passes,
        update=update,
        copies=copies,
        copy_of=copy_of,
        links=tuple(direction for direction, number in links.items() if number in used),
        infeed=system.infeed_cycles(program.infeed.element_bytes),
        host_fill=system.host_fill_cycles(program.infeed.element_bytes),
        outfeed=system.outfeed_cycles(program.outfeed.element_bytes),
        host_drain=system.host_drain_cycles(program.outfeed.element_bytes),
        pass_streams=pass_streams,
        update_streams=update_streams,
    )


def _streams(plan: Plan, program: PipelineProgram) -> tuple[dict[tuple[int, int], Stream], dict[int, Stream]]:
    """Return what passes and weight updates load and store; nothing where nothing is offloaded.

    Accumulators come for the addition of a micro-batch's gradients and go back after it;
    the weight update reads them, and reads and writes the optimizer's state. Activations
    come before each pass that uses them and go after each that makes them; a replica's part of
    the weights comes before every pass, and goes back after the weight update that changed it.
    """
    passes = _activation_streams(program) if program.offload.activations else {}
    for stage, profile in enumerate(program.stages):
        part = program.offload.stored_weight_bytes(profile)
        for kind in (Pass.FORWARD, Pass.BACKWARD, Pass.RECOMPUTE) if part else ():
            passes[kind, stage] = passes.get((kind, stage), Stream()).plus(load=part)
    update: dict[int, Stream] = {}
    if not plan.shape.training:
        return passes, update
    for stage, profile in enumerate(program.stages):
        state, sums = program.offload.stored_state_bytes(profile), program.offload.accumulator_bytes(profile)
        state += program.offload.stored_weight_bytes(profile)
        if sums:
            passes[Pass.BACKWARD, stage] = passes.get((Pass.BACKWARD, stage), Stream()).plus(sums, sums)
        if state or sums:
            ipu = plan.shape.mapping[stage]
            update[ipu] = update.get(ipu, Stream()).plus(state + sums, state)
    return passes, update


def _activation_streams(program: PipelineProgram) -> dict[tuple[int, int], Stream]:
    """Return what passes load and store of activations and gradients; the last stage keeps its own between its two."""
    shape = program.shape
    passes: dict[tuple[int, int], Stream] = {}
    for stage in range(shape.stages):
        before, after = shape.neighbours(stage, -1), shape.neighbours(stage, 1)
        kept = program.kept_bytes(stage) if after else 0
        arriving = sum(program.sent_bytes(other, stage) for other in before)
        leaving = sum(program.sent_bytes(stage, other) for other in after)
        passes[Pass.FORWARD, stage] = Stream(arriving, kept + leaving)
        if shape.training:
            gradients = sum(program.sent_bytes(other, stage) for other in after)
            back = sum(program.sent_bytes(stage, other) for other in before)
            passes[Pass.BACKWARD, stage] = Stream(kept + gradients, back)
    return passes


def _edge_sets(plan: Plan) -> tuple[tuple[tuple[Edge, ...], ...], tuple[int, ...]]:
    """Return the distinct sets of edges that are copied together, and which set follows each time-step."""
    if plan.copy_rule is CopyRule.MERGED:
        return (plan.edges(),), (0,) * plan.emitted
    edges = {edge.source_step: edge for edge in plan.edges()}
    made: list[set[Edge]] = [set() for _ in range(plan.emitted)]
    for time_step, kind, stage in zip(plan.time_step.tolist(), plan.kind.tolist(), plan.stage.tolist(), strict=True):
        edge = edges.get(plan.shape.step_of(kind, stage))
        if edge is not None:
            made[time_step].add(edge)
    index: dict[tuple[Edge, ...], int] = {}
    copy_of = tuple(index.setdefault(tuple(sorted(after)), len(index)) for after in made)
    return tuple(index), copy_of


def _step_copy(
    plan: Plan, program: PipelineProgram, system: System, edges: tuple[Edge, ...], links: dict[LinkDirection, int]
) -> StepCopy:
    """Price one set of edges; a set that crosses no IPU syncs only under Sequential, and never on one IPU."""
    crossing = traffic(program, edges, system)
    if not crossing and (plan.copy_rule is not CopyRule.EACH_STAGE or len(plan.ipus) == 1):
        return StepCopy(edges, 0, (), 0)
    cost = system.merged_copy(crossing)
    shares = tuple(
        LinkShare(links.setdefault(load.direction, len(links)), load.bytes, load.cycles) for load in cost.links
    )
    return StepCopy(edges, cost.lead_cycles, shares, sum(crossing.values()))
