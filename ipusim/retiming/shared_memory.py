"""Streaming Memory without events: transfers in equal shares between two meetings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heappop, heappush

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import NONE, Code
from ipusim.retiming.exact_run import ExactRun

#: Part of an IPU's instructions: row, bytes to move, cycles to spend, whether replicas meet.
Part = tuple[int, int, int, bool]


def moved_bytes(run: ExactRun, row: int) -> int:
    """Return the bytes that an instruction loads, stores or moves."""
    shard, code, stage, _, kind = run.plan.instructions[row].tolist()
    if code == Code.MOVE:
        return run.costs.moves[0, shard, stage, kind].bytes
    stream = run.costs.update_streams.get(shard) if stage == NONE else run.costs.pass_streams.get((kind, stage))
    return 0 if stream is None else int(stream[code == Code.STORE])


class SharedMemory:
    """The Streaming Memories of a device. Equal stretches of instructions are computed once."""

    def __init__(self, run: ExactRun) -> None:
        """Take the bandwidth; raises NotExactError for a system without Streaming Memory."""
        self._run, self._known = run, dict[object, dict[tuple[int, int], tuple[int, int]]]()
        if run.system.streaming is None:
            raise NotExactError("a system without Streaming Memory")
        self._streaming, self._clock_hz = run.system.streaming, run.system.clock_hz

    def carry_out(
        self, parts: Mapping[int, Sequence[Part]], start: Mapping[int, int]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """Return begin and end of every instruction, by IPU and row.

        ``start`` has the begin of every IPU.
        """
        first = min(start.values())
        key = tuple((ipu, start[ipu] - first, tuple(own)) for ipu, own in parts.items())
        if key not in self._known:
            self._known[key] = dict(self._times(parts, {ipu: start[ipu] - first for ipu in parts}))
        return {at: (first + begin, first + end) for at, (begin, end) in self._known[key].items()}

    def _share(self, transfers: int) -> Fraction:
        return self._streaming.share(transfers) / self._clock_hz

    def _times(
        self, parts: Mapping[int, Sequence[Part]], start: Mapping[int, int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the times of every instruction, transfer by transfer."""
        queue: list[tuple[int, int]] = []
        for ipu, cycle in start.items():
            heappush(queue, (cycle, ipu))
        place = dict.fromkeys(parts, 0)
        left: dict[int, dict[int, Fraction]] = defaultdict(dict)
        since, began = dict[int, int](), dict[int, int]()
        here: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        machine_of = self._run.system.streaming_memory_of

        def end_of(machine: int) -> int:
            return since[machine] + math.ceil(min(left[machine].values()) / self._share(len(left[machine])))

        def advance(machine: int, now: int) -> None:
            moved = (now - since.get(machine, now)) * self._share(max(1, len(left[machine])))
            left[machine] = {ipu: size - moved for ipu, size in left[machine].items()}
            since[machine] = now

        while queue or any(left.values()):
            ends = min(((end_of(machine), machine) for machine, moving in left.items() if moving), default=None)
            if ends is not None and (not queue or ends[0] <= queue[0][0]):
                now, machine = ends
                advance(machine, now)
                for ipu in [ipu for ipu, size in left[machine].items() if size <= 0]:
                    del left[machine][ipu]
                    yield (ipu, parts[ipu][place[ipu]][0]), (began[ipu], now)
                    place[ipu] += 1
                    heappush(queue, (now, ipu))
                continue
            now, ipu = heappop(queue)
            if place[ipu] == len(parts[ipu]):
                continue
            row, size, cycles, meets = parts[ipu][place[ipu]]
            if size:
                machine = machine_of(ipu)
                advance(machine, now)
                left[machine][ipu], began[ipu] = Fraction(size), now
            elif meets:
                arrived = here[ipu % self._run.system.shards, row]
                arrived[ipu] = now
                if len(arrived) == self._run.system.replicas:
                    for other, since_then in arrived.items():
                        yield (other, row), (since_then, now + cycles)
                        place[other] += 1
                        heappush(queue, (now + cycles, other))
            else:
                yield (ipu, row), (now, now + cycles)
                place[ipu] += 1
                heappush(queue, (now + cycles, ipu))
