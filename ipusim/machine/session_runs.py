"""Make IPUs wait between executions: for the host's program, exchanges of hosts, or the loss of an IPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipusim.machine.clock import Spans
from ipusim.machine.facility import Context, IpuId
from ipusim.machine.resources import HOST_PROGRAM, NETWORK, hosts
from ipusim.machine.run_changes import Pause, moves_of
from ipusim.pricing import laws
from ipusim.pricing.exchanges import HostExchange
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import NONE


class SessionRuns:
    """Waits between executions of the pipeline, recorded as spans on every IPU.

    A session run is a step of several executions: the host's program follows it, and exchanges of hosts precede it.
    """

    def __init__(self, context: Context, exchanges: Mapping[int, Sequence[HostExchange]]) -> None:
        """Prepare the waits; ``exchanges`` lists the host exchanges before an execution, by the execution's number."""
        self._context, self._clock, self._recorder = context, context.clock, context.recorder
        self._host, self._executions = context.costs.host, context.program.repeat_count
        self._exchange_work = {
            execution: [
                (_track(exchange), exchange.cycles(context.system), exchange.bytes) for exchange in exchange_list
            ]
            for execution, exchange_list in exchanges.items()
        }
        self._recorded_executions: set[int] = set()
        self._wait_descriptions = context.describe_ipus(SpanKind.HOST_CALL, context.ipus())
        pauses = [pause for pause in context.system.disturbances if isinstance(pause, Pause)]
        self._pauses = {pause.execution: pause for pause in pauses}
        self._steps = context.steps
        kinds = {kind for pause in pauses for kind, _ in pause.spans}
        self._pause_waits = {kind: context.describe_ipus(kind, context.ipus()) for kind in sorted(kinds)}
        #: Description of the restart of a replaced IPU, by cycle and IPU.
        self._spare_waits = {
            (move.from_, ipu.number): context.describe_ipus(SpanKind.SPARE, [ipu])[ipu.number]
            for move in moves_of(context.system)
            for ipu in context.ipus()
            if ipu.number == move.ipu
        }

    def wait_between(self, ipu: IpuId, execution: int, step: int, cause: int) -> Spans:
        """Wait before an execution, if its session run or a pause requires it; return the last span.

        The call after the last execution has the number of executions as ``execution``.
        """
        cause = yield from self._between_runs(ipu, execution, step, cause)
        pause = self._pauses.get(execution)
        for kind, cycles in () if pause is None else pause.spans:
            start = self._clock.now
            end: int = yield self._clock.spend((), kind, cycles)
            description = self._pause_waits[kind][ipu.number]
            if kind == SpanKind.RESTART:
                description = self._spare_waits.get((end, ipu.number), description)
            span_step = pause.under_way * self._steps if pause and kind == SpanKind.LOST_WORK else step
            cause = self._recorder.record(description, span_step, start, end, cause)
        return cause

    def _between_runs(self, ipu: IpuId, execution: int, step: int, cause: int) -> Spans:
        """Wait for host work after the previous execution, and before a session run."""
        wait, description = self._context.wait, self._wait_descriptions[ipu.number]
        host_cycles = self._host.cycles_after(execution, self._executions) if execution else 0
        if host_cycles:
            end = self._clock.end(HOST_PROGRAM, SpanKind.HOST_CALL, self._clock.now, host_cycles)
            cause = yield from wait(end, description, step, cause)
        if execution % self._executions:
            return cause
        return (yield from wait(self._exchange_end(execution, cause), description, step, cause))

    def _exchange_end(self, execution: int, cause: int) -> int:
        """Return the end of the host's exchanges before an execution, if they begin now.

        The exchanges are recorded once, although every IPU calls this method.
        """
        cycle, is_first_call = self._clock.now, execution not in self._recorded_executions
        self._recorded_executions.add(execution)
        for track, cycles, size in self._exchange_work.get(execution, ()):
            resource = NETWORK if track == HostTrack.NETWORK else hosts(track)
            start, cycle = cycle, self._clock.end(resource, SpanKind.HOST, cycle, cycles)
            if is_first_call:
                description = self._recorder.describe(Description(SpanKind.HOST, link=track, bytes=size))
                cause = self._recorder.record(description, NONE, start, cycle, cause)
        return cycle


def _track(exchange: HostExchange) -> HostTrack:
    """Return the track of an exchange within the host's work."""
    return HostTrack.VARIABLES if exchange.law in (laws.FILL, laws.WEIGHTS_IN) else HostTrack.NETWORK
