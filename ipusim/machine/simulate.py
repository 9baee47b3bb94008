"""Run a Plan on a System: build the processes, run them, return the Timeline."""

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
from ipusim.machine.columns import Marks, instruction_columns
from ipusim.machine.columns import marked as with_marks
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

#: Called with the time-steps behind and the time-steps in all.
Progress = Callable[[int, int], None]
#: Values in the states that are noted of a run: at least, and for each of its spans. Of those that repeat themselves
#: it was up to 3 for each span, measured, and one takes a fifth of the time of a span.
_NOTED: Final = 20_000
_NOTED_PER_SPAN: Final = 4
_DEADLOCK = "nothing is left to happen, but the pipeline is not done:"
#: What builds the facilities of a machine; a deadlock is told of the first of them that an IPU waits in.
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
    """Execute ``plan``, in which everything takes what ``costs`` say, and return its Timeline.

    Args:
        plan: what each IPU does.
        program: the stages, and what travels between them and the host.
        system: the device.
        costs: of the plan on it.
        executor: does the arithmetic, of several replicas as :class:`Replicas`; none: time only.
        executions: of the pipeline, by default the program's repeat count.
        progress: is told how far the run is.
        between: what hosts do together before an execution, by its number.
        marked: micro-batches before whose forward passes in the first stage the state of the machine is noted, as at
            the beginning of each execution; None for no states.
        in_phases: whether it is noted before all passes over them of the first stage's IPU.
        note: is called with each state.

    Raises MissingTensorError when an operation starts where a tensor is not, and
    DeadlockError when processes wait for what will never happen.
    """
    executions = program.repeat_count if executions is None else executions
    steps = executions * (plan.emitted + 1)
    costs, routes = rerouted(plan, program, system, costs)
    context = Context(
        Clock(speeds_of(system)),
        Recorder(plan.emitted + 1),
        plan,
        program,
        system,
        costs,
        _replicas(executor, system),
        executions,
        lambda done: progress(done, steps) if progress else None,
        routes,
        in_phases,
    )
    Machine(context, between, marked, note).run()
    return context.recorder.timeline(timeline_info_of(plan, program, system, costs.links, executions))


class Machine:
    """The processes of a run, and the facilities that they meet.

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
        """Build the processes of :func:`simulate`; nothing happens yet."""
        context.together.begin()
        self._clock, self._recorder = context.clock, context.recorder
        self._facilities: list[Facility] = [facility for build in FACILITIES for facility in build(context)]
        self._tell, self._noted = note, 0
        self._in_a_row = executions_in_a_row(context.program, context.costs, context.executions)
        first = context.ipu_of(0, 0)
        self._running: list[simpy.Process] = []
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
                runs.between,
            )
            for ipu in context.ipus()
        ]
        self._first_ipu = next(ipu for ipu in self.ipus if ipu.id == first)

    def run(self) -> None:
        """Run until all executions have ended; raises DeadlockError where they never do."""
        running = self._running = [self._clock.process(ipu.run()) for ipu in self.ipus]
        if self._clock.run_all(running):
            return
        waiting = {
            ipu.id.number: ipu.waits_for() for ipu, process in zip(self.ipus, running, strict=True) if process.is_alive
        }
        lines = [f"  IPU {number} waits for {wait.text}" for number, wait in waiting.items()]
        circle = circle_of({number: wait.ipus for number, wait in waiting.items()})
        if circle:
            lines.append(f"  the circle: {' waits for '.join(f'IPU {number}' for number in (*circle, circle[0]))}")
        raise DeadlockError("\n".join([_DEADLOCK, *lines]))

    def state(self, first_micro_batch: int = 0) -> Hashable:
        """Return the machine's whole state relative to now, but for the arithmetic.

        Micro-batches are counted from the first one, times from now, executions from the beginning of a step if any
        rule depends on that. Equal states go on equally for as long as streams have elements, and up to the last
        execution: the only one in which results of a run of one step leave under the outfeed's mode LAST.
        """
        place_in_step = self._first_ipu.execution % self._in_a_row
        return place_in_step, tuple(facility.state(first_micro_batch) for facility in self._facilities)

    def _note(self, micro_batch: int, phase: tuple[int, int]) -> None:
        """Note the state as the IPU of the first stage is about to begin a pass over a micro-batch, or an execution.

        Where tensors pile up, states become larger and larger: no more are noted then than the run itself takes.
        """
        if micro_batch != NONE and self._noted > _NOTED + _NOTED_PER_SPAN * len(self._recorder):
            return
        first = self._first_ipu
        state = queue_state(self._clock, self._running), self.state(max(micro_batch, 0))
        ahead = tuple(ipu.execution - first.execution for ipu in self.ipus)
        positions = tuple(ipu.position for ipu in self.ipus)
        self._noted += size_of(state)
        self._tell(Mark(first.execution, micro_batch, phase, self._clock.now, positions, (state, ahead)))


def _replicas(executor: Executor | Replicas | None, system: System) -> Replicas:
    """Return an executor for each replica."""
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
