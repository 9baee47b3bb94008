"""Define a facility: a part of the machine, such as links or host, that carries out some instructions.

Every facility of a run is built from the same context. Work and waits are recorded as spans (intervals of the run);
the cause of a span is the number of the span that let it begin.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
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
    """An IPU that holds a stage.

    Attributes:
        number: logical number on the device.
        replica: replica of the pipeline.
        shard: number within the replica.
    """

    number: int
    replica: int
    shard: int


class Wait(NamedTuple):
    """The reason why an IPU waits.

    Attributes:
        text: reason in words.
        ipus: logical IPUs that keep the IPU waiting; empty for another reason.
    """

    text: str
    ipus: tuple[int, ...] = ()


#: Function from (ipu, stage, micro-batch, number, step, cause) of an instruction to the IPU's latest span, after the
#: instruction. The span may also be the value of a returned event, or the result of a returned generator. Handlers with
#: events may add the description of the IPU's wait.
Handler = Callable[[IpuId, int, int, int, int, int], int | simpy.Event | tuple[simpy.Event, int] | Spans]


class Facility:
    """A part of the machine that carries out some of the instructions.

    Attributes:
        ipus: IPUs that use the facility.
        handlers: handler per instruction code.
    """

    ipus: tuple[IpuId, ...]
    handlers: Mapping[Code, Handler]

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - default: waits for time only
        """Return the reason why logical IPU ``ipu`` waits in this facility; None if the IPU does not wait here."""
        return None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - default: no state beyond scheduled events
        """Return the state that determines the future.

        Times are relative to now, micro-batches to ``first_micro_batch``.
        """
        return ()


@dataclass(frozen=True)
class Context:
    """A run under construction.

    Attributes:
        clock: the machine's time.
        recorder: records of spans.
        plan: instructions per IPU.
        program: stages and exchanged data.
        system: the device.
        costs: durations on the device.
        arithmetic: callbacks with arithmetic per replica.
        executions: executions of the pipeline.
        progress: callback with the number of finished time-steps.
        rerouted: costs of copies after each change of routes, in order.
        in_phases: whether stages run every micro-batch through a kind of pass before the next kind, so that tensors
            for a later phase pile up.
    """

    clock: Clock
    recorder: Recorder
    plan: Plan
    program: PipelineProgram
    system: System
    costs: Costs
    arithmetic: Replicas
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
        """Replicas of the pipeline."""
        return range(self.system.replicas)

    @cached_property
    def pass_cycles(self) -> npt.NDArray[np.int64]:
        """Cycles of every instruction that is a pass, at full speed; 0 for other instructions."""
        return self.costs.pass_cycles(self.plan)

    @cached_property
    def groups(self) -> list[list[int]]:
        """Groups of replicas that meet after time-steps: one group of all replicas, or a group per replica."""
        is_joint = len(self.costs.copies.by_group) == 1
        return [list(self.replicas)] if is_joint else [[replica] for replica in self.replicas]

    def ipus(self, replicas: Iterable[int] | None = None) -> list[IpuId]:
        """Return the IPUs of some replicas that hold a stage. The default is every replica."""
        numbers = self.replicas if replicas is None else replicas
        return [self.ipu(replica, shard) for replica in numbers for shard in self.plan.ipus]

    def ipu(self, replica: int, shard: int) -> IpuId:
        """Return a replica's IPU."""
        return IpuId(replica * self.system.shards + shard, replica, shard)

    def ipu_of(self, replica: int, stage: int, pipeline_copy: int = 0) -> IpuId:
        """Return the IPU of a replica that holds a copy of a stage."""
        return self.ipu(replica, self.plan.shape.copies[pipeline_copy][stage])

    def executor(self, replica: int) -> Executor:
        """Return a replica's arithmetic."""
        return self.arithmetic.executors[replica]

    def wait(self, end: int, description: int, step: int, cause: int) -> Spans:
        """Wait until ``end``; return the wait's span, or ``cause`` without a wait."""
        start = self.clock.now
        if end == start:
            return cause
        yield self.clock.event_at(end)
        return self.recorder.record(description, step, start, end, cause)

    def describe_ipus(self, kind: SpanKind, ipus: Iterable[IpuId]) -> dict[int, int]:
        """Return a span description of a kind per IPU, by the IPU's number."""
        members = list(ipus)
        first = self.recorder.describe(*(Description(kind, ipu.number, replica=ipu.replica) for ipu in members))
        return {ipu.number: first + index for index, ipu in enumerate(members)}
