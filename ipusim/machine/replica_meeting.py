"""Let replicas meet within an execution: to gather sharded variables, and for collectives called by passes.

A collective of a pass runs before the pass, as the order of a pass's parts does not change the sum of their durations.
The participants of a meeting have equal numbers within their replicas; such a number is called a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.machine.clock import Process
from ipusim.machine.facility import Context, IpuId
from ipusim.machine.meeting import Meeting, end_of_collective
from ipusim.pipeline.instructions import NONE, Code
from ipusim.pricing.costs import ReplicaCollective
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description


class CollectivePart(NamedTuple):
    """A single collective of an instruction; an instruction runs several in order.

    Attributes:
        cost: cost of the collective.
        first_description: description of the first replica's span; descriptions of the other replicas follow.
        callback: callback at the end.
    """

    cost: CollectiveCost
    first_description: int
    callback: Callable[[], object]


class ReplicaMeeting(Meeting):
    """Meeting of a shard's IPUs across replicas, for collectives recorded as spans."""

    def __init__(self, context: Context, shard: int, code: Code, kind: SpanKind) -> None:
        """Prepare the meeting at an instruction, with collectives of a kind of span."""
        super().__init__(context, [context.ipu(replica, shard) for replica in context.replicas])
        self.handlers = {code: self._handle_arrival_with_call}
        self._kind = kind
        self._parts: Sequence[CollectivePart] = ()
        self._step = 0

    def _parts_of(self, stage: int, micro_batch: int, number: int) -> Sequence[CollectivePart]:
        """Return an instruction's collectives; a called collective's ``number`` is the kind of pass."""
        raise NotImplementedError

    def _collective_part(
        self, collective: ReplicaCollective, callback: Callable[[], object] = lambda: None, **fields: int
    ) -> CollectivePart:
        """Return a collective with span descriptions; further ``fields`` belong to every description."""
        size, describe = collective.bytes, self._context.recorder.describe
        spans = (Description(self._kind, ipu.number, bytes=size, replica=ipu.replica, **fields) for ipu in self.ipus)
        return CollectivePart(collective.cost, describe(*spans), callback)

    def _handle_arrival_with_call(
        self, ipu: IpuId, stage: int, micro_batch: int, number: int, step: int, cause: int
    ) -> Process:
        """Register the arrival of ``ipu``; return the span after the joint work."""
        self._parts, self._step = self._parts_of(stage, micro_batch, number), step
        spans = yield self.arrive(ipu.number, cause)
        return spans[ipu.number]

    def _meet(self, cause: int) -> None:  # noqa: ARG002 - arrivals hold the last spans
        self._start_joint_work(self._carry_out(self._parts, self._step))

    def _carry_out(self, parts: Sequence[CollectivePart], step: int) -> Process:
        """Carry out the rounds of every collective, and release the IPUs. A SimPy process."""
        spans = {ipu: last_span for ipu, (_, last_span) in self._arrived.items()}
        spans |= self._record_waits(step)
        for part in parts:
            start = self._clock.now
            end: int = yield self._clock.event_at(end_of_collective(self._clock, self._workers, self._kind, part.cost))
            part.callback()
            for description, ipu in enumerate(self._numbers, part.first_description):
                spans[ipu] = self._record(description, step, start, end, spans[ipu])
        self._release(spans)


class WeightGather(ReplicaMeeting):
    """All-gathers of a shard: a stage's weights, or variables of the weight update (stage NONE)."""

    subject = "the all-gather"

    def __init__(self, context: Context, shard: int, gathers: Mapping[int, ReplicaCollective]) -> None:
        """Describe the all-gather per stage."""
        super().__init__(context, shard, Code.GATHER, SpanKind.ALL_GATHER)
        self._gathers: dict[int, list[CollectivePart]] = {}
        for stage, gather in gathers.items():
            callback = partial(context.arithmetic.gather, shard, None if stage == NONE else stage, gather.algorithm)
            self._gathers[stage] = [self._collective_part(gather, callback)]

    def _parts_of(self, stage: int, micro_batch: int, number: int) -> Sequence[CollectivePart]:  # noqa: ARG002 - common signature
        return self._gathers[stage]


class CalledCollectives(ReplicaMeeting):
    """The collectives called by a shard's passes."""

    subject = "a collective of its stage"

    def __init__(self, context: Context, shard: int) -> None:
        """Prepare for the passes of a shard."""
        super().__init__(context, shard, Code.COLLECTIVE, SpanKind.COLLECTIVE)
        self._parts_by_call: dict[tuple[int, int, int], list[CollectivePart]] = {}

    def _parts_of(self, stage: int, micro_batch: int, number: int) -> Sequence[CollectivePart]:
        key = number, stage, micro_batch
        if key not in self._parts_by_call:  # described once, as every execution repeats the calls
            calls = self._context.costs.collectives[number, stage]
            self._parts_by_call[key] = [
                self._collective_part(call, stage=stage, micro_batch=micro_batch) for call in calls
            ]
        return self._parts_by_call[key]


def build(context: Context) -> Iterator[ReplicaMeeting]:
    """Yield the meetings of replicas: for all-gathers of sharded variables, and for called collectives."""
    shape, costs = context.plan.shape, context.costs
    for shard in context.plan.ipus:
        stages = [stage for stage, home in shape.homes if home == shard]
        gathers = {stage: costs.weight_gathers[stage] for stage in stages if stage in costs.weight_gathers}
        if shard in costs.update_gathers:
            gathers[NONE] = costs.update_gathers[shard]
        if gathers:
            yield WeightGather(context, shard, gathers)
        if any(stage in stages for _, stage in costs.collectives):
            yield CalledCollectives(context, shard)
