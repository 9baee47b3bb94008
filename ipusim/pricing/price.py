"""Price a Plan: return the cycles of every pass, copy and transfer of a program on a System, as Costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ipusim.base.cache import shared
from ipusim.hardware.formulas import Cycles, Sum, total
from ipusim.hardware.system import System
from ipusim.lowering.side_instructions import side_instructions
from ipusim.model.profile import PassCost, StageProfile
from ipusim.model.work import part_of
from ipusim.pipeline.offload import Offload
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import collectives, laws
from ipusim.pricing.copies import copy_costs, move_costs, send_costs
from ipusim.pricing.costs import Costs, HostCosts, TableCosts
from ipusim.pricing.host_calls import host_calls
from ipusim.pricing.passes import pass_costs, pass_cycles


def price_plan(plan: Plan, program: PipelineProgram, system: System) -> Costs:
    """Return the cost of every pass, update, copy, host transfer, stream and collective of ``plan`` on ``system``.

    No price depends on the number of micro-batches. The shared cache therefore serves equal programs with other counts.
    """
    cache = shared()
    halves = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
    kinds = tuple(kind for kind in Pass if kind not in halves or kind in plan.kind)
    program = cache.first_equal(_without_schedule_options(program))
    # Prices assume full speed. Dead cables are the exception: the topology lacks them.
    system = cache.first_equal(replace(system, disturbances=()))
    side = cache(side_instructions, program, system.replicas, system.hosts)
    copies = copy_costs(plan, program, system)
    gradient_sum = cache(collectives.gradient_sum, program, system, side)
    price_copy_sum = cache(collectives.copy_sum, program, system, side)
    sums = [collective for collective in (price_copy_sum, gradient_sum) if collective is not None]
    summed_on = [direction for collective in sums for direction, _ in collective.cost.link_bytes]
    links = {direction: number for number, direction in enumerate(copies.links)}
    sends = send_costs(plan, program, system, links)
    moves = move_costs(plan, program, system, links)
    return Costs(
        passes=cache(_passes, kinds, program, system),
        updates=cache(_updates, program, system),
        copies=copies,
        host=_host(program, system),
        tables=_tables(program, system),
        pass_streams={key: stream for key, stream in side.streams.items() if key[0] in kinds},
        update_streams=side.updates,
        copy_sum=price_copy_sum,
        gradient_sum=gradient_sum,
        host_sum=cache(collectives.host_sum, program, system, side),
        host_update=cache(collectives.host_update, program, system, side),
        weight_gathers=cache(collectives.weight_gathers, program, system, side),
        update_gathers=cache(collectives.update_gathers, program, system, side),
        collectives=cache(collectives.pass_collectives, kinds, program, system, side),
        host_calls=cache(host_calls, kinds, program, system, side),
        links=tuple(dict.fromkeys((*links, *summed_on))),
        sends=sends,
        moves=moves,
        instructions=_instructions(plan, program, system),
        overlapped=program.overlapped,
    )


def _without_schedule_options(program: PipelineProgram) -> PipelineProgram:
    """Return ``program`` without options that do not affect prices: micro-batch count, executions and schedule."""
    return replace(program, shape=program.shape.fewest_micro_batches, repeat_count=1, schedule="", name="")


def _passes(kinds: tuple[Pass, ...], program: PipelineProgram, system: System) -> dict[tuple[int, int], int]:
    """Return the cycles of each (pass, stage) of the kinds."""
    return {
        (kind, stage): Sum(
            tuple((pass_cycles(cost, system.ipu, system.rates), 1) for cost in pass_costs(program, kind, stage))
        )
        for stage in range(program.shape.stages)
        for kind in kinds
    }


def _updates(program: PipelineProgram, system: System) -> dict[int, int]:
    """Return the weight update cycles per IPU, summed over stages.

    On the free system, an update costs nothing unless the scenario gives its cycles, like passes. If the host updates
    weights, the IPUs' updates cost nothing.
    """
    updates: dict[int, list[tuple[int, int]]] = {ipu: [] for ipu in sorted(program.shape.mapping)}
    for stage, ipu in program.shape.homes:
        profile = program.stages[stage]
        if counts_update(profile, program, system):
            updates[ipu].append((pass_cycles(_update_of(profile, program.offload), system.ipu, system.rates), 1))
    return {ipu: Sum(tuple(parts)) for ipu, parts in updates.items()}


def _update_of(profile: StageProfile, offload: Offload) -> PassCost:
    """Return the cost of a stage's weight update per replica, sharded or whole."""
    if isinstance(profile.update, int) or not offload.sharded_update:
        return profile.update
    variables = zip(profile.update, offload.variables_of(profile), strict=True)
    return tuple(part_of(work, offload.replicas) if variable.sharded else work for work, variable in variables)


