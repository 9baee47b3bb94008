"""What every facility of the machine is built from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from ipusim.hardware.system import System
from ipusim.machine.clock import Clock
from ipusim.machine.executor import Executor, Replicas
from ipusim.machine.facility import IpuId
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.timeline.recorder import Recorder


@dataclass(frozen=True)
class Context:
    """A run that is being built.

    Attributes:
        clock, recorder: the time of the machine, and what it records.
        plan, program, system, costs: what runs, on what, and what everything takes.
        together: the arithmetic.
        executions: of the pipeline.
        progress: called with the time-steps behind.
        ended: called with the number of executions that have ended, before the next one begins.
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
    ended: Callable[[int], object]

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

    def ipu_of(self, replica: int, stage: int) -> IpuId:
        """Return the IPU of a replica that holds a stage."""
        return self.ipu(replica, self.plan.shape.mapping[stage])

    def executor(self, replica: int) -> Executor:
        """Return the arithmetic of a replica."""
        return self.together.executors[replica]
