"""End a pipeline execution: sum gradients, update weights, and let all IPUs meet.

These facilities of the machine carry out the instructions after an execution's last pass, and record each as spans. A
simulated run covers a single host. Runs of several hosts exchange their arrival times and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ipusim.hardware.collectives.cost import RoundCost
from ipusim.hardware.links import LinkDirection
from ipusim.machine import resources
from ipusim.machine.clock import Process, Spans
from ipusim.machine.facility import Context, Facility, IpuId
from ipusim.machine.meeting import Meeting, end_of_collective, load_spans
from ipusim.pipeline.instructions import Code
from ipusim.pricing.costs import HostSum, HostUpdate, ReplicaCollective
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE


class BeforeUpdate(Meeting):
    """A meeting of every IPU of every replica, once per execution."""

    def __init__(self, context: Context, code: Code) -> None:
        """Prepare the meeting at an instruction."""
        super().__init__(context, context.ipus())
        self.handlers = {code: self._handle_arrival}
        self._describe, self._steps = context.recorder.describe, context.steps
        self._step = context.steps - 1

    def _work(self, step: int, cause: int) -> Spans:
        """Run the joint work after the last arrival's span; return the last span."""
        raise NotImplementedError

    def _meet(self, cause: int) -> None:
        self._start_joint_work(self._meeting_process(cause))

    def _meeting_process(self, cause: int) -> Process:
        """Carry out the meeting's work, and release the IPUs; a SimPy process."""
        self._record_waits(self._step)
        span = yield from self._work(self._step, cause)
        self._step += self._steps
        self._release(span)

    def _describe_device_span(self, kind: SpanKind, size: int = 0) -> int:
        """Return the description of a span across the device."""
        return self._describe(Description(kind, ALL_IPUS, bytes=size, replica=NONE))


class GradientSum(BeforeUpdate):
    """The sum of gradients over IPU-Links, across replicas or across copies of stages."""

    def __init__(self, context: Context, total: ReplicaCollective, code: Code, reduce: Callable[[], object]) -> None:
        """Describe the loads of every round; ``reduce`` is called at the end."""
        super().__init__(context, code)
        self.subject = "the sum over replicas" if code is Code.ALL_REDUCE else "the sum over copies of stages"
        self._cost, self._reduce = total.cost, reduce
        links = {direction: number for number, direction in enumerate(context.costs.links)}
        self._sum_description = self._describe_device_span(SpanKind.ALL_REDUCE, total.bytes)
        # Rounds of a ring share an object, which is described once.
        rounds = {id(round_cost): round_cost for round_cost in total.cost.rounds}
        rounds_by_id = {
            key: self._describe_round(round_cost, links, context.recorder) for key, round_cost in rounds.items()
        }
        self._rounds = [rounds_by_id[id(round_cost)] for round_cost in total.cost.rounds]

    def _describe_round(
        self, round_cost: RoundCost, links: Mapping[LinkDirection, int], recorder: Recorder
    ) -> tuple[RoundCost, list[int]]:
        """Return a round, with a span description per load.

        On undisturbed links, loads of equal duration begin and end together. To save time, neighbouring loads of equal
        duration become a single load, with one description for the spans of the group. For example a ring over 64 IPUs
        has 64 equal loads per round.
        """
        same_key = (lambda load: load.cycles) if self._clock.steady else (lambda load: load.direction)
        loads, descriptions = [], []
        for _, neighbours in groupby(round_cost.links, same_key):
            load, *other_loads = neighbours
            spans = [
                self._describe(
                    Description(SpanKind.LINK, link=links[member.direction], bytes=member.bytes, replica=NONE)
                )
                for member in (load, *other_loads)
            ]
            loads.append(load)
            descriptions.append(recorder.group(spans) if other_loads else spans[0])
        return replace(round_cost, links=tuple(loads)), descriptions

    def _work(self, step: int, cause: int) -> Spans:
        """Synchronise before each round, and carry it out."""
        start = time = self._clock.now
        for round_cost, descriptions in self._rounds:
            time = self._clock.end(self._workers, SpanKind.ALL_REDUCE, time, self._cost.lead_cycles)
            loads = [span for _, *span in load_spans(self._clock, SpanKind.ALL_REDUCE, round_cost, time)]
            hops = self._clock.end(self._workers, SpanKind.ALL_REDUCE, time, round_cost.latency_cycles)
            time = yield self._clock.event_at(max((end for _, end in loads), default=hops))
            for description, (first_byte, end) in zip(descriptions, loads, strict=True):
                self._record(description, step, first_byte, end, cause)
        self._reduce()
        return self._record(self._sum_description, step, start, self._clock.now, cause)