def counts_update(profile: StageProfile, program: PipelineProgram, system: System) -> bool:
    """Whether a stage's weight update costs its IPU any cycles on ``system``."""
    return not program.offload.variables_on_host and (not system.free or isinstance(profile.update, int))


def _instructions(plan: Plan, program: PipelineProgram, system: System) -> dict[tuple[int, int], int]:
    """Return the cycles by (code, stage) of instructions with a law; stage -1 without a stage."""
    return {
        (code, stage): law(law.cycles(program, system, stage))
        for code, law in laws.INSTRUCTION_LAWS.items()
        if law.cycles is not None
        for stage in sorted(plan.instructions_of(code))
    }


def _host(program: PipelineProgram, system: System) -> HostCosts:
    rates = system.rates
    weights = program.offload.offchip_weight_bytes(program.stages)
    state = rates.offchip_state_time_ns(system.framework or "", weights, streamed_state_bytes(program, system))
    session_ns = system.session_ns(program.updated_variables)
    return HostCosts(
        infeed=laws.INFEED(system.infeed_cycles(program.infeed.element_bytes)),
        fill=laws.FILL(system.host_fill_cycles(program.infeed.element_bytes)),
        outfeed=laws.OUTFEED(system.outfeed_cycles(program.outfeed.element_bytes)),
        drain=laws.DRAIN(system.host_drain_cycles(program.outfeed.element_bytes)),
        call=laws.HOST_CALL(system.framework_cycles(session_ns)),
        state=laws.OFFCHIP_STATE(system.framework_cycles(state)),
        data=laws.DATA(system.host_data_cycles(program.infeed.element_bytes)) or None,
    )


def streamed_state_bytes(program: PipelineProgram, system: System) -> int:
    """Return the bytes of optimizer state that the machine with most of it loads and stores at a weight update."""
    streamed = Counter[int]()
    for stage, ipu in program.shape.homes:
        state_bytes = program.offload.stored_state_bytes(program.stages[stage])
        for first in range(0, system.count, system.shards):
            streamed[system.streaming_memory_of(first + ipu)] += 2 * state_bytes
    return max(streamed.values())


def _tables(program: PipelineProgram, system: System) -> dict[int, TableCosts]:
    """Return the costs of stages with host tables, at the host's buffer rates."""
    tables = {}
    for stage, profile in enumerate(program.stages):
        table_bytes = profile.tables
        if table_bytes.rows:
            ids, rows = system.host_drain_cycles(table_bytes.ids), system.host_fill_cycles(table_bytes.rows)
            tables[stage] = TableCosts(
                ids=laws.ROWS_OUT(system.outfeed_cycles(table_bytes.ids)),
                gather=laws.GATHER_ROWS(Cycles(total, ids, rows)),
                rows=laws.ROWS_IN(system.infeed_cycles(table_bytes.rows)),
                gradients=laws.ROWS_OUT(system.outfeed_cycles(table_bytes.returned_bytes)),
                apply=laws.APPLY_ROWS(system.host_drain_cycles(table_bytes.returned_bytes)),
                bytes=table_bytes,
            )
    return tables
