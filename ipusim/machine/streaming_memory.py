"""Simulate Streaming Memory: transfers of several IPUs share the DRAM bandwidth of their IPU-Machine."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import partial

from ipusim.base.errors import ProgramError
from ipusim.hardware.streaming import StreamingMemory
from ipusim.lowering.streams import Stream
from ipusim.machine.activation_moves import activation_moves
from ipusim.machine.clock import Clock, Spans
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.resources import streaming_memory
from ipusim.machine.shared_rate import SharedRate
from ipusim.pipeline.instructions import NONE, Code
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description

#: Bytes loaded before and stored after every (pass, stage).
Passes = Mapping[tuple[int, int], Stream]


class RemoteMemory(SharedRate):
    """The Streaming Memory of an IPU-Machine, shared by the machine's IPUs."""

    def __init__(self, clock: Clock, spec: StreamingMemory, clock_hz: int, machine: int = 0) -> None:
        """Begin idle, as the memory of ``machine``."""
        super().__init__(
            clock, streaming_memory(machine), SpanKind.REMOTE_LOAD, lambda transfers: spec.share(transfers) / clock_hz
        )


class RemotePort(Facility):
    """An IPU's connection to Streaming Memory."""

    def __init__(
        self, context: Context, memories: Mapping[int, RemoteMemory], ipu: IpuId, passes: Passes, update: Stream
    ) -> None:
        """Describe the transfers of ``ipu``, around every (pass, stage) and the weight update.

        ``memories`` maps first cycles to memories in use.
        """
        self.ipus = (ipu,)
        self.handlers = {Code.LOAD: partial(self._transfer, 0), Code.STORE: partial(self._transfer, 1)}
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
        return _current_memory(self._clock, self._memories)

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - a port serves a single IPU
        """Return the transfer that the IPU waits for; None if the IPU does not wait."""
        return Wait(self._under_way) if self._under_way else None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - transfers do not depend on micro-batches
        """Return the IPU's transfer under way, and the transfers of the machine's memory."""
        return self._under_way, self._memory.state()

    def _transfer(
        self, store: int, _ipu: IpuId, stage: int, _micro_batch: int, kind: int, step: int, cause: int
    ) -> Spans:
        """Load or store an instruction's bytes; return the span, or ``cause`` without bytes."""
        size = (self._update if stage == NONE else self._passes[kind, stage])[store]
        if not size:
            return cause
        start = self._clock.now
        self._under_way = f"the {'store' if store else 'load'} of {size} bytes in Streaming Memory"
        yield self._memory.transfer(size)
        self._under_way = ""
        return self._record(self._spans[store][size], step, start, self._clock.now, cause)


def build(context: Context) -> Iterator[Facility]:
    """Connect IPUs with tensors in Streaming Memory to an IPU-Machine's memory."""
    system, costs, shape = context.system, context.costs, context.plan.shape
    memories: dict[int, RemoteMemory] = {}
    devices = {0: system} | {reroute.cycle: reroute.system for reroute in context.rerouted}

    def memories_of(ipu: IpuId) -> dict[int, RemoteMemory]:
        if system.streaming is None:
            return {}
        machines = {cycle: device.streaming_memory_of(ipu.number) for cycle, device in devices.items()}
        for machine in machines.values():
            if machine not in memories:
                memories[machine] = RemoteMemory(context.clock, system.streaming, system.clock_hz, machine)
        return {cycle: memories[machine] for cycle, machine in machines.items()}

    for ipu in context.ipus():
        passes = {key: stream for key, stream in costs.pass_streams.items() if ipu.shard in shape.ipus_of(key[1])}
        update = costs.update_streams.get(ipu.shard, Stream())
        if not passes and ipu.shard not in costs.update_streams:
            continue
        ipu_memories = memories_of(ipu)
        if not ipu_memories:
            raise ProgramError(f"{system.name} has no Streaming Memory for the data of IPU {ipu.number}")
        yield RemotePort(context, ipu_memories, ipu, passes, update)
    options = context.program.moved_activations
    if options is not None and options.to == "streaming_memory":
        yield from activation_moves(context, lambda ipu: partial(_current_memory, context.clock, memories_of(ipu)))


def _current_memory(clock: Clock, memories: Mapping[int, RemoteMemory]) -> RemoteMemory:
    """Return the memory in use now, from memories keyed by first cycle."""
    current_cycle = clock.now
    return memories[max(cycle for cycle in memories if cycle <= current_cycle)]