class ByHost(BeforeUpdate):
    """A meeting with host work: gradients go to the host, IPUs wait, sums or weights come back."""

    def __init__(self, context: Context, code: Code, kind: SpanKind, track: HostTrack) -> None:
        """Prepare copies recorded as spans of ``kind``, and the host's work, recorded on ``track``."""
        super().__init__(context, code)
        self._kind, self._track, self._arithmetic = kind, track, context.arithmetic
        self._ports = resources.host_ports(track, context.replicas)
        self._wait = self._describe_device_span(SpanKind.HOST_WAIT)

    def _describe_work(self, size: int) -> int:
        """Return the description of host work on ``size`` bytes."""
        return self._describe(Description(SpanKind.HOST, link=self._track, bytes=size))

    def _copy(self, description: int, cycles: int, step: int, cause: int) -> Spans:
        """Copy between host and device if there are bytes to copy; return the last span."""
        if not cycles:
            return cause
        start = self._clock.now
        end: int = yield self._clock.spend(self._ports, self._kind, cycles)
        return self._record(description, step, start, end, cause)

    def _await(self, work: int, end: int, step: int, cause: int) -> Spans:
        """Wait until ``end`` for the host work described by ``work``; return the last span."""
        start = self._clock.now
        if end == start:
            return cause
        yield self._clock.event_at(end)
        last = self._record(work, NONE, start, end, cause)
        self._record(self._wait, step, start, end, cause)
        return last


class HostSumming(ByHost):
    """The sum of gradients over hosts, via the hosts' network or via links.

    This sum follows the sum over replicas. ``sum_over_hosts`` of the context's arithmetic receives the cycle in which
    this host arrives, and returns the cycle in which the last host arrives.
    """

    subject = "the sum over hosts"

    def __init__(self, context: Context, cost: HostSum) -> None:
        """Describe the copies."""
        super().__init__(context, Code.HOST_SUM, SpanKind.HOST_SUM, HostTrack.NETWORK)
        self._cost = cost
        self._transfer = self._describe_device_span(SpanKind.HOST_SUM, cost.bytes)
        self._network, self._late_host = self._describe_work(cost.bytes), self._describe_work(0)

    def _work(self, step: int, cause: int) -> Spans:
        """Write, wait for the slowest host, sum, and read. If links sum, the host neither writes nor reads."""
        links = self._cost.over_links
        if links is not None:
            cause = yield from self._await(
                self._late_host, self._arithmetic.sum_over_hosts(self._clock.now), step, cause
            )
            end = end_of_collective(self._clock, self._workers, SpanKind.HOST_SUM, links.cost)
            return (yield from self._context.wait(end, self._transfer, step, cause))
        cause = yield from self._copy(self._transfer, self._cost.write, step, cause)
        last = self._arithmetic.sum_over_hosts(self._clock.now)
        sum_end = self._clock.end(resources.NETWORK, SpanKind.HOST, last, self._cost.network)
        cause = yield from self._await(self._network, sum_end, step, cause)
        return (yield from self._copy(self._transfer, self._cost.read, step, cause))


