"""Run a Plan on a System: build the processes, let time pass, return what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from ipusim.errors import DeadlockError, ProgramError
from ipusim.hardware.system import System
from ipusim.lowering.streams import Stream
from ipusim.machine.agenda import agendas
from ipusim.machine.between_runs import BetweenRuns
from ipusim.machine.clock import Clock, Speed
from ipusim.machine.collectives import Collectives
from ipusim.machine.delivery import Delivery
from ipusim.machine.executor import Executor, NullExecutor, Replicas
from ipusim.machine.feeds import infeed_port, outfeed_port
from ipusim.machine.gathering import Gathering
from ipusim.machine.host import HostPort
from ipusim.machine.host_sum import HostSumming
from ipusim.machine.host_update import HostUpdating
from ipusim.machine.interconnect import Interconnect
from ipusim.machine.ipu import Connections, Ipu
from ipusim.machine.links import Links
from ipusim.machine.outside import Outside
from ipusim.machine.reduction import Reduction
from ipusim.machine.remote import RemoteMemory, RemotePort
from ipusim.machine.rendezvous import ExecutionEnd, Meeting
from ipusim.machine.tables import Tables
from ipusim.machine.timeline_info import timeline_info
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.standstill import circle_of
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.timeline.recorder import Recorder
from ipusim.timeline.timeline import NONE, Timeline

#: Called with the time-steps behind and the time-steps in all.
Progress = Callable[[int, int], None]
_DEADLOCK = "nothing is left to happen, but the pipeline is not done:"
#: A replica's infeed and outfeed.
Ports = tuple[HostPort | None, HostPort | None]


class State(NamedTuple):
    """What stands at the end of an execution between it and the rest of the run.

    Attributes:
        streams: of each replica's infeed and outfeed, the places ready for the IPU and for the host, and the cycles
            that the host still needs for what it works on.
        tables: of each replica's tables on the host, the cycles for which the host is still busy with them.
        deliveries: tensors that have come and that nobody has taken, of each replica.
        links: of each tensor on each link direction, the cycles until it begins and the bytes left; None in
            lock-step, where all have arrived.
    """

    streams: tuple[tuple[int, int, int] | None, ...]
    tables: tuple[int, ...]
    deliveries: tuple[tuple[int, ...], ...]
    links: tuple[tuple[tuple[int, Fraction], ...], ...] | None


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
    speed: Speed | None = None,
) -> Timeline:
    """Execute ``plan``, in which everything takes what ``costs`` say, and return its Timeline.

    ``executor`` does the arithmetic, of several replicas as :class:`Replicas` (none: time
    only). ``executions`` is the number of executions of the pipeline, by default the
    program's repeat count. ``between`` is what hosts do together before an execution, by its number.
    ``speed`` disturbs the machine.
    Raises MissingTensorError when an operation starts where a tensor is not, and
    DeadlockError when processes wait for what will never happen.
    """
    together = _replicas(executor, system)
    executions = program.repeat_count if executions is None else executions
    machine = Machine(plan, program, system, costs, together, executions, between, speed)
    machine.run(progress)
    return machine.recorder.timeline(timeline_info(plan, program, system, costs.links, executions))


class Machine:
    """The processes of a run, and what they meet.

    Attributes:
        recorder: what has happened so far.
        states: the state at the end of each execution.
    """

    def __init__(
        self,
        plan: Plan,
        program: PipelineProgram,
        system: System,
        costs: Costs,
        together: Replicas,
        executions: int,
        between: Mapping[int, Sequence[HostExchange]] | None = None,
        speed: Speed | None = None,
    ) -> None:
        """Build the processes; nothing happens yet."""
        self._plan, self._program, self._system, self._costs = plan, program, system, costs
        self._together, self._executions = together, executions
        self._steps = plan.emitted + 1  # the weight update counts as the last
        self.recorder = Recorder(self._steps)
        self._clock = Clock(speed)
        self.states: list[State] = []
        self._progress: Progress = lambda done, total: None  # noqa: ARG005
        self._meetings = self._interconnects()
        self._links = None if plan.sync.meets else self._point_to_point_links()
        self._ends = self._execution_ends()
        self._between = BetweenRuns(self._clock, self.recorder, system, between or {})
        self._before_update = self._meetings_before_update()
        self._gatherings = self._all_gathers()
        self._collectives = self._collectives_of_stages()
        self._remote = self._remote_ports()
        self._ports: list[Ports] = []
        self._tables: list[Tables] = []
        self._deliveries: list[Delivery] = []
        together.begin()
        self.ipus = [ipu for replica in range(len(together.executors)) for ipu in self._ipus_of(replica)]

    def run(self, progress: Progress | None = None) -> None:
        """Let time pass until all executions are done; raises DeadlockError where they never are."""
        self._progress = progress or self._progress
        running = [self._clock.process(ipu.run(self._executions)) for ipu in self.ipus]
        if self._clock.run_all(running):
            return
        waiting = {ipu.number: ipu.waits_for() for ipu, each in zip(self.ipus, running, strict=True) if each.is_alive}
        lines = [f"  IPU {number} waits for {wait.text}" for number, wait in waiting.items()]
        circle = circle_of({number: wait.ipus for number, wait in waiting.items()})
        if circle:
            lines.append(f"  the circle: {' waits for '.join(f'IPU {number}' for number in (*circle, circle[0]))}")
        raise DeadlockError("\n".join([_DEADLOCK, *lines]))

    @property
    def state(self) -> State:
        """What stands between now and the rest of the run, but for the arithmetic.

        Equal states go on equally, but for an execution that gives results to the host by its number (the outfeed's
        mode LAST), and for replicas that do not wait for each other, whose IPUs are elsewhere.
        """
        return State(
            streams=tuple(port.state if port else None for pair in self._ports for port in pair),
            tables=tuple(each.state for each in self._tables),
            deliveries=tuple(delivery.state for delivery in self._deliveries),
            links=None if self._links is None else self._links.state,
        )

    def _ipus_of(self, replica: int) -> Iterator[Ipu]:
        plan, costs, together = self._plan, self._costs, self._together
        first, arithmetic = replica * self._system.shards, together.executors[replica]
        given = self._clock, self.recorder, self._program, costs.host, self._executions, replica, first
        infeed, outfeed = ports = infeed_port(*given), outfeed_port(*given)
        self._ports.append(ports)
        tables, outside = self._tables_of(replica, first), self._outside_of(replica, first)
        agenda = agendas(plan, costs, self.recorder, replica, first)
        delivery = None
        if self._links is not None:
            sends = {key[1:]: send for key, send in costs.sends.items() if key[0] == replica}
            delivery = Delivery(self._clock, self.recorder, self._links, sends, arithmetic, plan.shape, first)
            self._deliveries.append(delivery)
        arithmetic.begin(0)
        for place in plan.ipus:
            yield Ipu(
                self._clock,
                self.recorder,
                number=first + place,
                place=place,
                replica=replica,
                agenda=agenda[place],
                connections=Connections(
                    interconnect=self._meetings[replica % len(self._meetings)] if self._meetings else None,
                    delivery=delivery,
                    end=self._ends[replica % len(self._ends)],
                    executor=arithmetic,
                    infeed=infeed if place == plan.shape.mapping[0] else None,
                    outfeed=outfeed if place == plan.shape.mapping[-1] else None,
                    before_update=self._before_update,
                    tables=tables,
                    remote=self._remote.get(first + place),
                    gathering=self._gatherings.get(place),
                    collectives=self._collectives.get(place),
                    outside=outside,
                    let_go=together.let_go,
                    between=self._between,
                ),
                time_steps=plan.emitted,
                update_cycles=costs.updates[place] if plan.shape.training else None,
                call=(costs.host.call, self._program.repeat_count),
            )

    def _tables_of(self, replica: int, first: int) -> Tables | None:
        """Return the tables of a replica on its host, whose IPUs begin at ``first``; None without any."""
        if not self._costs.tables:
            return None
        shape = self._plan.shape
        ipus = {stage: first + shape.mapping[stage] for stage in self._costs.tables}
        found = Tables(
            self._clock,
            self.recorder,
            self._costs.tables,
            ipus=ipus,
            micro_batches=shape.micro_batches,
            replica=replica,
        )
        self._tables.append(found)
        return found

    def _outside_of(self, replica: int, first: int) -> Outside | None:
        """Return what the passes of a replica have its host do, whose IPUs begin at ``first``; None for nothing."""
        passes, shape = self._costs.outside, self._plan.shape
        if not passes:
            return None
        return Outside(
            self._clock,
            self.recorder,
            passes,
            ipus={stage: first + shape.mapping[stage] for _, stage in passes},
            micro_batches=shape.micro_batches,
            replica=replica,
        )

    def _places(self, replicas: Iterable[int]) -> dict[int, int]:
        """Return the logical IPUs of ``replicas`` that hold a stage, and the replica of each."""
        return {replica * self._system.shards + ipu: replica for replica in replicas for ipu in self._plan.ipus}

    def _groups(self) -> list[list[int]]:
        """Return the replicas that meet: all together, or each by itself."""
        every = list(range(self._system.replicas))
        together = len(self._costs.copies.meetings) == 1
        return [every] if together else [[replica] for replica in every]

    def _interconnects(self) -> list[Interconnect]:
        """Return where IPUs meet after time-steps: one place for all replicas, or one for each that waits for none."""
        meetings, copy_of = self._costs.copies.meetings, self._costs.copies.copy_of
        labels = [direction.label for direction in self._costs.links]
        found = []
        for replicas, copies in zip(self._groups(), meetings, strict=True) if meetings else ():
            executors = [self._together.executors[replica] for replica in replicas]
            alone = replicas[0] if len(meetings) > 1 else NONE
            places = self._places(replicas)
            found.append(Interconnect(self._clock, self.recorder, places, copies, copy_of, labels, executors, alone))
        if found:
            found[0].finished = lambda done: self._progress(done, self._executions * self._steps)
        return found

    def _execution_ends(self) -> list[ExecutionEnd]:
        """Return where IPUs meet at the end of an execution, in the same groups as after time-steps."""

        def begin(replicas: list[int], execution: int) -> None:
            if not replicas[0]:
                self.states.append(self.state)
                if not self._meetings:
                    self._progress(execution * self._steps, self._executions * self._steps)
            for replica in replicas if execution < self._executions else ():
                self._together.executors[replica].begin(execution)

        return [
            ExecutionEnd(
                self._clock, self.recorder, self._places(replicas), steps=self._steps, begin=partial(begin, replicas)
            )
            for replicas in self._groups()
        ]

    def _point_to_point_links(self) -> Links:
        system = self._system
        rates = [direction.bytes_per_s(system.rates) / system.clock_hz for direction in self._costs.links]
        return Links(self._clock, self.recorder, rates, [direction.label for direction in self._costs.links])

    def _meetings_before_update(self) -> dict[Code, Meeting]:
        """Return where all IPUs meet before a weight update, or for it, by the instruction that has them."""
        costs, together, steps = self._costs, self._together, self._steps
        at = {"ipus": self._places(range(self._system.replicas)), "first_step": steps - 1, "steps": steps}
        links = {direction: number for number, direction in enumerate(costs.links)}
        update = partial(together.update, self._plan.ipus)
        kinds: Mapping[Code, tuple[object, Callable[..., Meeting]]] = {
            Code.ALL_REDUCE: (costs.gradient_sum, partial(Reduction, links=links, reduce=together.reduce)),
            Code.HOST_SUM: (costs.host_sum, partial(HostSumming, sum_up=together.sum_over_hosts)),
            Code.HOST_UPDATE: (costs.host_update, partial(HostUpdating, update=update)),
        }
        return {
            code: meeting(self._clock, self.recorder, cost, **at)
            for code, (cost, meeting) in kinds.items()
            if cost is not None
        }

    def _all_gathers(self) -> dict[int, Gathering]:
        """Return where the replicas put together the variables of each place that they store parts of."""
        passes, updates = self._costs.weight_gathers, self._costs.update_gathers
        found = {}
        for place in self._plan.ipus:
            own = {stage: each for stage, each in passes.items() if self._plan.shape.mapping[stage] == place}
            update = updates.get(place)
            if not own and update is None:
                continue

            def gather(stage: int | None, place: int = place) -> None:
                each = updates[place] if stage is None else passes[stage]
                self._together.gather(place, stage, each.algorithm)

            ipus = range(place, self._system.count, self._system.shards)
            found[place] = Gathering(self._clock, self.recorder, ipus=ipus, passes=own, update=update, gather=gather)
        return found

    def _collectives_of_stages(self) -> dict[int, Collectives]:
        """Return where the replicas meet for what the passes of each place have them do together."""
        found = {}
        for place in self._plan.ipus:
            own = {key: all_of for key, all_of in self._costs.collectives.items() if self._place_of(key[1]) == place}
            if own:
                ipus = range(place, self._system.count, self._system.shards)
                found[place] = Collectives(self._clock, self.recorder, ipus=ipus, passes=own)
        return found

    def _place_of(self, stage: int) -> int:
        return self._plan.shape.mapping[stage]

    def _remote_ports(self) -> dict[int, RemotePort]:
        """Connect each logical IPU that keeps anything in Streaming Memory to that of its machine."""
        found: dict[int, RemotePort] = {}
        memories: dict[int, RemoteMemory] = {}
        system, costs, mapping = self._system, self._costs, self._plan.shape.mapping
        for ipu, replica in self._places(range(system.replicas)).items():
            place = ipu - replica * system.shards
            passes = {key: each for key, each in costs.pass_streams.items() if mapping[key[1]] == place}
            update = costs.update_streams.get(place, Stream())
            if not passes and not any(update):
                continue
            if system.streaming is None:
                raise ProgramError(f"{system.name} has no Streaming Memory for what IPU {ipu} keeps there")
            machine = system.streaming_memory_of(ipu)
            if machine not in memories:
                memories[machine] = RemoteMemory(self._clock, system.streaming, system.clock_hz, machine)
            found[ipu] = RemotePort(
                self._clock, self.recorder, memories[machine], ipu=ipu, replica=replica, passes=passes, update=update
            )
        return found


def _replicas(executor: Executor | Replicas | None, system: System) -> Replicas:
    """Return an executor for each replica."""
    if isinstance(executor, Replicas):
        found = executor
    elif executor is None:
        found = Replicas((NullExecutor(),) * system.replicas)
    else:
        found = Replicas((executor,))
    if len(found.executors) != system.replicas:
        raise ProgramError(
            f"expected an executor for each of {system.replicas} replicas of {system.name}, got {len(found.executors)}"
        )
    return found
