"""Where replicas meet in the middle of an execution: all-gathers of variables, and collectives that passes call.

A collective is done before the pass that calls it: the parts of a pass are as long in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.machine.carrying import carried_until
from ipusim.machine.clock import Process
from ipusim.machine.context import Context
from ipusim.machine.facility import IpuId
from ipusim.machine.meeting import Meeting
from ipusim.pipeline.instructions import NONE, Code
from ipusim.pricing.costs import Gather
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description


class Part(NamedTuple):
    """One of the collectives that an instruction stands for, one after the other.

    Attributes:
        cost: of it.
        what: the description of the first replica's span; those of the others follow.
        done: called when it ends.
    """

    cost: CollectiveCost
    what: int
    done: Callable[[], object] = lambda: None


#: Returns the collectives of an instruction by its stage, micro-batch and number.
PartsOf = Callable[[int, int, int], Sequence[Part]]


class ReplicaMeeting(Meeting):
    """Where the IPUs of one shard meet, those of the same stages in all replicas."""

    def __init__(self, context: Context, shard: int, code: Code, what: str, kind: SpanKind, parts: PartsOf) -> None:
        """Prepare for an instruction, ``what`` in words, whose collectives are spans of a kind."""
        ipus = [context.ipu(replica, shard) for replica in context.replicas]
        super().__init__(context.clock, context.recorder, ipus)
        self.what, self.handlers = what, {code: self._join}
        self._kind, self._parts_of = kind, parts
        self._parts: Sequence[Part] = ()
        self._step = 0

    def _join(self, ipu: IpuId, stage: int, micro_batch: int, number: int, step: int, cause: int) -> Process:
        """Note that ``ipu`` is here, and wait for the end of it all; returns the span behind it."""
        self._parts, self._step = self._parts_of(stage, micro_batch, number), step
        spans = yield self.arrive(ipu.number, cause)
        return spans[ipu.number]

    def _meet(self, cause: int) -> None:  # noqa: ARG002 - each IPU's own span is behind its part
        self._do_together(self._carry_out(self._parts, self._step))

    def _carry_out(self, parts: Sequence[Part], step: int) -> Process:
        """Synchronise and carry out every round of each collective, and release the IPUs; a SimPy process."""
        spans = {ipu: before for ipu, (_, before) in self._arrived.items()}
        spans |= self._record_waits(step)
        for part in parts:
            start = self._clock.now
            end: int = yield self._clock.at(carried_until(self._clock, self._workers, self._kind, part.cost))
            part.done()
            for what, ipu in enumerate(self._numbers, part.what):
                spans[ipu] = self._record(what, step, start, end, spans[ipu])
        self._release(spans)


def build(context: Context) -> Iterator[ReplicaMeeting]:
    """Yield where the replicas put variables together of which each stores a part, and where they join collectives."""
    shape, costs = context.plan.shape, context.costs
    for shard in context.plan.ipus:
        mine = [stage for stage, at in enumerate(shape.mapping) if at == shard]
        gathers = {stage: costs.weight_gathers[stage] for stage in mine if stage in costs.weight_gathers}
        if shard in costs.update_gathers:
            gathers[NONE] = costs.update_gathers[shard]
        if gathers:
            parts = _Gathered(context, shard, gathers)
            yield ReplicaMeeting(context, shard, Code.GATHER, "the all-gather", SpanKind.ALL_GATHER, parts)
        if any(stage in mine for _, stage in costs.collectives):
            called, what = _Called(context, shard), "a collective of its stage"
            yield ReplicaMeeting(context, shard, Code.COLLECTIVE, what, SpanKind.COLLECTIVE, called)


class _Gathered:
    """The all-gathers of one shard: of the weights of a stage, or (NONE) of what the weight update needs."""

    def __init__(self, context: Context, shard: int, gathers: Mapping[int, Gather]) -> None:
        self._parts = {
            stage: [
                Part(
                    gather.cost,
                    _described(context, SpanKind.ALL_GATHER, shard, bytes=gather.bytes),
                    partial(context.together.gather, shard, None if stage == NONE else stage, gather.algorithm),
                )
            ]
            for stage, gather in gathers.items()
        }

    def __call__(self, stage: int, _micro_batch: int, _number: int) -> Sequence[Part]:
        return self._parts[stage]


class _Called:
    """The collectives that passes of one shard call."""

    def __init__(self, context: Context, shard: int) -> None:
        self._context, self._shard = context, shard
        self._parts: dict[tuple[int, int, int], list[Part]] = {}

    def __call__(self, stage: int, micro_batch: int, kind: int) -> Sequence[Part]:
        key = kind, stage, micro_batch
        if key not in self._parts:  # described once: every execution has them again
            self._parts[key] = [
                Part(
                    call.cost,
                    _described(
                        self._context,
                        SpanKind.COLLECTIVE,
                        self._shard,
                        stage=stage,
                        micro_batch=micro_batch,
                        bytes=call.bytes,
                    ),
                )
                for call in self._context.costs.collectives[kind, stage]
            ]
        return self._parts[key]


def _described(context: Context, kind: SpanKind, shard: int, **fields: Any) -> int:
    """Return the description of the first replica's span of a collective; those of the others follow."""
    ipus = (context.ipu(replica, shard) for replica in context.replicas)
    return context.recorder.describe(*(Description(kind, ipu.number, replica=ipu.replica, **fields) for ipu in ipus))
