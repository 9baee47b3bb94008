"""How much a run will record, told before it begins: an upper bound on its spans."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs, StepCopy

#: Spans of a feed's element: the host's work, the wait for it, and the transfer.
_OF_ELEMENT = 3
#: Spans of an all-gather on an IPU: itself, and the wait for the others.
_OF_GATHER = 2
#: Spans of what the host does in a pass: the way there, the wait and the host's work, and the way back.
_OF_OUTSIDE = 4
#: Spans of a weight update on an IPU: itself, waits before and behind it, a load, a store and an all-gather.
_OF_UPDATE = 5 + _OF_GATHER


def _parts(copy: StepCopy) -> int:
    """Return the spans of a copy but for its links: sync and what tiles do, where there is any, and the exchange."""
    fixed = copy.fixed
    return sum(map(bool, (fixed.sync_cycles, fixed.pre_copy_cycles, copy.links, fixed.post_copy_cycles)))


def most_spans(plan: Plan, system: System, costs: Costs, executions: int) -> int:
    """Return how many spans ``executions`` executions record at most, on all replicas."""
    replicas, ipus = system.replicas, len(plan.ipus)
    which, often = np.unique(plan.kind * plan.shape.stages + plan.stage, return_counts=True)
    passes = {
        divmod(each, plan.shape.stages): times for each, times in zip(which.tolist(), often.tolist(), strict=True)
    }
    around = sum(  # loads and stores of Streaming Memory, all-gathers, collectives and what the host does
        times
        * (
            sum(map(bool, costs.pass_streams.get((kind, stage), ())))
            + _OF_OUTSIDE * len(costs.outside.get((kind, stage), ()))
            + _OF_GATHER * ((stage in costs.weight_gathers) + len(costs.collectives.get((kind, stage), ())))
        )
        for (kind, stage), times in passes.items()
    )
    per_meeting = replicas * ipus // max(len(costs.copies.meetings), 1)
    meetings = sum(  # in lock-step a wait of each IPU, the parts of the copy, and the links
        times * (per_meeting + _parts(copies[index]) + len(copies[index].links))
        for copies in costs.copies.meetings
        for index, times in Counter(costs.copies.copy_of).items()
        if copies[index].total_cycles or copies[index].links or system.free
    )
    # In point-to-point the send, the wait for it, and the links.
    meetings += sum(2 + len(send.links) for send in costs.sends.values()) * plan.shape.micro_batches
    feeds = _OF_ELEMENT * plan.shape.micro_batches * (bool(costs.host.infeed) + bool(costs.host.outfeed))
    update = 0
    if plan.shape.training:
        update = replicas * ipus * _OF_UPDATE
        if total := costs.gradient_sum:
            update += 1 + sum(len(each.links) for each in total.cost.rounds)
    if costs.host.call:
        update += replicas * ipus
    spans: int = executions * (replicas * (len(plan.table) + around + feeds) + meetings + update)
    return spans