class HostUpdating(ByHost):
    """The weight update on the host, with gradients sent and weights returned."""

    subject = "the weight update on the host"

    def __init__(self, context: Context, cost: HostUpdate) -> None:
        """Describe the copies and the host's work."""
        super().__init__(context, Code.HOST_UPDATE, SpanKind.HOST_UPDATE, HostTrack.VARIABLES)
        self._cost, self._shards = cost, context.plan.ipus
        self._gradients, self._weights = (
            self._describe_device_span(self._kind, size) for size in (cost.gradients, cost.weights)
        )
        self._host_work = self._describe_work(cost.gradients)

    def _work(self, step: int, cause: int) -> Spans:
        """Copy gradients to the host, update, and copy weights back."""
        cause = yield from self._copy(self._gradients, self._cost.write, step, cause)
        update_end = self._clock.end(
            resources.hosts(HostTrack.VARIABLES), SpanKind.HOST, self._clock.now, self._cost.apply
        )
        cause = yield from self._await(self._host_work, update_end, step, cause)
        self._arithmetic.update(self._shards)
        return (yield from self._copy(self._weights, self._cost.read, step, cause))


class Variables(Facility):
    """Weight updates on the IPUs."""

    def __init__(self, context: Context) -> None:
        """Describe the weight update per IPU."""
        self.ipus = tuple(context.ipus())
        self.handlers = {Code.UPDATE: self._update, Code.RELEASE: self._release}
        self._context, self._arithmetic = context, context.arithmetic
        self._spans = context.describe_ipus(SpanKind.WEIGHT_UPDATE, self.ipus)

    def _update(self, ipu: IpuId, _stage: int, _micro_batch: int, _number: int, step: int, cause: int) -> Spans:
        clock, cycles = self._context.clock, self._context.costs.updates[ipu.shard]
        start = clock.now
        if not (self._arithmetic.updates_together and ipu.shard in self._context.costs.update_gathers):
            self._context.executor(ipu.replica).update(ipu.shard)
        end: int = yield clock.spend(resources.ipus([ipu.number]), SpanKind.WEIGHT_UPDATE, cycles)
        return self._context.recorder.record(self._spans[ipu.number], step, start, end, cause)

    def _release(self, ipu: IpuId, stage: int, _micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._context.arithmetic.release(ipu.replica, ipu.shard, None if stage == NONE else stage)
        return cause


class ExecutionEnd(Meeting):
    """The final meeting of an execution, per group of replicas. The next execution follows."""

    subject = "the end of the execution"

    def __init__(self, context: Context, replicas: Sequence[int]) -> None:
        """Begin the replicas' first execution."""
        super().__init__(context, context.ipus(replicas))
        self.handlers = {Code.END: self._handle_arrival}
        self._replicas = replicas
        self._end_count = 0
        self._begin()

    def _begin(self) -> None:
        for replica in self._replicas:
            self._context.executor(replica).begin(self._end_count)

    def _meet(self, cause: int) -> None:
        self._end_count += 1
        self._record_waits(self._end_count * self._context.steps - 1)
        if not (self._replicas[0] or self._context.plan.sync.has_time_steps):
            self._context.progress(self._end_count * self._context.steps)
        if self._end_count < self._context.executions:
            self._begin()
        self._release(cause)


def build(context: Context) -> Iterator[Facility]:
    """Yield the facilities of an execution's end, in order."""
    costs = context.costs
    if costs.copy_sum is not None:
        yield GradientSum(context, costs.copy_sum, Code.SUM_COPIES, context.arithmetic.sum_copies)
    if costs.gradient_sum is not None:
        yield GradientSum(context, costs.gradient_sum, Code.ALL_REDUCE, context.arithmetic.reduce)
    if costs.host_sum is not None:
        yield HostSumming(context, costs.host_sum)
    if costs.host_update is not None:
        yield HostUpdating(context, costs.host_update)
    yield Variables(context)
    for replicas in context.groups:
        yield ExecutionEnd(context, replicas)
