"""Simulate a Plan on a System: build the machine's processes, run them, return the Timeline."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Final

import simpy

from ipusim.base.errors import DeadlockError, ProgramError
from ipusim.hardware.system import System
from ipusim.machine import (
    delivery,
    execution_end,
    feeds,
    host_server,
    interconnect,
    replica_meeting,
    streaming_memory,
)
from ipusim.machine.clock import Clock
from ipusim.machine.columns import Marks, instruction_columns, with_marks
from ipusim.machine.executor import Executor, NullExecutor, Replicas
from ipusim.machine.facility import Context, Facility
from ipusim.machine.ipu import Ipu
from ipusim.machine.recurrence import Mark, executions_in_a_row, queue_state, size_of
from ipusim.machine.rerouted import rerouted
from ipusim.machine.session_runs import SessionRuns
from ipusim.machine.speeds import speeds_of
from ipusim.machine.timeline_info import timeline_info_of
from ipusim.pipeline.instructions import NONE
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.standstill import circle_of
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.timeline.recorder import Recorder
from ipusim.timeline.timeline import Timeline

#: Callback with the number of finished time-steps and the total number of time-steps.
Progress = Callable[[int, int], None]
#: Noted values permitted in every run.
_ALWAYS_PERMITTED_NOTES: Final = 20_000
#: Further noted values permitted per span. Repeating runs had up to 3 values per span (measured); a noted value takes a
#: fifth of a span's time.
_NOTED_PER_SPAN: Final = 4
_DEADLOCK = "no event is left, but the pipeline is not done:"
#: Builders of the machine's facilities; a deadlock message names the first facility in which an IPU waits.
FACILITIES: Final[tuple[Callable[[Context], Iterable[Facility]], ...]] = (
    replica_meeting.build,
    streaming_memory.build,
    host_server.build,
    feeds.build,
    interconnect.build,
    delivery.build,
    execution_end.build,
)


def simulate(
    plan: Plan,
    program: PipelineProgram,
    system: System,
    *,
    costs: Costs,
    executor: Executor | Replicas | None = None,
    executions: int | None = None,
    progress: Progress | None = None,
    between: Mapping[int, Sequence[HostExchange]] | None = None,
    marked: Container[int] | None = None,
    in_phases: bool = False,
    note: Callable[[Mark], object] = lambda mark: None,  # noqa: ARG005
) -> Timeline:
    """Execute ``plan`` with the durations of ``costs``, and return the Timeline.

    Args:
        plan: instructions per IPU.
        program: stages, and the data exchanged between stages and with the host.
        system: the device.
        costs: costs of the plan on the device.
        executor: arithmetic, as :class:`Replicas` for several replicas; None simulates time only.
        executions: executions of the pipeline, by default the program's repeat count.
        progress: callback about the progress of the run.
        between: host exchanges before an execution, by the execution's number.
        marked: micro-batches to mark: the machine's state is noted before their forward pass in the first stage, and
            before every execution. Equal states show that the run repeats. None to note no states.
        in_phases: whether the state is also noted before all other passes over these micro-batches on the first stage's
            IPU, for schedules that repeat only within phases.
        note: callback with every noted state.

    Raises MissingTensorError if an operation starts without an input tensor, and DeadlockError if processes wait
    forever.
    """
    executions = program.repeat_count if executions is None else executions
    steps = executions * (plan.emitted + 1)
    costs, reroutes = rerouted(plan, program, system, costs)
    context = Context(
        Clock(speeds_of(system)),
        Recorder(plan.emitted + 1),
        plan,
        program,
        system,
        costs,
        _replicas(executor, system),
        executions,
        lambda steps_done: progress(steps_done, steps) if progress else None,
        reroutes,
        in_phases,
    )
    Machine(context, between, marked, note).run()
    return context.recorder.timeline(timeline_info_of(plan, program, system, costs.links, executions))


class Machine:
    """The processes of a run, and its facilities.

    Attributes:
        ipus: the processes of the IPUs.
    """

    def __init__(
        self,
        context: Context,
        between: Mapping[int, Sequence[HostExchange]] | None = None,
        marked: Container[int] | None = None,
        note: Callable[[Mark], object] = lambda mark: None,  # noqa: ARG005
    ) -> None:
        """Build the processes of :func:`simulate`, without running them."""
        context.arithmetic.begin()
        self._clock, self._recorder = context.clock, context.recorder
        self._facilities: list[Facility] = [facility for build in FACILITIES for facility in build(context)]
        self._note_callback, self._note_count = note, 0
        self._executions_in_a_row = executions_in_a_row(context.program, context.costs, context.executions)
        first = context.ipu_of(0, 0)
        self._processes: list[simpy.Process] = []
        runs = SessionRuns(context, between or {})
        columns = [instruction_columns(context, replica) for replica in context.replicas]
        if marked is not None:
            shard = first.shard
            columns[0][shard] = with_marks(columns[0][shard], marked, in_phases=context.in_phases)
            self._facilities.append(Marks(first, self._note))
        self.ipus = [
            Ipu(
                context,
                ipu,
                columns[ipu.replica][ipu.shard],
                [facility for facility in self._facilities if ipu in facility.ipus],
                runs.wait_between,
            )
            for ipu in context.ipus()
        ]
        self._first_ipu = next(ipu for ipu in self.ipus if ipu.id == first)

    def run(self) -> None:
        """Run until every execution has ended; raises DeadlockError if IPUs wait forever."""
        processes = self._processes = [self._clock.process(ipu.run()) for ipu in self.ipus]
        if self._clock.run_all(processes):
            return
        waits = {
            ipu.id.number: ipu.waits_for()
            for ipu, process in zip(self.ipus, processes, strict=True)
            if process.is_alive
        }
        lines = [f"  IPU {number} waits for {wait.text}" for number, wait in waits.items()]
        circle = circle_of({number: wait.ipus for number, wait in waits.items()})
        if circle:
            lines.append(f"  the circle: {' waits for '.join(f'IPU {number}' for number in (*circle, circle[0]))}")
        raise DeadlockError("\n".join([_DEADLOCK, *lines]))

    def state(self, first_micro_batch: int = 0) -> Hashable:
        """Return the machine's complete state relative to now, apart from the arithmetic.

        Micro-batches count from ``first_micro_batch``, and times from now. If any rule depends on an execution's place
        in its step, executions count from the begin of the step. Runs with equal states continue equally while streams
        have elements, up to the last execution: with outfeed mode LAST and a single step, only the last execution hands
        out results.
        """
        place_in_step = self._first_ipu.execution % self._executions_in_a_row
        return place_in_step, tuple(facility.state(first_micro_batch) for facility in self._facilities)

    def _note(self, micro_batch: int, phase: tuple[int, int]) -> None:
        """Note the state before a pass over a micro-batch, or before an execution.

        The first stage's IPU is at a mark. States grow with the number of waiting tensors, so notes stop before they
        take longer than the run.
        """
        if micro_batch != NONE and self._note_count > _ALWAYS_PERMITTED_NOTES + _NOTED_PER_SPAN * len(self._recorder):
            return
        first = self._first_ipu
        state = queue_state(self._clock, self._processes), self.state(max(micro_batch, 0))
        executions_ahead = tuple(ipu.execution - first.execution for ipu in self.ipus)
        positions = tuple(ipu.position for ipu in self.ipus)
        self._note_count += size_of(state)
        self._note_callback(
            Mark(first.execution, micro_batch, phase, self._clock.now, positions, (state, executions_ahead))
        )


def _replicas(executor: Executor | Replicas | None, system: System) -> Replicas:
    """Return an executor per replica."""
    if isinstance(executor, Replicas):
        replicas = executor
    elif executor is None:
        replicas = Replicas((NullExecutor(),) * system.replicas)
    else:
        replicas = Replicas((executor,))
    count = len(replicas.executors)
    if count != system.replicas:
        raise ProgramError(f"expected an executor for each of {system.replicas} replicas of {system.name}, got {count}")
    return replicas
