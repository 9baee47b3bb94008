"""Run a Plan on a System: build the processes, let time pass, return what happened."""

from __future__ import annotations

from collections.abc import Callable

import simpy

from ipusim.errors import DeadlockError
from ipusim.hardware.system import System
from ipusim.machine.durations import Durations, durations
from ipusim.machine.executor import Executor, NullExecutor
from ipusim.machine.host import INFEED_TRACK, OUTFEED_TRACK, HostStream
from ipusim.machine.interconnect import Interconnect
from ipusim.machine.ipu import HostPort, Ipu, agendas
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import SpanKind, Timeline, TimelineInfo

#: Called with the time-steps behind and the time-steps in all.
Progress = Callable[[int, int], None]


def simulate(
    plan: Plan,
    program: PipelineProgram,
    system: System,
    *,
    executor: Executor | None = None,
    executions: int | None = None,
    progress: Progress | None = None,
) -> Timeline:
    """Execute ``plan`` and return its Timeline.

    ``executor`` does the arithmetic (none: time only). ``executions`` is the
    number of executions of the pipeline, by default the program's repeat count.
    Raises MissingTensorError when an operation starts where a tensor is not, and
    DeadlockError when processes wait for what will never happen.
    """
    executor = executor or NullExecutor()
    executions = program.repeat_count if executions is None else executions
    cost = durations(plan, program, system)
    steps = plan.emitted + 1  # the weight update counts as the last
    recorder = Recorder(steps)
    env = simpy.Environment()
    total = executions * steps
    interconnect = Interconnect(
        env, plan.ipus, cost, executor, recorder, executions, lambda done: progress and progress(done, total)
    )
    infeed, outfeed = _ports(env, recorder, program, cost, executions)
    agenda = agendas(plan, cost, recorder, program.outfeed_elements)
    ipus = [
        Ipu(
            env,
            recorder,
            number=number,
            agenda=agenda[number],
            interconnect=interconnect,
            executor=executor,
            infeed=infeed if number == plan.shape.mapping[0] else None,
            outfeed=outfeed if number == plan.shape.mapping[-1] else None,
        )
        for number in plan.ipus
    ]
    training = plan.shape.training
    executor.begin(0)
    running = [env.process(ipu.run(executions, cost.update[ipu.number] if training else None)) for ipu in ipus]
    everyone = simpy.AllOf(env, running)
    try:
        env.run(until=everyone)
    except RuntimeError:  # SimPy's, when no event is left before the one to run until; or one of a user's function
        if not everyone.triggered and env.peek() == float("inf"):
            raise DeadlockError(_blocked(plan, interconnect, infeed, outfeed)) from None
        raise
    return recorder.timeline(_info(plan, program, system, cost, executions))


def _ports(
    env: simpy.Environment, recorder: Recorder, program: PipelineProgram, cost: Durations, executions: int
) -> tuple[HostPort | None, HostPort | None]:
    """Connect the first and the last stage's IPU to the host; None where the host costs nothing."""
    shape = program.shape
    infeed = outfeed = None
    if cost.infeed or cost.host_fill:
        stream = HostStream(
            env,
            recorder,
            track=INFEED_TRACK,
            host_cycles=cost.host_fill,
            depth=program.infeed.prefetch_depth,
            elements=executions * shape.count,
        )
        transfer = Description(SpanKind.INFEED, shape.mapping[0], 0, bytes=program.infeed.element_bytes)
        infeed = HostPort(stream, recorder, transfer, range(shape.count), cost.infeed)
    if cost.outfeed or cost.host_drain:
        sent = program.outfeed_elements
        stream = HostStream(
            env,
            recorder,
            track=OUTFEED_TRACK,
            host_cycles=cost.host_drain,
            depth=program.outfeed.buffer_depth,
            elements=executions // sent.period * len(sent.micro_batches),
        )
        last = shape.stages - 1
        transfer = Description(SpanKind.OUTFEED, shape.mapping[-1], last, bytes=program.outfeed.element_bytes)
        outfeed = HostPort(stream, recorder, transfer, sent.micro_batches, cost.outfeed)
    return infeed, outfeed


def _blocked(plan: Plan, interconnect: Interconnect, infeed: HostPort | None, outfeed: HostPort | None) -> str:
    """Say of each IPU what it waits for when nothing is left to happen."""
    missing = interconnect.missing()
    lines = ["nothing is left to happen, but the pipeline is not done:"]
    for ipu in plan.ipus:
        if ipu not in missing:
            others = ", ".join(map(str, missing))
            what = f"the inter-IPU copy, which waits for IPU {others}"
        elif infeed is not None and ipu == plan.shape.mapping[0] and infeed.stream.ipu_is_waiting:
            what = "the next element of the infeed"
        elif outfeed is not None and ipu == plan.shape.mapping[-1] and outfeed.stream.ipu_is_waiting:
            what = "room in the outfeed's buffer"
        else:
            what = "an event that nothing triggers"
        lines.append(f"  IPU {ipu} waits for {what}")
    return "\n".join(lines)


def _info(plan: Plan, program: PipelineProgram, system: System, cost: Durations, executions: int) -> TimelineInfo:
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
        count=plan.shape.count,
        overlap=plan.overlap,
        time_steps=plan.emitted,
        executions=executions,
        executions_per_step=program.repeat_count,
        micro_batch_size=program.micro_batch_size,
        links=tuple(direction.label for direction in cost.links),
    )
