"""Measure the cost of a run's disturbances, by a second simulation without disturbances or arithmetic."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import cast

from ipusim.analysis.disturbed import DisturbanceCost, DisturbedCable, more_idle
from ipusim.analysis.throughput import throughput_of
from ipusim.hardware.disturbances import Dead, Disturbance, Jitter
from ipusim.hardware.system import System
from ipusim.machine.disturbances import disturbs, steady_from
from ipusim.machine.recurrence import Mark
from ipusim.machine.run_changes import Watched
from ipusim.pipeline.instructions import Code
from ipusim.pricing.costs import Costs
from ipusim.pricing.price import price_plan
from ipusim.runs.job import Job
from ipusim.runs.marked import marked_run
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import Idle
from ipusim.timeline.timeline import Timeline

#: Maximum number of spans (recorded intervals) of a run whose states are compared with those of the undisturbed run.
_MOST_SPANS = 50_000


def undisturbed(job: Job) -> tuple[Costs, System]:
    """Return costs and system of a Job without disturbances; dead cables work again."""
    system = job.system.undisturbed
    costs = job.costs if system.topology == job.system.topology else price_plan(job.plan, job.program, system)
    return costs, system


def disturbance_cost(job: Job, timeline: Timeline) -> DisturbanceCost | None:
    """Return the cost of disturbances to a Job's whole run in ``timeline``; None without disturbances."""
    if not disturbs(job.system):
        return None
    executions = timeline.info.executions
    undisturbed_timeline = timeline_of(job, executions, price=undisturbed, between=job.between)
    end = steady_from(job.system)
    ends_in_run = end is not None and 0 < end < timeline.makespan_cycles and _all_end(job.system)
    states = _states(job, executions) if ends_in_run and int(timeline.weights.sum()) <= _MOST_SPANS else None
    idle, cables, ipus = more_idle(timeline, undisturbed_timeline), tuple(_cables(job)), _disturbed_ipus(job.system)
    only_cables = all(_cable_of(disturbance) is not None for disturbance in job.system.disturbances)
    cable_cycles = idle.cycles if only_cables else idle.by_cause.get(Idle.COPIES, 0)
    return DisturbanceCost(
        throughput_of(timeline).run_cycles,
        throughput_of(undisturbed_timeline).run_cycles,
        {pair: cycles for pair, cycles in idle.waits.items() if not cables or pair[1] in ipus},
        idle.by_cause,
        recovery=None if states is None else _recovery(*states, end or 0),
        passes=states is not None,
        loses=len(timeline.rows(SpanKind.LOST_WORK, SpanKind.DETECTION, SpanKind.RESTART, SpanKind.SPARE)) > 0,
        slow_ipus=timeline.info.slow_ipus,
        cables=cables,
        cable_cycles=max(cable_cycles, 0) if cables else 0,
        cables_alone=only_cables,
    )


def _disturbed_ipus(system: System) -> set[int]:
    """Return the logical IPUs with a disturbance; jitter without an IPU disturbs all IPUs."""
    jitters = any(isinstance(event, Jitter) and event.ipu is None for event in system.disturbances)
    event_ipus = (getattr(event, "ipu", None) for event in system.disturbances)
    return set(range(system.count)) if jitters else {ipu for ipu in event_ipus if ipu is not None}


def _cable_of(disturbance: Disturbance) -> tuple[int, int] | None:
    """Return the logical IPUs of a disturbance's cable, ascending; None for a disturbance of other resources."""
    link: tuple[int, int] | None = getattr(disturbance, "link", None)
    return None if link is None else (min(link), max(link))


def _cables(job: Job) -> Iterator[DisturbedCable]:
    """Yield the disturbed cables of a run, in the order of its disturbances."""
    costs, undisturbed_system = undisturbed(job)
    events = [event for event in job.system.disturbances if not isinstance(event, Dead) or event.dead]
    links = dict.fromkeys(link for event in events if (link := _cable_of(event)) is not None)
    dead = {_cable_of(event) for event in events if isinstance(event, Dead)}
    working_topology = undisturbed_system.topology.drop(
        [undisturbed_system.cable(link) for link in links if link in dead]
    )
    carrying = {frozenset((direction.source, direction.target)) for direction in costs.links}
    for link in links:
        source, target = (undisturbed_system.ipus[ipu] for ipu in link)
        hops = (
            [hop.target for hop in working_topology.route(source, target) if not hop.is_limit] if link in dead else []
        )
        detour = tuple(undisturbed_system.ipus.index(ipu) for ipu in hops[:-1])
        yield DisturbedCable(link, link in dead, frozenset((source, target)) in carrying, detour)


def _all_end(system: System) -> bool:
    """Return whether all disturbances end."""
    return all(getattr(event, "until", 0) is not None and not isinstance(event, Dead) for event in system.disturbances)


def _states(job: Job, executions: int) -> tuple[list[Mark], list[Mark]] | None:
    """Return the states of a run with and without disturbances, recorded as each micro-batch begins.

    None if states of some micro-batches are missing: the machine stops recording when too many tensors wait.
    """
    whole_job, table = job.whole, job.whole.plan.instructions
    costs, system = undisturbed(whole_job)
    watched = replace(system, disturbances=(Watched(job.system.disturbances),))
    states = (
        _marks(whole_job, executions, whole_job.costs, whole_job.system),
        _marks(whole_job, executions, costs, watched),
    )
    first = (whole_job.plan.shape.mapping[0], Code.FORWARD, 0)
    begins = executions * int((table[:, :3] == first).all(axis=1).sum())
    return states if all(len(marks) == begins for marks in states) else None


def _recovery(marks: Sequence[Mark], undisturbed_marks: Sequence[Mark], last: int) -> int | None:
    """Return the number of micro-batches after cycle ``last`` until states equal the undisturbed run's.

    None if states never become equal.
    """
    later_pairs = dropwhile(lambda pair: pair[0].cycle < last, zip(marks, undisturbed_marks, strict=True))
    are_equal = (_state(mark) == _state(plain_mark) for mark, plain_mark in later_pairs)
    return next((number for number, is_equal in enumerate(are_equal) if is_equal), None)


def _state(mark: Mark) -> Hashable:
    """Return a recorded state of the machine, independent of the order of simultaneous events."""
    (queue, facilities), ahead = cast(tuple[tuple[tuple[Hashable, ...], Hashable], Hashable], mark.state)
    return tuple(sorted(queue, key=repr)), facilities, ahead, mark.positions


def _marks(job: Job, executions: int, costs: Costs, system: System) -> list[Mark]:
    """Return a run's states as micro-batches begin in the first stage."""
    counts = range(job.plan.shape.micro_batches)
    _, marks = marked_run(job, costs, system, executions, counts, between=job.between)
    return [mark for mark in marks if mark.micro_batch >= 0]
