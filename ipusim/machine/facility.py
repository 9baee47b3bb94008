"""Facilities of the machine: handlers of instructions, with the IPUs that wait in them, and those they wait for.

All facilities of a run are built from one context.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import simpy

from ipusim.hardware.system import System
from ipusim.machine.clock import Clock, Spans
from ipusim.machine.executor import Executor, Replicas
from ipusim.machine.rerouted import Rerouted
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder


class IpuId(NamedTuple):
    """One IPU that holds a stage.

    Attributes:
        number: its logical number on the device.
        replica: the replica of the pipeline that it belongs to.
        shard: its number within the replica.
    """

    number: int
    replica: int
    shard: int


class Wait(NamedTuple):
    """The reason why an IPU waits.

    Attributes:
        text: in words.
        ipus: the logical IPUs that keep it waiting; none where it is something else.
    """

    text: str
    ipus: tuple[int, ...] = ()


#: What carries out an instruction: (ipu, stage, micro-batch, number, step, cause) to the span that the IPU goes on
#: behind. That is there at once, or the value of an event, or what a part of a process returns. With an event comes the
#: description of the IPU's wait for it, where that is a span.
Handler = Callable[[IpuId, int, int, int, int, int], int | simpy.Event | tuple[simpy.Event, int] | Spans]


class Facility:
    """A part of the machine that IPUs meet in their instructions.

    Attributes:
        ipus: whose instructions it carries out.
        handlers: what carries out each of the instructions that it knows.
    """

    ipus: tuple[IpuId, ...]
    handlers: Mapping[Code, Handler]

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - by default IPUs wait for time alone
        """Return what logical IPU ``ipu`` waits for here; None where it does not."""
        return None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - by default nothing but events to come
        """Return all state its future depends on, with times relative to now and micro-batches to the first one."""
        return ()


@dataclass(frozen=True)
class Context:
    """A run that is being built.

    Attributes:
        clock, recorder: the time of the machine, and what it records.
        plan, program, system, costs: what runs, on what, and what everything takes.
        together: the arithmetic.
        executions: of the pipeline.
        progress: called with the time-steps behind.
        rerouted: what copies cost when cables die, in order.
        in_phases: whether stages run all micro-batches through one kind of pass before the next, so that tensors that
            a later phase takes pile up in an earlier one.
    """

    clock: Clock
    recorder: Recorder
    plan: Plan
    program: PipelineProgram
    system: System
    costs: Costs
    together: Replicas
    executions: int
    progress: Callable[[int], object]
    rerouted: tuple[Rerouted, ...] = ()
    in_phases: bool = False

    @property
    def steps(self) -> int:
        """Time-steps of an execution; the weight update counts as the last."""
        return self.plan.emitted + 1

    @property
    def replicas(self) -> range:
        """The replicas of the pipeline."""
        return range(self.system.replicas)

    @cached_property
    def groups(self) -> list[list[int]]:
        """The replicas that meet after time-steps and executions: all together, or each by itself."""
        together = len(self.costs.copies.meetings) == 1
        return [list(self.replicas)] if together else [[replica] for replica in self.replicas]

    def ipus(self, replicas: Iterable[int] | None = None) -> list[IpuId]:
        """Return the IPUs of some replicas that hold a stage, by default of all."""
        chosen = self.replicas if replicas is None else replicas
        return [self.ipu(replica, shard) for replica in chosen for shard in self.plan.ipus]

    def ipu(self, replica: int, shard: int) -> IpuId:
        """Return an IPU of a replica."""
        return IpuId(replica * self.system.shards + shard, replica, shard)

    def ipu_of(self, replica: int, stage: int, copy: int = 0) -> IpuId:
        """Return the IPU of a replica that holds a copy of a stage."""
        return self.ipu(replica, self.plan.shape.copies[copy][stage])

    def executor(self, replica: int) -> Executor:
        """Return the arithmetic of a replica."""
        return self.together.executors[replica]

    def wait(self, end: int, what: int, step: int, cause: int) -> Spans:
        """Wait until a cycle; return the span of the wait, which ``what`` describes, or without a wait the cause."""
        start = self.clock.now
        if end == start:
            return cause
        yield self.clock.at(end)
        return self.recorder.record(what, step, start, end, cause)

    def described(self, kind: SpanKind, ipus: Iterable[IpuId]) -> dict[int, int]:
        """Return the description of spans of a kind on each of these IPUs, by its number."""
        own = list(ipus)
        first = self.recorder.describe(*(Description(kind, ipu.number, replica=ipu.replica) for ipu in own))
        return {ipu.number: first + at for at, ipu in enumerate(own)}
