"""Simulate lock-step: all IPUs meet after a time-step, and a single merged copy moves all tensors over IPU-Links."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache, partial
from typing import NamedTuple

import simpy

from ipusim.machine import resources
from ipusim.machine.facility import Context, IpuId, Wait
from ipusim.machine.meeting import Meeting
from ipusim.machine.resources import Workers
from ipusim.pipeline.instructions import Code
from ipusim.pricing.costs import StepCopy
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description
from ipusim.timeline.timeline import ALL_IPUS, NONE

#: Kinds of spans as constants, because looking up a member of an enumeration takes as long as a function call.
_SYNC, _PRE_COPY, _EXCHANGE, _LINK, _POST_COPY = (
    SpanKind.SYNC,
    SpanKind.PRE_COPY,
    SpanKind.EXCHANGE,
    SpanKind.LINK,
    SpanKind.POST_COPY,
)


class Bundle(NamedTuple):
    """Link directions with equal carrying times during a copy.

    Attributes:
        description: number of the links' group of spans in the recorder.
        cycles: duration.
        links: the link directions.
    """

    description: int
    cycles: int
    links: Workers


class Interconnect(Meeting):
    """The meeting point of a pipeline's IPUs after every time-step, and the IPU-Links.

    After the last arrival the IPUs synchronise, tiles lay out their data (pre-copy), and every link direction carries
    its share of the bytes. After the last delivery, tiles put away the received data (post-copy), which ends the copy.
    An IPU with nothing to do for several time-steps arrives once, and sleeps until the last of them ends. Link
    directions with equal carrying times share an event and a record.
    """

    subject = "the inter-IPU copy"

    def __init__(self, context: Context, replicas: Sequence[int], copies: Sequence[StepCopy]) -> None:
        """Prepare for the IPUs of some replicas; ``copies`` are the distinct copies after time-steps."""
        super().__init__(context, context.ipus(replicas))
        self.handlers = {Code.MEET: self._arrive_for_steps}
        group = context.groups.index(list(replicas))
        self._reroutes = context.rerouted
        self._copy_count = len(copies)
        #: The copies on the first routes, then the same copies on the routes after each reroute.
        self._copies = (*copies, *(copy for reroute in self._reroutes for copy in reroute.copies_by_group[group]))
        copies, self._copy_of = self._copies, context.costs.copies.copy_of
        self._executors = [context.executor(replica) for replica in replicas]
        self._report = context.progress if not replicas[0] else lambda _: None
        recorder = self._recorder = context.recorder
        replica = replicas[0] if len(context.groups) > 1 else NONE
        self._carrying_links, self._is_copying = 0, False
        self._copy, self._copy_number = self._copies[0], 0
        self._time_step, self._step = 0, 0
        #: Bit of every IPU in the set of sleeping IPUs.
        self._bits = {ipu: 1 << bit for bit, ipu in enumerate(self._numbers)}
        #: Set of sleeping IPUs, and number of sleepers.
        self._asleep = self._sleepers = 0
        #: IPUs about to fall asleep.
        self._falling_asleep: list[int] = []
        #: Sleeping IPUs, by number of the meeting after which they wake.
        self._awake_after: dict[int, list[int]] = {}
        #: Wake-up events, by number of the meeting after which IPUs wake.
        self._events: dict[int, simpy.Event] = {}
        self._meeting = 0
        #: Cycle and last span of the previous meeting.
        self._released = (0, NONE)
        self._waits_of_sleepers = cache(self._describe_waits)
        self._sync, self._pre_copy, self._post_copy = (
            recorder.describe(Description(kind, ALL_IPUS, replica=replica))
            for kind in (SpanKind.SYNC, SpanKind.PRE_COPY, SpanKind.POST_COPY)
        )
        self._exchange = [
            recorder.describe(Description(SpanKind.EXCHANGE, ALL_IPUS, bytes=copy.bytes, replica=replica))
            for copy in copies
        ]
        self._ipu_count = len(self.ipus)
        # If no host copy and no other group of replicas runs meanwhile, one event at the end of a copy records it.
        host = context.costs.host
        self._records_at_end = len(context.groups) == 1 and not (host.infeed or host.fill or host.outfeed or host.drain)
        self._bundles = _bundles_of(context, self._copies)

    def _arrive_for_steps(
        self, ipu_id: IpuId, _stage: int, _micro_batch: int, times: int, _step: int, cause: int
    ) -> simpy.Event:
        """Note an IPU's arrival for ``times`` time-steps; return its wake-up event."""
        ipu = ipu_id.number
        self._arrived[ipu] = (self._clock.now, cause)
        last = self._meeting + times - 1
        wake_event = self._events.get(last)
        if wake_event is None:
            wake_event = self._events[last] = self._clock.event()
        if times > 1:
            self._awake_after.setdefault(last, []).append(ipu)
            self._falling_asleep.append(ipu)
        if len(self._arrived) + self._sleepers == self._ipu_count:
            self._meet(cause)
        return wake_event

    def absent_ipus(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu`` waits for; empty if ``ipu`` has not arrived."""
        arrivals = {number for number, bit in self._bits.items() if number in self._arrived or self._asleep & bit}
        return [number for number in self._numbers if number not in arrivals] if ipu in arrivals else []

    def waits_for(self, ipu: int) -> Wait | None:
        """Return the reason why ``ipu`` waits in this meeting; None if the IPU does not wait."""
        if self._carrying_links:
            return Wait(f"{self.subject}, which {self._carrying_links} of its links have not delivered")
        return super().waits_for(ipu)

    def state(self, first_micro_batch: int) -> Hashable:
        """Return arrived IPUs, remaining meetings of sleeping IPUs, the next copy, and the copy under way."""
        waking = tuple(
            (meeting - self._meeting, tuple(sorted(ipus))) for meeting, ipus in sorted(self._awake_after.items())
        )
        release, _ = self._released
        copying = (self._copy_number, self._carrying_links) if self._is_copying else None
        upcoming = self._next_copy()
        return super().state(first_micro_batch), waking, self._clock.now - release, upcoming, copying

    def _next_copy(self) -> int:
        """Return the number of the next copy, on the current routes."""
        cycle = self._clock.now
        return self._copy_of[self._time_step] + self._copy_count * sum(
            reroute.cycle <= cycle for reroute in self._reroutes
        )

    def _cycle_of_cut(self, first_byte: int) -> int | None:
        """Return the cycle in which a cable dies during the copy; None if no cable dies."""
        cycle, links = self._clock.now, {share.link for share in self._copy.links}
        dying = next((reroute for reroute in self._reroutes if reroute.cycle > cycle and links & reroute.dead), None)
        if dying is None:
            return None
        bundles = self._bundles[self._copy_number]
        last = max(self._clock.end(bundle.links, _LINK, first_byte, bundle.cycles) for bundle in bundles)
        return dying.cycle if last > dying.cycle else None

    def _resend(self, start: int, sync_end: int, pre_copy_end: int, first_byte: int, cause: int, _: object) -> None:
        """Record the interrupted part of a copy, and begin the copy again."""
        cycle = self._clock.now
        cause = self._record_sync_and_pre_copy(start, min(sync_end, cycle), min(pre_copy_end, cycle), cause)
        for bundle in self._bundles[self._copy_number] if cycle > first_byte else ():
            end = self._clock.end(bundle.links, _LINK, first_byte, bundle.cycles)
            self._record(bundle.description, self._step, first_byte, min(end, cycle), cause)
        if cycle > pre_copy_end:
            cause = self._record(self._exchange[self._copy_number], self._step, pre_copy_end, cycle, cause)
        self._meet(cause, resent=True)

    def _meet(self, cause: int, *, resent: bool = False) -> None:
        """Begin the work after the last arrival.

        The IPUs synchronise and copy, or are released at once if there is nothing to copy. The meeting is a chain of
        event callbacks, as a process would cost one more event per step. The loop repeats for time-steps in which every
        IPU sleeps.
        """
        while True:
            if not resent:
                self._record_waits(self._step)
            resent = False
            self._copy_number = self._next_copy()
            self._copy = copy = self._copies[self._copy_number]
            start, end, fixed_costs = self._clock.now, self._clock.end, copy.fixed
            sync_end = end(self._workers, _SYNC, start, fixed_costs.sync_cycles)
            pre_copy_end = end(self._workers, _PRE_COPY, sync_end, fixed_costs.pre_copy_cycles)
            first_byte = end(
                self._workers, _EXCHANGE, pre_copy_end, fixed_costs.exchange_cycles + fixed_costs.latency_cycles
            )
            self._is_copying = True
            if self._reroutes and (cut_cycle := self._cycle_of_cut(first_byte)) is not None:
                self._clock.call_at(cut_cycle, partial(self._resend, start, sync_end, pre_copy_end, first_byte, cause))
                return
            bundles = self._bundles[self._copy_number]
            if self._records_at_end and len(bundles) == 1:
                (bundle,) = bundles
                self._carrying_links = len(bundle.links)
                last_byte = end(bundle.links, _LINK, first_byte, bundle.cycles)
                record_at_end = partial(
                    self._record_whole_copy, start, sync_end, pre_copy_end, first_byte, last_byte, bundle, cause
                )
                self._clock.call_at(self._post_copy_end(last_byte), record_at_end)
                return
            if first_byte > start:
                self._clock.call_at(first_byte, partial(self._begin_transfer, start, sync_end, pre_copy_end, cause))
                return
            if copy.links:
                self._transfer(start, cause)
                return
            if (wake_event := self._finish(cause)) is not None:
                wake_event.succeed(cause)
            if self._sleepers != self._ipu_count:
                return

    def _record_waits(self, step: int) -> dict[int, int]:
        """Record the waits of all IPUs, with a joint record of sleepers if possible; return no spans.

        IPUs that have arrived for several time-steps fall asleep.
        """
        cycle = self._clock.now
        release, cause = self._released
        if not self._asleep:
            super()._record_waits(step)
        elif release < cycle:
            if any(arrival == release for arrival, _ in self._arrived.values()):
                sleepers = (ipu for ipu, bit in self._bits.items() if self._asleep & bit)
                self._arrived |= dict.fromkeys(sleepers, self._released)
                super()._record_waits(step)
            else:
                self._record(self._waits_of_sleepers(self._asleep), step, release, cycle, cause)
                for ipu, (arrival, earlier_cause) in sorted(self._arrived.items()):
                    if arrival < cycle:
                        self._record(self._wait_descriptions[ipu], step, arrival, cycle, earlier_cause)
        self._arrived.clear()
        if self._falling_asleep:
            self._asleep |= sum(map(self._bits.__getitem__, self._falling_asleep))
            self._sleepers += len(self._falling_asleep)
            self._falling_asleep.clear()
        return {}

    def _describe_waits(self, asleep: int) -> int:
        """Return the recorder's group of the waits of sleeping IPUs."""
        return self._recorder.group([self._wait_descriptions[ipu] for ipu, bit in self._bits.items() if asleep & bit])

    def _begin_transfer(self, start: int, sync_end: int, pre_copy_end: int, cause: int, _: object) -> None:
        """Record sync and pre-copy since the last arrival at ``start``, and start the links."""
        self._transfer(pre_copy_end, self._record_sync_and_pre_copy(start, sync_end, pre_copy_end, cause))

    def _record_sync_and_pre_copy(self, start: int, sync_end: int, pre_copy_end: int, cause: int) -> int:
        if sync_end > start:
            cause = self._record(self._sync, self._step, start, sync_end, cause)
        if pre_copy_end > sync_end:
            cause = self._record(self._pre_copy, self._step, sync_end, pre_copy_end, cause)
        return cause

    def _record_whole_copy(
        self,
        start: int,
        sync_end: int,
        pre_copy_end: int,
        first_byte: int,
        last_byte: int,
        bundle: Bundle,
        cause: int,
        event: object,
    ) -> None:
        """Record a copy of a single bundle, at the copy's end."""
        cause = self._record_sync_and_pre_copy(start, sync_end, pre_copy_end, cause)
        self._deliver(bundle, pre_copy_end, first_byte, last_byte, cause, event)

    def _transfer(self, exchange_start: int, cause: int) -> None:
        """Start the link directions of the copy; end a copy without links. The exchange began at ``exchange_start``."""
        if not self._copy.links:
            self._end(cause)
            return
        self._carrying_links = len(self._copy.links)
        first_byte = self._clock.now
        bundles = self._bundles[self._copy_number]
        # A single bundle and the post-copy after the bundle share an event.
        post_copy_cycles = self._copy.fixed.post_copy_cycles if len(bundles) == 1 else 0
        for bundle in bundles:
            last_byte = self._clock.end(bundle.links, _LINK, first_byte, bundle.cycles)
            end = self._post_copy_end(last_byte) if post_copy_cycles else last_byte
            self._clock.call_at(end, partial(self._deliver, bundle, exchange_start, first_byte, last_byte, cause))

    def _post_copy_end(self, start: int) -> int:
        """Return the end of the post-copy of data received by ``start``."""
        return self._clock.end(self._workers, _POST_COPY, start, self._copy.fixed.post_copy_cycles)

    def _record_post_copy(self, start: int, cause: int, _: object) -> None:
        """Record the post-copy."""
        self._end(self._record(self._post_copy, self._step, start, self._clock.now, cause))

    def _end(self, cause: int) -> None:
        """End the copy and wake the IPUs. If every IPU sleeps through the next time-step, begin its meeting."""
        if (wake_event := self._finish(cause)) is not None:
            self._clock.happen(wake_event, cause)
        elif self._sleepers == self._ipu_count:
            self._meet(cause)

    def _finish(self, cause: int) -> simpy.Event | None:
        """End a time-step and deliver tensors; return the event that wakes IPUs, None if all sleep on."""
        for executor in self._executors:
            executor.copy(self._copy.edges)
        self._is_copying = False
        self._time_step += 1
        self._step += 1
        if self._time_step == len(self._copy_of):
            self._time_step = 0
            self._step += 1  # the weight update counts as a time-step
        for ipu in self._awake_after.pop(self._meeting, ()):
            if self._asleep & self._bits[ipu]:
                self._asleep ^= self._bits[ipu]
                self._sleepers -= 1
        wake_event = self._events.pop(self._meeting, None)
        self._meeting += 1
        self._released = (self._clock.now, cause)
        self._report(self._step)
        return wake_event

    def _deliver(
        self, bundle: Bundle, exchange_start: int, first_byte: int, last_byte: int, cause: int, event: object
    ) -> None:
        """End a bundle's share of the merged copy; the last delivery ends the exchange."""
        self._record(bundle.description, self._step, first_byte, last_byte, cause)
        self._carrying_links -= len(bundle.links)
        if not self._carrying_links:
            last = self._record(self._exchange[self._copy_number], self._step, exchange_start, last_byte, cause)
            if self._clock.now > last_byte:
                self._record_post_copy(last_byte, last, event)
            elif self._copy.fixed.post_copy_cycles:
                self._clock.call_at(self._post_copy_end(last_byte), partial(self._record_post_copy, last_byte, last))
            else:
                self._end(last)


def _bundles_of(context: Context, copies: Sequence[StepCopy]) -> list[list[Bundle]]:
    """Return every copy's bundles of links with equal carrying times.

    If a disturbance may slow single links, every link is a bundle of its own.
    """
    labels, recorder = [direction.label for direction in context.costs.links], context.recorder
    links_by_cycles: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for link in sorted({share.link for copy in copies for share in copy.links}):
        cycles = tuple(
            (number, share.cycles) for number, copy in enumerate(copies) for share in copy.links if share.link == link
        )
        links_by_cycles.setdefault(cycles, []).append(link)
    bundles: list[list[Bundle]] = [[] for _ in copies]
    for pattern, group in links_by_cycles.items():
        steady = context.clock.is_steady(resources.links(labels[link] for link in group))
        for links in [group] if steady else [[link] for link in group]:
            workers = resources.links(labels[link] for link in links)
            for number, link_cycles in pattern:
                sizes = {share.link: share.bytes for share in copies[number].links}
                spans = (Description(SpanKind.LINK, link=link, bytes=sizes[link], replica=NONE) for link in links)
                description = recorder.group([recorder.describe(span) for span in spans])
                bundles[number].append(Bundle(description, link_cycles, workers))
    return bundles


def build(context: Context) -> list[Interconnect]:
    """Return the meetings after time-steps, per group of replicas; point-to-point has none."""
    copies_by_group = context.costs.copies.by_group
    return [
        Interconnect(context, replicas, copies)
        for replicas, copies in zip(context.groups, copies_by_group, strict=False)
    ]
