"""How much a run will record, told before it begins: an upper bound on its spans."""

from __future__ import annotations

from collections import Counter

from ipusim.hardware.system import System
from ipusim.machine.durations import Durations
from ipusim.machine.reduction import gradient_sum
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram

#: Spans of a feed's element: the host's work, the wait for it, and the transfer.
_OF_ELEMENT = 3
#: Spans of an all-gather on an IPU: itself, and the wait for the others.
_OF_GATHER = 2
#: Spans of a weight update on an IPU: itself, waits before and behind it, a load, a store and an all-gather.
_OF_UPDATE = 5 + _OF_GATHER


def most_spans(plan: Plan, program: PipelineProgram, system: System, cost: Durations, executions: int) -> int:
    """Return how many spans ``executions`` executions record at most, on all replicas."""
    replicas, ipus = system.replicas, len(plan.ipus)
    passes = Counter(zip(plan.kind.tolist(), plan.stage.tolist(), strict=True))
    gathers = [_OF_GATHER * bool(program.offload.weights and each.parameter_bytes) for each in program.stages]
    around = sum(  # loads and stores of Streaming Memory, and all-gathers
        times * (sum(map(bool, cost.pass_streams.get((kind, stage), ()))) + gathers[stage])
        for (kind, stage), times in passes.items()
    )
    meetings = sum(  # a wait of each IPU, the sync, the exchange, and the links
        times * (replicas * ipus + 2 + len(cost.copies[index].links))
        for index, times in Counter(cost.copy_of).items()
        if cost.copies[index].lead_cycles or cost.copies[index].links or system.free
    )
    feeds = _OF_ELEMENT * plan.shape.micro_batches * (bool(cost.infeed) + bool(cost.outfeed))
    update = 0
    if plan.shape.training:
        update = replicas * ipus * _OF_UPDATE
        if total := gradient_sum(plan, program, system):
            update += 1 + sum(len(each.links) for each in total.cost.rounds)
    spans: int = executions * (replicas * (len(plan.table) + around + feeds) + meetings + update)
    return spans
