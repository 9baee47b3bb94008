"""Upper bounds of the spans and cycles of a run before it begins, from the terms of Costs."""

from __future__ import annotations

from ipusim.hardware.system import System
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs
from ipusim.pricing.terms import Thing, things

#: Spans of a weight update on an IPU: itself, waits before and behind it, a load, a store, an all-gather and its wait.
_OF_UPDATE = 7
#: Spans of what IPUs hand over to the host before an update: the way there, the wait, the work, and the way back.
_OF_HANDING_OVER = 4


def most_spans(plan: Plan, system: System, costs: Costs, executions: int) -> int:
    """Return how many spans ``executions`` executions record at most, on all replicas."""
    places = system.replicas * len(plan.ipus)
    spans = sum(thing.times * thing.spans for thing in _things(plan, system, costs))
    # In point-to-point a receiver waits, also where nothing is sent.
    spans += system.replicas * plan.instructions_of(Code.RECEIVE).total()
    if plan.shape.training:
        spans += places * _OF_UPDATE
        spans += _OF_HANDING_OVER * ((costs.host_sum is not None) + (costs.host_update is not None))
        for total in filter(None, (costs.copy_sum, costs.gradient_sum)):
            spans += 1 + sum(len(round_.links) for round_ in total.cost.rounds)
    else:
        spans += places  # which wait for each other at the end
    if costs.host.call or costs.host.state:
        spans += places
    return executions * spans


def most_cycles(plan: Plan, system: System, costs: Costs, executions: int) -> int:
    """Return how long ``executions`` executions last at most: as if all was done one after the other."""
    # Where tensors share links, a time is rounded up each time that others begin or end.
    return executions * sum(thing.times * (sum(thing.cycles) + thing.spans) for thing in _things(plan, system, costs))


def _things(plan: Plan, system: System, costs: Costs) -> list[Thing]:
    return list(things(costs, plan, tuple(map(str, range(plan.shape.stages))), system))
