"""Streaming Memory at work: transfers of several IPUs at once share the bandwidth of their machine's DRAM."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import simpy

from ipusim.base.errors import ProgramError
from ipusim.hardware.rounding import transfer_cycles
from ipusim.hardware.streaming import StreamingMemory
from ipusim.lowering.streams import Stream
from ipusim.machine.clock import Clock, Process, Spans
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.resources import streaming_memory
from ipusim.pipeline.instructions import NONE, Code
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description

#: Bytes before and after each (pass, stage).
Passes = Mapping[tuple[int, int], Stream]


@dataclass(eq=False)
class _Transfer:
    """A transfer in progress: the bytes left, and the event that its IPU waits for."""

    left: Fraction
    done: simpy.Event


class RemoteMemory:
    """The Streaming Memory of one machine, as the IPUs that share it meet it.

    Between two events every transfer advances by its share, exactly. The one that has least
    left ends in the first whole cycle in which its last byte has passed.
    """

    def __init__(self, clock: Clock, spec: StreamingMemory, clock_hz: int, machine: int = 0) -> None:
        """Begin idle, as the memory of that machine."""
        self._workers = streaming_memory(machine)
        self._clock = clock
        self._spec = spec
        self._clock_hz = clock_hz
        self._active: list[_Transfer] = []
        self._since = 0
        self._serving = False
        self._changed = clock.event()

    def transfer(self, byte_count: int) -> simpy.Event:
        """Begin to load or store ``byte_count`` bytes, at least 1, and return the event of their end."""
        self._advance()
        self._active.append(_Transfer(Fraction(byte_count), self._clock.event()))
        if not self._serving:
            self._serving = True
            self._clock.process(self._serve())
        elif not self._changed.triggered:
            self._changed.succeed()
        return self._active[-1].done

    def state(self) -> Hashable:
        """Return the bytes that are left of each transfer, in the order in which they began."""
        moved = self._moved()
        return tuple(transfer.left - moved for transfer in self._active)

    def _moved(self) -> Fraction:
        """Return the bytes of each transfer that have passed since all were advanced."""
        (memory,) = self._workers
        worked = self._clock.worked(memory, SpanKind.REMOTE_LOAD, self._since, self._clock.now)
        return self._spec.share(max(len(self._active), 1)) * worked / self._clock_hz

    def _serve(self) -> Process:
        """Let the transfers end one after the other until none is left; a SimPy process."""
        while self._active:
            self._changed = self._clock.event()
            least = min(transfer.left for transfer in self._active)
            rate = self._spec.share(len(self._active))
            cycles = transfer_cycles(least, rate, self._clock_hz)
            yield self._clock.spend(self._workers, SpanKind.REMOTE_LOAD, cycles) | self._changed
            self._advance()
        self._serving = False

    def _advance(self) -> None:
        """Advance every transfer to the current cycle, and end those with no bytes left."""
        if self._active:
            moved = self._moved()
            for transfer in self._active:
                transfer.left -= moved
            for transfer in [transfer for transfer in self._active if transfer.left <= 0]:
                self._active.remove(transfer)
                transfer.done.succeed()
        self._since = self._clock.now


class RemotePort(Facility):
    """One IPU's end of its Streaming Memory."""

    def __init__(
        self, context: Context, memories: Mapping[int, RemoteMemory], ipu: IpuId, passes: Passes, update: Stream
    ) -> None:
        """Describe the transfers of ``ipu``: before and after each (pass, stage), and those of its weight update.

        It uses the last one of ``memories``, which are by the cycle from which on it does.
        """
        self.ipus = (ipu,)
        self.handlers = {Code.LOAD: partial(self._move, 0), Code.STORE: partial(self._move, 1)}
        self._passes, self._update = passes, update
        self._clock, self._record, self._memories = context.clock, context.recorder.record, memories
        self._under_way = ""
        self._spans = [
            {
                size: context.recorder.describe(Description(kind, ipu.number, bytes=size, replica=ipu.replica))
                for size in sorted({stream[side] for stream in (*passes.values(), update)})
            }
            for side, kind in enumerate((SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE))
        ]

    @property
    def _memory(self) -> RemoteMemory:
        now = self._clock.now
        return self._memories[max(cycle for cycle in self._memories if cycle <= now)]

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - it serves one
        """Return the transfer that the IPU waits for; None where it waits for none."""
        return Wait(self._under_way) if self._under_way else None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - bytes, of whatever micro-batch
        """Return what is under way for the IPU, and all transfers of its machine's memory."""
        return self._under_way, self._memory.state()

    def _move(self, store: int, _ipu: IpuId, stage: int, _micro_batch: int, kind: int, step: int, cause: int) -> Spans:
        """Load or store what an instruction says; returns the span of that, or without any bytes the ``cause``."""
        size = (self._update if stage == NONE else self._passes[kind, stage])[store]
        if not size:
            return cause
        start = self._clock.now
        self._under_way = f"the {'store' if store else 'load'} of {size} bytes in Streaming Memory"
        yield self._memory.transfer(size)
        self._under_way = ""
        return self._record(self._spans[store][size], step, start, self._clock.now, cause)


def build(context: Context) -> Iterator[RemotePort]:
    """Connect each IPU that keeps anything in Streaming Memory to that of its machine."""
    system, costs, shape = context.system, context.costs, context.plan.shape
    memories: dict[int, RemoteMemory] = {}
    for ipu in context.ipus():
        passes = {key: stream for key, stream in costs.pass_streams.items() if ipu.shard in shape.ipus_of(key[1])}
        update = costs.update_streams.get(ipu.shard, Stream())
        if not passes and ipu.shard not in costs.update_streams:
            continue
        if system.streaming is None:
            raise ProgramError(f"{system.name} has no Streaming Memory for what IPU {ipu.number} keeps there")
        devices = {0: system} | {later.cycle: later.system for later in context.rerouted}
        machines = {cycle: device.streaming_memory_of(ipu.number) for cycle, device in devices.items()}
        for machine in machines.values():
            if machine not in memories:
                memories[machine] = RemoteMemory(context.clock, system.streaming, system.clock_hz, machine)
        own = {cycle: memories[machine] for cycle, machine in machines.items()}
        yield RemotePort(context, own, ipu, passes, update)
