"""How much a run will record and how long it will take, told before it begins: upper bounds."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ipusim.hardware.system import System
from ipusim.lowering.streams import Stream
from ipusim.pipeline.instructions import COLUMNS, Code
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs, StepCopy

#: Spans of a feed's element: the host's work, the wait for it, and the transfer.
_OF_ELEMENT = 3
#: Spans of an all-gather on an IPU: itself, and the wait for the others.
_OF_GATHER = 2
#: Spans of what the host does in a pass: the way there, the wait and the host's work, and the way back.
_OF_OUTSIDE = 4
#: Spans of a look-up in tables on the host: ids, the wait and the host's work, and rows; of an update, without a wait.
_OF_TABLES = {Pass.FORWARD: 4, Pass.BACKWARD: 2, Pass.INPUT_GRADIENT: 2}
#: Spans of a weight update on an IPU: itself, waits before and behind it, a load, a store and an all-gather.
_OF_UPDATE = 5 + _OF_GATHER
#: Spans of what IPUs hand over to the host before an update: the way there, the wait, the work, and the way back.
_OF_HANDING_OVER = 4


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
            + (_OF_TABLES.get(Pass(kind), 0) if stage in costs.tables else 0)
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
    # In point-to-point the send and its links, and a wait of whoever receives, also where nothing is sent.
    meetings += sum(1 + len(send.links) for send in costs.sends.values()) * plan.shape.micro_batches
    meetings += replicas * int(np.count_nonzero(plan.instructions[:, COLUMNS.index("code")] == Code.RECEIVE))
    feeds = _OF_ELEMENT * plan.shape.micro_batches * (bool(costs.host.infeed) + bool(costs.host.outfeed))
    update = replicas * ipus  # which wait for each other at the end
    if plan.shape.training:
        update = replicas * ipus * _OF_UPDATE
        update += _OF_HANDING_OVER * ((costs.host_sum is not None) + (costs.host_update is not None))
        if total := costs.gradient_sum:
            update += 1 + sum(len(each.links) for each in total.cost.rounds)
    if costs.host.call:
        update += replicas * ipus
    spans: int = executions * (replicas * (len(plan.table) + around + feeds) + meetings + update)
    return spans


def most_cycles(plan: Plan, system: System, costs: Costs, executions: int) -> int:
    """Return how long ``executions`` executions last at most: as if all was done one after the other."""
    passes = sum(costs.passes.values()) + _copies(costs)
    passes += sum(_streamed(each, system) for each in costs.pass_streams.values())
    passes += sum(each.send + each.host + each.read for calls in costs.outside.values() for each in calls)
    passes += sum(each.cost.total_cycles for calls in costs.collectives.values() for each in calls)
    passes += len(Pass) * sum(each.cost.total_cycles for each in costs.weight_gathers.values())
    host = costs.host.infeed + costs.host.fill + costs.host.outfeed + costs.host.drain
    host += sum(each.ids + each.gather + each.rows + each.gradients + each.apply for each in costs.tables.values())
    turns, micro_batches = max(plan.emitted, plan.shape.micro_batches), plan.shape.micro_batches
    return executions * (turns * passes + micro_batches * host + _update(system, costs) + costs.host.call)


def _copies(costs: Costs) -> int:
    """Return the cycles of all copies between IPUs of a time-step, or of a micro-batch."""
    meetings = (
        sum(copy.fixed.total_cycles + sum(link.cycles for link in copy.links) for copy in of)
        for of in costs.copies.meetings
    )
    return max(meetings, default=0) + sum(
        send.lead_cycles + send.cycles * len(send.links) for send in costs.sends.values()
    )


def _update(system: System, costs: Costs) -> int:
    """Return the cycles of a weight update."""
    found = sum(costs.updates.values())
    found += sum(_streamed(each, system) for each in costs.update_streams.values())
    found += sum(each.cost.total_cycles for each in costs.update_gathers.values())
    if (total := costs.gradient_sum) is not None:
        found += total.cost.total_cycles
    if (over := costs.host_sum) is not None:
        found += over.write + over.network + over.read
        found += over.over_links.cost.total_cycles if over.over_links is not None else 0
    if (update := costs.host_update) is not None:
        found += update.write + update.apply + update.read
    return found


def _streamed(stream: Stream, system: System) -> int:
    """Return the cycles of what an IPU moves of its Streaming Memory, one replica after the other."""
    assert system.streaming is not None
    rate = system.streaming.share(1)
    return system.replicas * sum(system.transfer_cycles(size, rate) for size in stream)
