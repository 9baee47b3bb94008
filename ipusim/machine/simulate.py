"""Run a Plan on a System: build the processes, let time pass, return what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import simpy

from ipusim.errors import DeadlockError, ProgramError
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System
from ipusim.machine.executor import Executor, NullExecutor, Replicas
from ipusim.machine.gathering import Gathering
from ipusim.machine.host import INFEED_TRACK, OUTFEED_TRACK, HostStream
from ipusim.machine.interconnect import Interconnect
from ipusim.machine.ipu import HostPort, Ipu, Process, agendas
from ipusim.machine.reduction import Reduction
from ipusim.machine.remote import RemoteMemory, RemotePort
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs, HostCosts, Stream
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE, Timeline, TimelineInfo

#: Called with the time-steps behind and the time-steps in all.
Progress = Callable[[int, int], None]
_DEADLOCK = "nothing is left to happen, but the pipeline is not done:"
#: A replica's infeed and outfeed.
Ports = tuple[HostPort | None, HostPort | None]


def simulate(
    plan: Plan,
    program: PipelineProgram,
    system: System,
    *,
    costs: Costs,
    executor: Executor | Replicas | None = None,
    executions: int | None = None,
    progress: Progress | None = None,
) -> Timeline:
    """Execute ``plan``, in which everything takes what ``costs`` say, and return its Timeline.

    ``executor`` does the arithmetic, of several replicas as :class:`Replicas` (none: time
    only). ``executions`` is the number of executions of the pipeline, by default the
    program's repeat count.
    Raises MissingTensorError when an operation starts where a tensor is not, and
    DeadlockError when processes wait for what will never happen.
    """
    together = _replicas(executor, system)
    executions = program.repeat_count if executions is None else executions
    steps = plan.emitted + 1  # the weight update counts as the last
    recorder = Recorder(steps)
    env = simpy.Environment()
    total = executions * steps
    meetings = _meetings(env, recorder, plan, system, costs, together, executions)
    meetings[0].finished = lambda done: progress and progress(done, total)
    reduction = _reduction(env, recorder, plan, system, costs, together)
    gatherings = _gatherings(env, recorder, plan, system, costs, together)
    remote = _remote_ports(env, recorder, plan, system, costs)

    def ipus_of(replica: int) -> Iterator[Ipu]:
        first, arithmetic = replica * system.shards, together.executors[replica]
        infeed, outfeed = _ports(env, recorder, program, costs.host, executions, replica, first)
        agenda = agendas(plan, costs, recorder, program.outfeed_elements, replica, first)
        arithmetic.begin(0)
        for place in plan.ipus:
            yield Ipu(
                env,
                recorder,
                number=first + place,
                place=place,
                replica=replica,
                agenda=agenda[place],
                interconnect=meetings[replica % len(meetings)],
                executor=arithmetic,
                infeed=infeed if place == plan.shape.mapping[0] else None,
                outfeed=outfeed if place == plan.shape.mapping[-1] else None,
                reduction=reduction,
                remote=remote.get(first + place),
                gathering=gatherings.get(place),
                let_go=together.let_go,
            )

    ipus = [ipu for replica in range(len(together.executors)) for ipu in ipus_of(replica)]
    training = plan.shape.training
    _run_to_the_end(env, ipus, [ipu.run(executions, costs.updates[ipu.place] if training else None) for ipu in ipus])
    return recorder.timeline(_info(plan, program, system, costs.links, executions))


def _reduction(
    env: simpy.Environment, recorder: Recorder, plan: Plan, system: System, costs: Costs, together: Replicas
) -> Reduction | None:
    """Return where the replicas sum up their gradients; None where there is nothing to sum."""
    if costs.gradient_sum is None:
        return None
    return Reduction(
        env,
        recorder,
        costs.gradient_sum,
        ipus=_places(plan, system, range(system.replicas)),
        links={direction: number for number, direction in enumerate(costs.links)},
        reduce=together.reduce,
        first_step=plan.emitted,
        steps=plan.emitted + 1,
    )


def _run_to_the_end(env: simpy.Environment, ipus: Sequence[Ipu], programs: Sequence[Process]) -> None:
    """Run what each IPU does until all are done; raises DeadlockError where they never are."""
    running = [env.process(program) for program in programs]
    everyone = simpy.AllOf(env, running)
    try:
        env.run(until=everyone)
    except RuntimeError:  # SimPy's, when no event is left before the one to run until; or one of a user's function
        if not everyone.triggered and env.peek() == float("inf"):
            waiting = [ipu for ipu, process in zip(ipus, running, strict=True) if process.is_alive]
            lines = [f"  IPU {ipu.number} waits for {ipu.waits_for()}" for ipu in waiting]
            raise DeadlockError("\n".join([_DEADLOCK, *lines])) from None
        raise


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


def _places(plan: Plan, system: System, replicas: Iterable[int]) -> dict[int, int]:
    """Return the logical IPUs of ``replicas`` that hold a stage, and the replica of each."""
    return {replica * system.shards + ipu: replica for replica in replicas for ipu in plan.ipus}


def _meetings(
    env: simpy.Environment,
    recorder: Recorder,
    plan: Plan,
    system: System,
    costs: Costs,
    together: Replicas,
    executions: int,
) -> list[Interconnect]:
    """Return where IPUs meet: one place for all replicas, or one for each where they do not wait for each other."""
    meetings, copy_of = costs.copies.meetings, costs.copies.copy_of
    if len(meetings) == 1:
        everywhere = _places(plan, system, range(system.replicas))
        return [Interconnect(env, everywhere, meetings[0], copy_of, together.executors, recorder, executions)]
    return [
        Interconnect(env, _places(plan, system, [replica]), copies, copy_of, [executor], recorder, executions, replica)
        for replica, (copies, executor) in enumerate(zip(meetings, together.executors, strict=True))
    ]


def _gatherings(
    env: simpy.Environment,
    recorder: Recorder,
    plan: Plan,
    system: System,
    costs: Costs,
    together: Replicas,
) -> dict[int, Gathering]:
    """Return where the replicas put together the variables of each place that they store parts of."""
    passes, updates = costs.weight_gathers, costs.update_gathers
    found = {}
    for place in plan.ipus:
        own = {stage: each for stage, each in passes.items() if plan.shape.mapping[stage] == place}
        update = updates.get(place)
        if not own and update is None:
            continue

        def gather(stage: int | None, place: int = place) -> None:
            each = updates[place] if stage is None else passes[stage]
            together.gather(place, stage, each.algorithm)

        ipus = range(place, system.count, system.shards)
        found[place] = Gathering(env, recorder, ipus=ipus, passes=own, update=update, gather=gather)
    return found


def _remote_ports(
    env: simpy.Environment, recorder: Recorder, plan: Plan, system: System, costs: Costs
) -> dict[int, RemotePort]:
    """Connect each logical IPU that keeps anything in Streaming Memory to that of its machine."""
    found: dict[int, RemotePort] = {}
    memories: dict[int, RemoteMemory] = {}
    for ipu, replica in _places(plan, system, range(system.replicas)).items():
        place = ipu - replica * system.shards
        passes = {key: each for key, each in costs.pass_streams.items() if plan.shape.mapping[key[1]] == place}
        update = costs.update_streams.get(place, Stream())
        if not passes and not any(update):
            continue
        if system.streaming is None:
            raise ProgramError(f"{system.name} has no Streaming Memory for what IPU {ipu} keeps there")
        machine = system.streaming_memory_of(ipu)
        if machine not in memories:
            memories[machine] = RemoteMemory(env, system.streaming, system.clock_hz)
        found[ipu] = RemotePort(
            env, recorder, memories[machine], ipu=ipu, replica=replica, passes=passes, update=update
        )
    return found


def _ports(
    env: simpy.Environment,
    recorder: Recorder,
    program: PipelineProgram,
    host: HostCosts,
    executions: int,
    replica: int,
    first_ipu: int,
) -> Ports:
    """Connect the first and the last stage's IPU of a replica to the host; None where the host costs nothing."""
    shape = program.shape
    infeed = outfeed = None
    wait = SpanKind.OVERLAPPED_WAIT if shape.overlapped_io else SpanKind.HOST_WAIT
    if host.infeed or host.fill:
        stream = HostStream(
            env,
            recorder,
            track=INFEED_TRACK,
            host_cycles=host.fill,
            depth=program.infeed.prefetch_depth,
            elements=executions * shape.micro_batches,
            replica=replica,
        )
        transfer = Description(
            SpanKind.OVERLAPPED_INFEED if shape.overlapped_io else SpanKind.INFEED,
            first_ipu + shape.mapping[0],
            0,
            bytes=program.infeed.element_bytes,
            replica=replica,
        )
        infeed = HostPort(stream, recorder, transfer, range(shape.micro_batches), host.infeed, wait)
    if host.outfeed or host.drain:
        sent = program.outfeed_elements
        stream = HostStream(
            env,
            recorder,
            track=OUTFEED_TRACK,
            host_cycles=host.drain,
            depth=program.outfeed.buffer_depth,
            elements=sent.sent(executions),
            replica=replica,
        )
        transfer = Description(
            SpanKind.OVERLAPPED_OUTFEED if shape.overlapped_io else SpanKind.OUTFEED,
            first_ipu + shape.mapping[-1],
            shape.stages - 1,
            bytes=program.outfeed.element_bytes,
            replica=replica,
        )
        ports = [NONE] if sent.accumulated else sent.micro_batches
        outfeed = HostPort(stream, recorder, transfer, ports, host.outfeed, wait)
    return infeed, outfeed


def _info(
    plan: Plan, program: PipelineProgram, system: System, links: Iterable[LinkDirection], executions: int
) -> TimelineInfo:
    return TimelineInfo(
        name=program.name,
        system=system.name,
        clock_hz=system.clock_hz,
        ipus=system.ipus,
        selection_order=system.selection_order,
        schedule=plan.schedule,
        training=plan.shape.training,
        stages=tuple(profile.name for profile in program.stages),
        mapping=plan.shape.mapping,
        count=plan.shape.micro_batches,
        overlap=plan.overlap,
        time_steps=plan.emitted,
        executions=executions,
        executions_per_step=program.repeat_count,
        micro_batch_size=program.micro_batch_size,
        links=tuple(direction.label for direction in links),
        replicas=system.replicas,
        positions=plan.shape.position_of if plan.shape.sizes else (),
    )
