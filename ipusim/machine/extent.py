"""Bound the number of spans (recorded intervals) and the cycles of a run from above.

Limits on requests, and computations of a run's time without a simulation of events, call these functions before a run.
"""

from __future__ import annotations

from math import ceil, exp, log1p, prod, sqrt
from typing import Final

from ipusim.hardware.disturbances import Jitter, Lost
from ipusim.hardware.jitter import FARTHEST
from ipusim.hardware.resources import Resource
from ipusim.hardware.system import System
from ipusim.machine.speeds import speeds_of
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs
from ipusim.pricing.terms import PricedPart, priced_parts
from ipusim.timeline.host_track import HostTrack

#: Maximum sum of a run's cycles over all tracks, because sums over a Timeline's 64-bit columns must not overflow.
MAX_SUM: Final = 2**63 - 1
#: Spans of a weight update per IPU: the update, waits before and after, a load, a store, an all-gather and a wait.
_UPDATE_SPANS = 7
#: Spans of a host update: the copy to the host, the wait, the work, and the copy back.
_HOST_UPDATE_SPANS = 4


def most_spans(plan: Plan, system: System, costs: Costs, executions: int) -> int:
    """Return an upper bound on the spans of ``executions`` executions across replicas."""
    ipu_count = system.replicas * len(plan.ipus)
    spans = sum(part.times * part.spans for part in _priced_parts(plan, system, costs))
    # In point-to-point a receiver waits even for tensors that take no time.
    spans += system.replicas * plan.instructions_of(Code.RECEIVE).total()
    if plan.shape.training:
        spans += ipu_count * _UPDATE_SPANS
        spans += _HOST_UPDATE_SPANS * ((costs.host_sum is not None) + (costs.host_update is not None))
        for gradient_sum in filter(None, (costs.copy_sum, costs.gradient_sum)):
            spans += 1 + sum(len(round_cost.links) for round_cost in gradient_sum.cost.rounds)
    else:
        spans += ipu_count  # the waits at the final meeting
    if costs.host.call or costs.host.state:
        spans += ipu_count
    return executions * spans


def most_cycles(plan: Plan, system: System, costs: Costs, executions: int) -> int:
    """Return an upper bound on the cycles of a run, assuming no overlap."""
    # A tensor on shared links rounds its time up whenever another tensor begins or ends: a cycle more per span.
    return executions * sum(part.times * (sum(part.cycles) + part.spans) for part in _priced_parts(plan, system, costs))


def most_disturbed_cycles(system: System, cycles: int, spans: int, executions: int) -> int:
    """Return an upper bound on the cycles of a run under the system's disturbances.

    The bound slows every piece of work like the slowest resource during its slowest window, and adds the delays of
    every cable to every span. Every loss of an IPU may undo the whole run.

    Args:
        system: the device.
        cycles: upper bound without disturbances or overlap.
        spans: upper bound on the run's spans.
        executions: executions of the pipeline.

    Example:
        >>> from fractions import Fraction
        >>> from ipusim.hardware.build import build_system
        >>> from ipusim.hardware.disturbances import Slower
        >>> slow = Slower(Fraction(3), ipu=0)
        >>> most_disturbed_cycles(build_system("m2000", mapping=(0, 1)).disturbed([slow, slow]), 1000, 20, 1)
        9180
    """
    speeds = speeds_of(system)
    courses = {} if speeds is None else speeds.courses
    jitters = [disturbance for disturbance in system.disturbances if isinstance(disturbance, Jitter)]
    losses = [disturbance for disturbance in system.disturbances if isinstance(disturbance, Lost)]
    slowest = 1
    for worker in {*courses, *(Resource("IPU", ipu) for ipu in range(system.count if jitters else 0))}:
        ipu_jitters = [jitter for jitter in jitters if worker.kind == "IPU" and jitter.ipu in (None, worker.name)]
        jitter_factor = prod(ceil(exp(FARTHEST * sqrt(log1p(float(jitter.jitter) ** 2)))) for jitter in ipu_jitters)
        slowest = max(
            slowest, ceil(jitter_factor / courses[worker].least_speed if worker in courses else jitter_factor)
        )
    standstill = sum(course.standing_cycles for course in courses.values())
    longest_delays = sum(course.most_late for course in courses.values())
    loss_cycles = sum(executions * loss.checkpoint + loss.detect + loss.restart for loss in losses)
    return (1 + len(losses)) * (slowest * (cycles + spans) + standstill + longest_delays * spans) + loss_cycles


def tracks_of(system: System, costs: Costs) -> int:
    """Return the number of tracks: IPUs, link directions, and every replica's host."""
    return system.count + len(costs.links) + len(HostTrack) * system.replicas


def _priced_parts(plan: Plan, system: System, costs: Costs) -> list[PricedPart]:
    return list(priced_parts(costs, plan, tuple(map(str, range(plan.shape.stages))), system))
