"""Compute transfers from and to Streaming Memory between two meetings of IPUs, in equal shares of bandwidth."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
        self._run, self._cache = run, dict[object, dict[tuple[int, int], tuple[int, int]]]()
        if run.system.streaming is None:
            raise NotExactError("a system without Streaming Memory")
        most = max(Counter(map(run.system.streaming_memory_of, run.all_ipus)).values())
        shares = [run.system.streaming.share(transfers) / run.system.clock_hz for transfers in range(1, most + 1)]
        # Amounts are integers, in parts of a byte: arithmetic with fractions takes three times as long.
        self._parts_of_byte = math.lcm(*(share.denominator for share in shares))
        #: Parts per cycle and transfer, by number of transfers; 0 without transfers.
        self._shares = [0, *(int(share * self._parts_of_byte) for share in shares)]

    def carry_out(
        self, parts: Mapping[int, Sequence[Part]], start: Mapping[int, int]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """Return begin and end of every instruction, by IPU and row. ``start`` has the begin of every IPU."""
        first = min(start.values())
        key = tuple((ipu, start[ipu] - first, tuple(ipu_parts)) for ipu, ipu_parts in parts.items())
        if key not in self._cache:
            self._cache[key] = dict(self._times(parts, {ipu: start[ipu] - first for ipu in parts}))
        return {position: (first + begin, first + end) for position, (begin, end) in self._cache[key].items()}

    def _share(self, transfers: int) -> int:
        return self._shares[transfers]

    def _times(
        self, parts: Mapping[int, Sequence[Part]], start: Mapping[int, int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the times of every instruction, transfer by transfer."""
        queue: list[tuple[int, int]] = []
        for ipu, cycle in start.items():
            heappush(queue, (cycle, ipu))
        position = dict.fromkeys(parts, 0)
        open_parts: dict[int, dict[int, int]] = defaultdict(dict)
        clock, begin_of = dict[int, int](), dict[int, int]()
        arrivals: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        machine_of, share = self._run.system.streaming_memory_of, self._share

        def end_of(machine: int) -> int:
            moving = open_parts[machine]
            return clock[machine] - -min(moving.values()) // share(len(moving))

        def advance(machine: int, moment: int) -> None:
            moving = open_parts[machine]
            parts_done = (moment - clock.get(machine, moment)) * share(len(moving))
            open_parts[machine] = {ipu: rest - parts_done for ipu, rest in moving.items()}
            clock[machine] = moment

        while queue or any(open_parts.values()):
            ends = min(((end_of(machine), machine) for machine, moving in open_parts.items() if moving), default=None)
            if ends is not None and (not queue or ends[0] <= queue[0][0]):
                moment, machine = ends
                advance(machine, moment)
                for ipu in [ipu for ipu, rest in open_parts[machine].items() if rest <= 0]:
                    del open_parts[machine][ipu]
                    yield (ipu, parts[ipu][position[ipu]][0]), (begin_of[ipu], moment)
                    position[ipu] += 1
                    heappush(queue, (moment, ipu))
                continue
            moment, ipu = heappop(queue)
            if position[ipu] == len(parts[ipu]):
                continue
            row, size, cycles, is_meeting = parts[ipu][position[ipu]]
            if size:
                machine = machine_of(ipu)
                advance(machine, moment)
                open_parts[machine][ipu], begin_of[ipu] = size * self._parts_of_byte, moment
            elif is_meeting:
                arrived = arrivals[ipu % self._run.system.shards, row]
                arrived[ipu] = moment
                if len(arrived) == self._run.system.replicas:
                    for peer, arrival in arrived.items():
                        yield (peer, row), (arrival, moment + cycles)
                        position[peer] += 1
                        heappush(queue, (moment + cycles, peer))
            else:
                yield (ipu, row), (moment, moment + cycles)
                position[ipu] += 1
                heappush(queue, (moment + cycles, ipu))
