"""Price a Plan: the one place where a program, its Plan and a System become Costs."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.hardware.system import System
from ipusim.lowering.around import around
from ipusim.model.profile import StageProfile
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.collectives import gradient_sum, update_gathers, weight_gathers
from ipusim.pricing.copies import copy_costs, send_costs
from ipusim.pricing.costs import Costs, HostCosts
from ipusim.pricing.passes import pass_costs, pass_cycles


def price(plan: Plan, program: PipelineProgram, system: System) -> Costs:
    """Return what every pass, update, copy, host transfer, stream and collective of ``plan`` costs on ``system``."""
    halves = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
    kinds = [kind for kind in Pass if kind not in halves or kind in plan.kind]
    asked = around(program, system.replicas)
    copies = copy_costs(plan, program, system)
    summed = gradient_sum(plan, program, system, asked)
    summed_on = () if summed is None else tuple(direction for direction, _ in summed.cost.link_bytes)
    links = {direction: number for number, direction in enumerate(copies.links)}
    sends = send_costs(plan, program, system, links)
    return Costs(
        passes=_passes(kinds, program, system),
        updates=_updates(plan, program, system),
        copies=copies,
        host=_host(program, system),
        pass_streams={key: each for key, each in asked.streams.items() if key[0] in kinds},
        update_streams=asked.updates,
        gradient_sum=summed,
        weight_gathers=weight_gathers(program, system, asked),
        update_gathers=update_gathers(program, system, asked),
        links=tuple(dict.fromkeys((*links, *summed_on))),
        sends=sends,
    )


def _passes(kinds: Sequence[Pass], program: PipelineProgram, system: System) -> dict[tuple[int, int], int]:
    """Return the cycles of each (pass, stage) of these kinds."""
    return {
        (kind, stage): sum(pass_cycles(cost, system.ipu, system.rates) for cost in pass_costs(program, kind, stage))
        for stage in range(program.shape.stages)
        for kind in kinds
    }


def _updates(plan: Plan, program: PipelineProgram, system: System) -> dict[int, int]:
    """Return the cycles of each IPU's weight update, of all its stages.

    On the free system a counted update costs nothing; given cycles are kept, as those of the passes are.
    """
    updates = dict.fromkeys(plan.ipus, 0)
    for ipu, profile in zip(program.shape.mapping, program.stages, strict=True):
        if counts_update(profile, system):
            updates[ipu] += pass_cycles(profile.update, system.ipu, system.rates)
    return updates


def counts_update(profile: StageProfile, system: System) -> bool:
    """Whether a stage's weight update costs anything on ``system``."""
    return not system.free or isinstance(profile.update, int)


def _host(program: PipelineProgram, system: System) -> HostCosts:
    return HostCosts(
        infeed=system.infeed_cycles(program.infeed.element_bytes),
        fill=system.host_fill_cycles(program.infeed.element_bytes),
        outfeed=system.outfeed_cycles(program.outfeed.element_bytes),
        drain=system.host_drain_cycles(program.outfeed.element_bytes),
        call=system.host_call_cycles,
    )
