"""Describe the ways of tensors between a replica's stages, in point-to-point.

Most ways are lanes: a tensor on a lane never shares a link with another tensor, so the end of a send is known at its
begin. A lane needs no fair rates, and no event unless an IPU waits for the tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from ipusim.machine import resources
from ipusim.machine.facility import Context
from ipusim.machine.resources import Workers
from ipusim.pipeline.instructions import Code, any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column, PlanShape
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import SpanKind

#: Replica, copy of the pipeline, sending and receiving stage.
SendKey = tuple[int, int, int, int]
#: A number, or a column of numbers.
_Numbers = TypeVar("_Numbers", int, Column)


class TensorWay(NamedTuple):
    """The route of a stage's tensors from forward or from backward passes.

    Attributes:
        shard: number of the producing IPU within the replica.
        made_in: number of the producing pass among the passes of a micro-batch.
        is_local: whether producing and consuming IPU are equal, without receive instruction.
        send: cost of a send.
        at_once: whether a send takes no time.
        is_lane: whether a tensor never shares a link with another tensor.
        ends: sending and receiving IPU.
    """

    shard: int
    made_in: int
    is_local: bool
    send: Send
    at_once: bool
    is_lane: bool
    ends: Workers


def way_number(pipeline_copy: _Numbers, source: _Numbers, target: _Numbers, shape: PlanShape) -> _Numbers:
    """Return the number of the way from a stage to a neighbour. The last stage may also send to itself."""
    return 2 * (pipeline_copy * shape.stages + source) + (target < source)


def tensor_numbers(source: Column, target: Column, micro_batch: Column, shape: PlanShape) -> Column:
    """Return a number per tensor between neighbouring stages."""
    way = way_number(micro_batch % len(shape.copies), source, target, shape)
    return way * shape.micro_batches + micro_batch


def tensor_ways(
    context: Context, sends: Mapping[SendKey, Send], replica: int, lanes: Container[SendKey] = ()
) -> list[TensorWay]:
    """Return the ways of every stage's forward and backward tensors, in the order of :func:`way_number`."""
    shape = context.plan.shape
    ways = []
    for pipeline_copy, mapping in enumerate(shape.copies):
        for source in range(shape.stages):
            for is_backward in (False, True):
                target = max(source - 1, 0) if is_backward else min(source + 1, shape.stages - 1)
                key = replica, pipeline_copy, source, target
                send = sends.get(key, Send()).plain()
                way = TensorWay(
                    mapping[source],
                    shape.step_of(Pass.BACKWARD if is_backward else Pass.FORWARD, source),
                    mapping[source] == mapping[target],
                    send,
                    not (send.lead_cycles or send.links),
                    key in lanes,
                    resources.ipus(context.ipu(replica, mapping[stage]).number for stage in (source, target)),
                )
                ways.append(way)
    return ways


def lanes_of(context: Context) -> set[SendKey]:
    """Return the sends that never share a link with another tensor of the run."""
    if context.rerouted:
        return set()
    costs, shape, clock = context.costs, context.plan.shape, context.clock
    uses = Counter(link for send in (*costs.sends.values(), *costs.moves.values()) for link in send.links)
    links = resources.links([direction.label for direction in costs.links])
    least_cycles, lanes = _cycles_between_sends(context), set()
    for key, send in costs.sends.items():
        replica, pipeline_copy, source, target = key
        mapping = shape.copies[pipeline_copy]
        ends = resources.ipus(context.ipu(replica, mapping[end]).number for end in (source, target))
        way = way_number(pipeline_copy, source, target, shape)
        takes_time = send.cycles if send.links else send.lead_cycles
        has_own_links = all(uses[link] == 1 and clock.is_steady([links[link]]) for link in send.links)
        # At least one pass lies between two sends of a way.
        ends_before_next = send.cycles <= least_cycles[way] * clock.least_pass(ends[0])
        if takes_time and has_own_links and ends_before_next and clock.is_steady(ends, SpanKind.SEND):
            lanes.add(key)
    return lanes


def _cycles_between_sends(context: Context) -> list[int]:
    """Return per way the least cycles of the sending IPU's passes between two sends, at full speed."""
    shape, table = context.plan.shape, context.plan.instructions
    shard, code, stage, micro_batch, number = table.T
    begins = np.flatnonzero(np.diff(shard, prepend=-1))
    lengths = np.diff([*begins, len(table)])
    passed = np.cumsum(context.pass_cycles)
    passed -= np.repeat(passed[begins] - context.pass_cycles[begins], lengths)
    execution = np.repeat(passed[begins + lengths - 1], lengths)
    rows = np.flatnonzero(any_of(code, (Code.SEND, Code.BLOCKING_SEND)))
    way = tensor_numbers(stage, number, micro_batch, shape)[rows] // shape.micro_batches
    order = np.argsort(way, kind="stable")
    ways, firsts = np.unique(way[order], return_index=True)
    lasts = np.append(firsts[1:], len(rows))[: len(ways)] - 1
    times, next_execution = passed[rows[order]], execution[rows[order]]
    cycles = np.diff(times, append=0)
    cycles[lasts] = times[firsts] + next_execution[lasts] - times[lasts]
    least_cycles = np.zeros(2 * shape.stages * len(shape.copies), np.int64)
    least_cycles[ways] = np.minimum.reduceat(cycles, firsts)
    return least_cycles.tolist()
