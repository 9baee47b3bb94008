"""The two ends of a replica's pipeline at the host: its infeed and its outfeed."""

from __future__ import annotations

from ipusim.machine.clock import Clock
from ipusim.machine.host import HostPort, HostStream
from ipusim.pipeline.program import PipelineProgram, PlanShape
from ipusim.pricing.costs import HostCosts
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import NONE


def infeed_port(
    clock: Clock,
    recorder: Recorder,
    program: PipelineProgram,
    host: HostCosts,
    executions: int,
    replica: int,
    first_ipu: int,
) -> HostPort | None:
    """Connect the IPU of the first stage of a replica to the host; None where the host costs nothing."""
    if not (host.infeed or host.fill):
        return None
    shape = program.shape
    stream = HostStream(
        clock,
        recorder,
        track=HostTrack.INFEED,
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
    what, numbers = "the next element of the infeed", range(shape.micro_batches)
    return HostPort(clock, stream, recorder, transfer, numbers, host.infeed, _wait(shape), what)


def outfeed_port(
    clock: Clock,
    recorder: Recorder,
    program: PipelineProgram,
    host: HostCosts,
    executions: int,
    replica: int,
    first_ipu: int,
) -> HostPort | None:
    """Connect the IPU of the last stage of a replica to the host; None where the host costs nothing."""
    if not (host.outfeed or host.drain):
        return None
    shape, sent = program.shape, program.outfeed_elements
    stream = HostStream(
        clock,
        recorder,
        track=HostTrack.OUTFEED,
        host_cycles=host.drain,
        depth=min(program.outfeed.buffer_depth, max(1, sent.sent(executions))),  # no more places than ever are taken
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
    numbers = [NONE] if sent.accumulated else sent.micro_batches
    return HostPort(
        clock, stream, recorder, transfer, numbers, host.outfeed, _wait(shape), "room in the outfeed's buffer"
    )


def _wait(shape: PlanShape) -> SpanKind:
    return SpanKind.OVERLAPPED_WAIT if shape.overlapped_io else SpanKind.HOST_WAIT
