"""Divide a run's time into parts, the waterfall: timing-only runs remove part after part.

A removed part costs 0 cycles; all other costs and the Plan stay the same. The last simulation has balanced stages and
only passes: the cycles of its busiest IPU are useful compute, and its idle time is divided into gaps while the pipeline
is full (gaps in main), and fill and drain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from ipusim.analysis.gaps import gaps_in_main
from ipusim.analysis.throughput import throughput_of
from ipusim.analysis.utilisation import cycles_by_kind
from ipusim.analysis.waterfall import Waterfall
from ipusim.hardware.copies import NOTHING_FIXED
from ipusim.hardware.system import System
from ipusim.lowering.streams import Stream
from ipusim.pipeline.ops import Pass
from ipusim.pricing.costs import Costs, ReplicaCollective, Send
from ipusim.pricing.exchanges import HostExchange
from ipusim.pricing.passes import pass_costs, pass_cycles
from ipusim.runs.disturbed import undisturbed
from ipusim.runs.job import Job
from ipusim.runs.other_passes import run_without_events
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.kinds import PASSES
from ipusim.timeline.time_parts import TimePart
from ipusim.timeline.timeline import Timeline

#: Cycles of each (pass, stage).
Passes = Mapping[tuple[int, int], int]
_Collective = TypeVar("_Collective", bound=ReplicaCollective)
_Value = TypeVar("_Value")


def waterfall_of(job: Job, timeline: Timeline | int) -> Waterfall:
    """Return the parts of the time of ``job``, from its whole run or from its cycles.

    ``timeline`` is the whole run, or the cycles of a run without repetition.

    Runs without some parts are timing-only runs; removing a part that costs nothing needs no simulation. If the timing
    of the run repeats, shorter runs are simulated. If not, exact lengths are computed without a simulation of events.
    The last run is always simulated, as its passes are counted. Raises the errors of
    :func:`~ipusim.runs.time_alone.timeline_of`.
    """
    last_timeline = timeline if isinstance(timeline, Timeline) else None
    executions = job.executions if last_timeline is None else last_timeline.info.executions
    cycles = [timeline if isinstance(timeline, int) else throughput_of(timeline).run_cycles]
    repeats = last_timeline is not None and last_timeline.repeats
    runs = [(job.costs, job.system, bool(job.between))]
    runs += [(*price_without(job, cuts), bool(job.between) and cuts <= _WITH_HOST) for cuts in range(1, len(_CUTS) + 1)]
    changed = [cuts for cuts in range(1, len(runs)) if runs[cuts] != runs[cuts - 1]]
    for cuts, (_, _, with_host) in enumerate(runs[1:], start=1):
        length = None if cuts in changed else cycles[-1]
        if cuts in changed[:-1] and not (repeats or with_host):
            length = run_without_events(job, executions, partial(price_without, cuts=cuts))
        if length is None:
            last_timeline = _run_without(job, executions, cuts, job.between if with_host else None)
            length = throughput_of(last_timeline).run_cycles
        cycles.append(length)
    last_timeline = timeline_of(job, executions) if last_timeline is None else last_timeline
    # Spans are counted, not the Plan's passes: under some schedules, a Plan of fewer micro-batches has different passes
    # in ramps and in a period.
    useful = int(cycles_by_kind(last_timeline)[:, PASSES].sum(axis=1).max())
    cycles += [cycles[-1] - gaps_in_main(last_timeline), useful, 0]
    parts = {
        part: with_part - without_part
        for part, (with_part, without_part) in zip(reversed(TimePart), pairwise(cycles), strict=True)
    }
    return Waterfall({part: parts[part] for part in TimePart}, executions)


def price_without(job: Job, cuts: int) -> tuple[Costs, System]:
    """Return costs and system of ``job`` without the first ``cuts`` parts."""
    costs, system = undisturbed(job) if cuts else (job.costs, job.system)
    for remove in _CUTS[1:cuts]:
        costs = remove(job, costs)
    return costs, system


def balanced(job: Job, passes: Passes) -> dict[tuple[int, int], int]:
    """Return the cycles of passes, balanced over all IPUs for each kind.

    IPUs with copies of the same stages count as one. Each kind's cycles are divided equally among IPUs, and an IPU's
    cycles equally among its stages: four stages of 10, 10, 10 and 14 cycles on four IPUs have 11 each. Cycles are whole
    numbers. The remainder of a kind goes to the IPUs in turn, a cycle each; the next kind's remainder begins at the
    next IPU. Within an IPU, the remainder goes to the first stages.
    """
    shape = job.plan.shape
    groups = shape.ipus_of_equal_stages
    cycles_of: dict[tuple[int, int], int] = {}
    begin = 0
    for kind in sorted({kind for kind, _ in passes}):
        quotient, remainder = divmod(
            sum(cycles for (pass_kind, _), cycles in passes.items() if pass_kind == kind), len(groups)
        )
        larger_share = {groups[(begin + number) % len(groups)] for number in range(remainder)}
        begin += remainder
        for group in groups:
            stages = [stage for stage in range(shape.stages) if shape.mapping[stage] in group]
            share, extra = divmod(quotient + (group in larger_share), len(stages))
            cycles_of |= {(kind, stage): share + (number < extra) for number, stage in enumerate(stages)}
    return cycles_of


def without_recomputation(job: Job, costs: Costs) -> Costs:
    """Return costs without recomputation, neither in separate passes nor inside backward passes."""
    shape, system, passes = job.plan.shape, job.system, {}
    if not (shape.recompute or shape.recompute_inline):
        return costs
    for (kind, stage), cycles in costs.passes.items():
        pass_parts = pass_costs(job.program, kind, stage)
        plain_cycles = pass_cycles(pass_parts[0], system.ipu, system.rates) if len(pass_parts) > 1 else cycles
        passes[kind, stage] = 0 if kind == Pass.RECOMPUTE else plain_cycles
    return replace(costs, passes=passes)


def recomputed_shares(job: Job) -> dict[tuple[Pass, int], Fraction]:
    """Return the share of recomputation in the cycles of each (pass, stage) that recomputes."""
    plain_passes = without_recomputation(job, job.costs).passes
    return {
        (Pass(kind), stage): Fraction(cycles - plain_passes[kind, stage], cycles)
        for (kind, stage), cycles in job.costs.passes.items()
        if kind != Pass.RECOMPUTE and cycles != plain_passes[kind, stage]
    }


def _run_without(
    job: Job, executions: int, cuts: int, between: Mapping[int, tuple[HostExchange, ...]] | None
) -> Timeline:
    """Simulate the run without the first ``cuts`` parts in the order of the cuts."""
    return timeline_of(job, executions, price=lambda part: price_without(part, cuts), between=between)


def _without_updates(_: Job, costs: Costs) -> Costs:
    host_sum = costs.host_sum
    return replace(
        costs,
        updates=dict.fromkeys(costs.updates, 0),
        copy_sum=None if costs.copy_sum is None else _costless(costs.copy_sum),
        gradient_sum=None if costs.gradient_sum is None else _costless(costs.gradient_sum),
        host_sum=None
        if host_sum is None
        else replace(
            host_sum,
            write=0,
            network=0,
            read=0,
            over_links=None if host_sum.over_links is None else _costless(host_sum.over_links),
        ),
        weight_gathers={stage: _costless(gather) for stage, gather in costs.weight_gathers.items()},
        update_gathers={ipu: _costless(gather) for ipu, gather in costs.update_gathers.items()},
        collectives={key: tuple(map(_costless, calls)) for key, calls in costs.collectives.items()},
        instructions=dict.fromkeys(costs.instructions, 0),
    )


def _costless(collective: _Collective) -> _Collective:
    return replace(collective, cost=replace(collective.cost, fixed=NOTHING_FIXED, rounds=()))


def _without_streams(_: Job, costs: Costs) -> Costs:
    return replace(
        costs,
        pass_streams=dict.fromkeys(costs.pass_streams, Stream()),
        update_streams=dict.fromkeys(costs.update_streams, Stream()),
        moves={key: send if send.links or send.lead_cycles else Send() for key, send in costs.moves.items()},
    )


def with_host(costs: Costs, takes: Callable[[int], int]) -> Costs:
    """Return costs with ``takes`` applied to the cycles of all host operations."""

    def changed(value: _Value, *names: str) -> _Value:
        return replace(value, **{name: takes(getattr(value, name)) for name in names})  # type: ignore[type-var]

    update = costs.host_update
    return replace(
        costs,
        host=changed(costs.host, *(name for name, cycles in asdict(costs.host).items() if cycles is not None)),
        tables={
            stage: changed(table, "ids", "gather", "rows", "gradients", "apply")
            for stage, table in costs.tables.items()
        },
        host_calls={
            key: tuple(changed(call, "send", "drain", "compute", "fill", "read") for call in calls)
            for key, calls in costs.host_calls.items()
        },
        host_update=None if update is None else changed(update, "write", "apply", "read"),
    )


def _without_host(_: Job, costs: Costs) -> Costs:
    return with_host(costs, lambda _cycles: 0)


def _without_copies(_: Job, costs: Costs) -> Costs:
    by_group = tuple(
        tuple(replace(copy, fixed=NOTHING_FIXED, links=()) for copy in copies) for copies in costs.copies.by_group
    )
    sends = {key: Send(send.bytes) for key, send in costs.sends.items()}
    moves = dict.fromkeys(costs.moves, Send())  # moves to Streaming Memory are already free
    return replace(costs, copies=replace(costs.copies, by_group=by_group), sends=sends, moves=moves)


#: Functions that remove a part of the time each, from the last part to imbalance. The first removes only disturbances,
#: which are part of the system, not of costs.
_CUTS: Final[tuple[Callable[[Job, Costs], Costs], ...]] = (
    lambda job, costs: costs,  # noqa: ARG005
    _without_updates,
    _without_streams,
    _without_host,
    without_recomputation,
    _without_copies,
    lambda job, costs: replace(costs, passes=balanced(job, costs.passes)),
)
#: Maximum number of cuts that keeps joint work of hosts between session runs.
_WITH_HOST: Final = _CUTS.index(_without_host)
