"""Compute the times of a run from its Plan without simulating events, for K sets of durations at once.

The results check the simulation, and give the lengths of many similar runs in little time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import NotExactError
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.retiming.exact_run import ExactRun
from ipusim.retiming.host_streams import host_streams
from ipusim.retiming.precedence import Precedence
from ipusim.retiming.scaled_cycles import Cycles
from ipusim.retiming.shared_memory import SharedMemory
from ipusim.retiming.stretches import Ending, Execution, Record
from ipusim.retiming.time_steps import StepTimes

#: Times in memory at once: 64 MB.
_MOST_TIMES_IN_MEMORY: Final = 2**23


class Makespans(NamedTuple):
    """Lengths of a run for K sets of durations.

    Attributes:
        cycles: end of the last execution, shape (K,).
        exact: whether the cycles are exact, shape (K,); false if tensors share a link.
    """

    cycles: Cycles
    exact: npt.NDArray[np.bool_]


class DrawnRuns(NamedTuple):
    """Lengths of a run for K sets of jitter seeds.

    Attributes:
        cycles: end of the last session run, shape (K,).
        pipeline: length of the first execution without the weight update, shape (K,).
        compute: cycles of passes in the first execution, per IPU that holds a stage, shape (IPUs, K).
        exact: whether the cycles are exact, shape (K,); false if tensors share a link.
    """

    cycles: Cycles
    pipeline: Cycles
    compute: Cycles
    exact: npt.NDArray[np.bool_]


class ExecutionTimes(NamedTuple):
    """The times of an execution, in cycles from the start of the run.

    Attributes:
        start, end: times of passes, weight updates and sent tensors, shape (instructions, replicas), in the order of
            the Plan's instructions; -1 for other instructions. Tensors start at handover.
        execution_end: final meeting of every replica's IPUs, shape (replicas,).
    """

    start: Cycles
    end: Cycles
    execution_end: Cycles


class Growth(NamedTuple):
    """A run's growth per additional cycle of a part, and decline per omitted cycle.

    Attributes:
        passes: change per cycle of the passes of a kind in a stage, shape (2, kinds, stages).
        passes_exact: whether ``passes`` is exact.
        copies: change per cycle of the copies between IPUs, shape (2,).
        copies_exact: whether ``copies`` is exact.
    """

    passes: Cycles
    passes_exact: npt.NDArray[np.bool_]
    copies: Cycles
    copies_exact: npt.NDArray[np.bool_]


class Retiming:
    """The times of a run as functions of its durations.

    The class shares Plan and Costs with the machine, but no code for events, clock, IPU processes, delivery of tensors,
    links and meetings.
    """

    def __init__(self, run: ExactRun) -> None:
        """Compile the run."""
        self._run, self._ending = run, Ending(run)
        replicas_meet = run.replicas_meet or self._ending.has_joint_meeting or run.system.replicas == 1
        self._memory = SharedMemory(run) if run.has_streams and replicas_meet else None
        if (
            run.replicas > 1
            and run.executions > 1
            and not (replicas_meet or run.plan.sync.has_time_steps)
            and _share_links(run)
        ):
            raise NotExactError("replicas that share links and do not meet")
        streams = host_streams(run, 1)
        self._pipelines: dict[bool, StepTimes | Precedence] = {}
        period = run.program.outfeed_elements.period
        for is_due in {(number + 1) % period == 0 for number in range(min(run.executions, period))}:
            if run.plan.sync.has_time_steps:
                self._pipelines[is_due] = self._pipelines.get(not is_due) or StepTimes(run, streams)
            else:
                self._pipelines[is_due] = Precedence(run, streams, is_due)

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        program: PipelineProgram,
        system: System,
        *,
        costs: Costs,
        executions: int | None = None,
        between: Mapping[int, Sequence[HostExchange]] | None = None,
    ) -> Retiming:
        """Compile a run, given by the arguments of :func:`ipusim.machine.simulate.simulate`.

        Args:
            plan: instructions per IPU.
            program: stages and feeds.
            system: the device.
            costs: costs of the plan on the device.
            executions: executions of the pipeline; by default the program's repeat count.
            between: collectives of hosts before an execution, by the execution's number.

        Returns:
            The run, compiled.

        Raises:
            NotExactError: if times depend on more than durations; the message is the reason.
        """
        count = program.repeat_count if executions is None else executions
        return cls(ExactRun.create(plan, program, system, costs, count, between or {}))

    def times(self) -> Iterator[ExecutionTimes]:
        """Yield the times of every execution in order. Raises NotExactError if tensors share a link."""
        run = self._run
        for execution, end in self._executions(run.durations, np.zeros(1, np.int64), with_record=True):
            if not execution.exact.all():
                raise NotExactError("tensors that share a link")
            assert execution.record is not None
            ends = np.broadcast_to(end[:, 0], (run.system.replicas,))
            shape = len(execution.record.start), run.system.replicas
            yield ExecutionTimes(
                np.broadcast_to(execution.record.start, shape), np.broadcast_to(execution.record.end, shape), ends
            )

    def executions(self, durations: npt.ArrayLike, further: npt.ArrayLike = 0) -> Makespans:
        """Return the lengths of the run for durations of passes.

        Args:
            durations: cycles of every pass, shape (K, kinds, stages), kinds numbered like :class:`Pass`.
            further: additional cycles of every copy between IPUs (a merged copy, or a tensor), shape (K,).

        Returns:
            The run's lengths, exact or not.
        """
        rows = np.asarray(durations, np.int64)
        further_cycles = np.broadcast_to(np.asarray(further, np.int64), rows.shape[:1])
        nodes = len(self._run.plan.instructions) * self._run.replicas
        chunk_size = max(1, _MOST_TIMES_IN_MEMORY // max(1, nodes))
        chunks = (slice(begin, begin + chunk_size) for begin in range(0, len(rows), chunk_size))
        parts = [self._makespans(rows[chunk], further_cycles[chunk]) for chunk in chunks]
        return Makespans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _makespans(self, durations: Cycles, further: Cycles) -> Makespans:
        exact = np.ones(len(durations), bool)
        for execution, execution_end in self._executions(durations, further):
            exact &= execution.exact
            end = execution_end
        return Makespans(end.max(axis=0), exact)

    def draw_runs(self, seeds: npt.ArrayLike) -> Iterator[DrawnRuns]:
        """Yield the lengths of the run for other jitter seeds, in chunks.

        Args:
            seeds: seeds of the jitters, in the order of the disturbances, shape (K, jitters).

        Yields:
            Lengths for the next sets, in order.
        """
        rows = np.asarray(seeds, np.int64)
        nodes = len(self._run.plan.instructions) * self._run.replicas
        chunk_size = max(1, _MOST_TIMES_IN_MEMORY // max(1, nodes))
        for begin in range(0, len(rows), chunk_size):
            sets = rows[begin : begin + chunk_size]
            exact, further = np.ones(len(sets), bool), np.zeros(len(sets), np.int64)
            durations = np.repeat(self._run.durations, len(sets), axis=0)
            for execution, execution_end in self._executions(durations, further, seeds=sets):
                exact &= execution.exact
                end = execution_end
                if execution.number == 0:
                    pipeline, compute = execution.pipeline, self._compute(execution)
            end_cycles = self._run.cycles_before(self._run.executions)
            yield DrawnRuns(end.max(axis=0) + end_cycles, pipeline, compute, exact)

    def _compute(self, execution: Execution) -> Cycles:
        """Return the cycles of passes per IPU that holds a stage, shape (IPUs, K)."""
        run = self._run
        shard, code = run.plan.instructions[:, :2].T
        rows = np.flatnonzero(any_of(code, tuple(Pass)))
        sums = [
            execution.passes.table[execution.passes.rows[rows[shard[rows] == ipu]]].sum(axis=0) for ipu in run.plan.ipus
        ]
        copies = run.system.replicas // execution.passes.table.shape[1]
        compute: Cycles = np.concatenate(sums).repeat(copies, axis=0)
        return compute

    def growth(self, kinds: Iterable[int] = tuple(Pass)) -> Growth:
        """Return the run's change per additional and omitted cycle of passes and copies.

        Args:
            kinds: kinds of passes; other kinds get 0 cycles.

        Returns:
            Changes in cycles, with masks of exact changes.

        Raises:
            NotExactError: if tensors share a link in the unchanged run.
        """
        base = self._run.durations[0]
        if not self.executions([base]).exact[0]:
            raise NotExactError("tensors that share a link")
        is_varied = np.isin(np.arange(len(base)), list(kinds)).repeat(base.shape[1])
        steps = np.eye(base.size, dtype=np.int64)[is_varied].reshape(-1, *base.shape)
        further = np.r_[0, 1, -1, np.zeros(2 * len(steps), np.int64)]
        sets = np.concatenate([np.stack([base] * 3), base + steps, np.maximum(base - steps, 0)])
        cycles, exact = self.executions(sets, further)
        passes, passes_exact = np.zeros((2, base.size), np.int64), np.ones((2, base.size), bool)
        passes[:, is_varied] = (cycles[3:] - cycles[0]).reshape(2, -1) * [[1], [-1]]
        passes_exact[:, is_varied] = exact[3:].reshape(2, -1)
        shape = 2, *base.shape
        return Growth(
            passes.reshape(shape), passes_exact.reshape(shape), (cycles[1:3] - cycles[0]) * [1, -1], exact[1:3]
        )

    def _executions(
        self, durations: Cycles, further: Cycles, *, seeds: Cycles | None = None, with_record: bool = False
    ) -> Iterator[tuple[Execution, Cycles]]:
        """Yield every execution with its end, shape (replicas, K)."""
        run = self._run
        streams = host_streams(run, len(durations))
        begin = np.full((run.replicas, len(durations)), run.cycles_before(0))
        cycles = run.cycles(durations, 0, seeds)
        for number in range(run.executions):
            if number and run.jitters:
                cycles = run.cycles(durations, number, seeds)
            record = Record.empty(run) if with_record else None
            execution = Execution(run, number, cycles, streams, further, record, self._memory)
            pipeline = self._pipelines[execution.is_due(run.program.outfeed_elements.period)]
            ends = pipeline.carry_out(execution, begin)
            execution.pipeline = np.maximum.reduce([end.max(axis=0) for end in ends.values()]) - begin.min(axis=0)
            begin = self._ending.carry_out(execution, ends)
            yield execution, begin
            begin = begin + run.cycles_before(number + 1)


def _share_links(run: ExactRun) -> bool:
    """Whether tensors of several replicas ever use the same link direction."""
    link_users = {(link, replica) for (replica, *_), send in run.costs.sends.items() for link in send.links}
    return len(link_users) > len({link for link, _ in link_users})
