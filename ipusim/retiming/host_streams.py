"""Compute when infeed and outfeed elements are ready on IPU and host, without simulating events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ipusim.pipeline.instructions import Code
from ipusim.retiming.exact_run import ExactRun
from ipusim.retiming.scaled_cycles import Cycles


@dataclass
class FeedStream:
    """A stream between the host and an IPU, element by element.

    Element i of an infeed is ready at ``h[i] = max(h[i - 1], r[i - depth]) + host_cycles`` and read at
    ``r[i] = max(now, h[i]) + copy_cycles``; for an outfeed ``r`` and ``h`` swap roles.

    Attributes:
        code: INFEED or OUTFEED.
        shard: IPU at the end of the stream, by number within its replica.
        depth: elements of the buffer.
        copy_cycles: cycles of the IPU's copy of an element.
        host_cycles: cycles of the host's work on an element.
        host_end: end of the host's work on the last element, shape (replicas, K) for K sets of durations.
        places: cycle in which each place of the buffer becomes free, next place first; arrays like ``host_end``.
    """

    code: Code
    shard: int
    depth: int
    copy_cycles: int
    host_cycles: int
    host_end: Cycles
    places: deque[Cycles]

    def move(self, request: Cycles) -> Cycles:
        """Return the end of the IPU's copy of the next element, requested at ``request``."""
        if not self.host_cycles:
            return request + self.copy_cycles
        place = self.places[0]
        if self.code is Code.INFEED:
            self.host_end = np.maximum(self.host_end, place) + self.host_cycles
            copy_end = np.maximum(request, self.host_end) + self.copy_cycles
            self.places.append(copy_end)
        else:
            copy_end = np.maximum(request, place) + self.copy_cycles
            self.host_end = np.maximum(self.host_end, copy_end) + self.host_cycles
            self.places.append(self.host_end)
        return copy_end


#: Streams of a run by code and shard; both ends of a pipeline may be on a single IPU.
Streams = dict[tuple[Code, int], FeedStream]


def host_streams(run: ExactRun, columns: int) -> Streams:
    """Return a run's streams before the first element, for ``columns`` sets of durations."""
    program, shape, host = run.program, run.plan.shape, run.costs.host
    fill_cycles = int(host.fill_of(1)) if host.fill and host.data else int(host.fill)
    outfeed, streams = program.outfeed_elements, Streams()

    def add(code: Code, shard: int, depth: int, copy_cycles: int, host_cycles: int) -> None:
        begin = np.zeros((run.replicas, columns), np.int64)
        streams[code, shard] = FeedStream(
            code, shard, depth, copy_cycles, host_cycles, begin, deque([begin] * depth, depth)
        )

    for pipeline_copy, mapping in enumerate(shape.copies):
        copy_batches = range(pipeline_copy, shape.micro_batches, len(shape.copies))
        if host.infeed or fill_cycles:
            add(Code.INFEED, mapping[0], program.infeed.prefetch_depth, int(host.infeed), fill_cycles)
        numbers = 1 if outfeed.accumulated else sum(number in copy_batches for number in outfeed.micro_batches)
        if (host.outfeed or host.drain) and numbers:
            elements = run.executions // outfeed.period * numbers
            depth = min(program.outfeed.buffer_depth, max(1, elements))
            add(Code.OUTFEED, mapping[-1], depth, int(host.outfeed), int(host.drain))
    return streams
