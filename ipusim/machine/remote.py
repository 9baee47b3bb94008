"""Streaming Memory at work: transfers of several IPUs at once share the bandwidth of their machine's DRAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import simpy

from ipusim.hardware.rounding import transfer_cycles
from ipusim.hardware.streaming import StreamingMemory
from ipusim.lowering.streams import Stream
from ipusim.machine.clock import Clock, Process, Spans
from ipusim.machine.rendezvous import Wait
from ipusim.machine.resources import streaming_memory
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


@dataclass(eq=False)
class _Transfer:
    """A transfer under way: the bytes that are left, and what its IPU waits for."""

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

    def _serve(self) -> Process:
        """Let the transfers end one after the other until none is left; a SimPy process."""
        while self._active:
            self._changed = self._clock.event()
            least = min(each.left for each in self._active)
            rate = self._spec.share(len(self._active))
            cycles = transfer_cycles(least, rate, self._clock_hz)
            yield self._clock.spend(self._workers, SpanKind.REMOTE_LOAD, cycles) | self._changed
            self._advance()
        self._serving = False

    def _advance(self) -> None:
        """Move on every transfer to this moment, and end those with nothing left."""
        now = self._clock.now
        if self._active:
            (memory,) = self._workers
            worked = self._clock.worked(memory, SpanKind.REMOTE_LOAD, self._since, now)
            moved = self._spec.share(len(self._active)) * worked / self._clock_hz
            for each in self._active:
                each.left -= moved
            for each in [each for each in self._active if each.left <= 0]:
                self._active.remove(each)
                each.done.succeed()
        self._since = now


class RemotePort:
    """One IPU's end of its Streaming Memory.

    Attributes:
        passes: bytes before and after each (pass, stage) of the IPU.
        update: bytes before and after its weight update.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        memory: RemoteMemory,
        *,
        ipu: int,
        replica: int,
        passes: Mapping[tuple[int, int], Stream],
        update: Stream,
    ) -> None:
        """Describe the transfers of logical IPU ``ipu``, in replica ``replica``."""
        self.passes = passes
        self.update = update
        self._ipu = ipu
        self._under_way = ""
        self._clock = clock
        self._record = recorder.record
        self._memory = memory
        loads, stores = (
            {
                size: recorder.describe(Description(kind, ipu, bytes=size, replica=replica))
                for size in sorted({stream[side] for stream in (*passes.values(), update)})
            }
            for side, kind in enumerate((SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE))
        )
        self._loads, self._stores = loads, stores

    def waits_for(self, ipu: int) -> Wait | None:
        """Return which transfer ``ipu`` waits for; None where it waits for none."""
        return Wait(self._under_way) if ipu == self._ipu and self._under_way else None

    def load(self, stream: Stream, step: int, cause: int) -> Spans:
        """Load what ``stream`` says, and return the span that it took; without any, ``cause``."""
        return self._move(stream.load, self._loads, step, cause)

    def store(self, stream: Stream, step: int, cause: int) -> Spans:
        """Store what ``stream`` says, and return the span that it took; without any, ``cause``."""
        return self._move(stream.store, self._stores, step, cause)

    def _move(self, size: int, described: Mapping[int, int], step: int, cause: int) -> Spans:
        if not size:
            return cause
        start = self._clock.now
        self._under_way = f"the {'load' if described is self._loads else 'store'} of {size} bytes in Streaming Memory"
        yield self._memory.transfer(size)
        self._under_way = ""
        return self._record(described[size], step, start, self._clock.now, cause)
