"""Lock-step: meetings of IPUs after time-steps, with merged copies over IPU-Links."""

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

#: Constants, as the look-up of an enumeration's member takes as long as a call.
_SYNC, _PRE_COPY, _EXCHANGE, _LINK, _POST_COPY = (
    SpanKind.SYNC,
    SpanKind.PRE_COPY,
    SpanKind.EXCHANGE,
    SpanKind.LINK,
    SpanKind.POST_COPY,
)


class Bundle(NamedTuple):
    """Link directions that carry for equally long during a copy.

    Attributes:
        what: group of the links' spans in the recorder.
        cycles: duration.
        links: the link directions.
    """

    what: int
    cycles: int
    links: Workers


class Interconnect(Meeting):
    """The meeting point of a pipeline's IPUs after every time-step, and the IPU-Links.

    After the last arrival the IPUs synchronise, tiles lay out their data (pre-copy), and every link direction carries
    its share of the bytes. After the last delivery, tiles put away the received data (post-copy), which ends the copy.
    An IPU with nothing to do for several time-steps arrives once, and sleeps. Link directions that carry for equally
    long share an event and a record.
    """

    what = "the inter-IPU copy"

    def __init__(self, context: Context, replicas: Sequence[int], copies: Sequence[StepCopy]) -> None:
        """Prepare for the IPUs of some replicas; ``copies`` are the distinct copies after time-steps."""
        super().__init__(context, context.ipus(replicas))
        self.handlers = {Code.MEET: self._arrive}
        group = context.groups.index(list(replicas))
        self._routes = context.rerouted
        self._distinct = len(copies)
        self._copies = (*copies, *(copy for later in self._routes for copy in later.meetings[group]))
        copies, self._copy_of = self._copies, context.costs.copies.copy_of
        self._executors = [context.executor(replica) for replica in replicas]
        self._finished = context.progress if not replicas[0] else lambda _: None
        recorder = self._recorder = context.recorder
        replica = replicas[0] if len(context.groups) > 1 else NONE
        self._carrying, self._copying = 0, False
        self._copy, self._at = self._copies[0], 0
        self._time_step, self._step = 0, 0
        #: Sleeping IPUs as bits, their number, and the IPUs that wake after a given meeting.
        self._bits = {ipu: 1 << bit for bit, ipu in enumerate(self._numbers)}
        self._asleep = self._sleepers = 0
        self._falling_asleep: list[int] = []
        self._awake_after: dict[int, list[int]] = {}
        self._events: dict[int, simpy.Event] = {}
        self._meeting = 0
        self._released = (0, NONE)
        self._all_waits = cache(self._found_waits)
        self._sync, self._pre_copy, self._post_copy = (
            recorder.describe(Description(kind, ALL_IPUS, replica=replica))
            for kind in (SpanKind.SYNC, SpanKind.PRE_COPY, SpanKind.POST_COPY)
        )
        self._exchange = [
            recorder.describe(Description(SpanKind.EXCHANGE, ALL_IPUS, bytes=copy.bytes, replica=replica))
            for copy in copies
        ]
        self._everyone = len(self.ipus)
        # Nothing else happens during a copy: a record at its end saves two events per copy.
        host = context.costs.host
        self._is_alone = len(context.groups) == 1 and not (host.infeed or host.fill or host.outfeed or host.drain)
        self._bundles = _bundles_of(context, self._copies)

    def _arrive(self, of: IpuId, _stage: int, _micro_batch: int, times: int, _step: int, cause: int) -> simpy.Event:
        """Note an IPU's arrival for ``times`` time-steps; return its wake-up event."""
        ipu = of.number
        self._arrived[ipu] = (self._clock.now, cause)
        last = self._meeting + times - 1
        done = self._events.get(last)
        if done is None:
            done = self._events[last] = self._clock.event()
        if times > 1:
            self._awake_after.setdefault(last, []).append(ipu)
            self._falling_asleep.append(ipu)
        if len(self._arrived) + self._sleepers == self._everyone:
            self._meet(cause)
        return done

    def missing(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu`` waits for; empty if ``ipu`` has not arrived."""
        here = {other for other, bit in self._bits.items() if other in self._arrived or self._asleep & bit}
        return [other for other in self._numbers if other not in here] if ipu in here else []

    def waits_for(self, ipu: int) -> Wait | None:
        """Return the reason why ``ipu`` waits in this meeting, or None."""
        if self._carrying:
            return Wait(f"{self.what}, which {self._carrying} of its links have not delivered")
        return super().waits_for(ipu)

    def state(self, first_micro_batch: int) -> Hashable:
        """Return arrived IPUs, remaining meetings of sleeping IPUs, and the copy under way.

        The next copy follows from the IPUs' positions in their instructions.
        """
        waking = tuple(
            (meeting - self._meeting, tuple(sorted(ipus))) for meeting, ipus in sorted(self._awake_after.items())
        )
        since, _ = self._released
        copying = (self._at, self._carrying) if self._copying else None
        upcoming = self._which()
        return super().state(first_micro_batch), waking, self._clock.now - since, upcoming, copying

    def _which(self) -> int:
        """Return the number of the next copy, on the current routes."""
        now = self._clock.now
        return self._copy_of[self._time_step] + self._distinct * sum(later.cycle <= now for later in self._routes)

    def _cut_short(self, first_byte: int) -> int | None:
        """Return the cycle in which a cable dies during the copy, or None."""
        now, links = self._clock.now, {share.link for share in self._copy.links}
        dying = next((later for later in self._routes if later.cycle > now and links & later.dead), None)
        if dying is None:
            return None
        of = self._bundles[self._at]
        last = max(self._clock.end(bundle.links, _LINK, first_byte, bundle.cycles) for bundle in of)
        return dying.cycle if last > dying.cycle else None

    def _resend(self, start: int, met: int, laid_out: int, first_byte: int, cause: int, _: object) -> None:
        """Record the interrupted part of a copy, and begin the copy again."""
        now = self._clock.now
        cause = self._record_lead(start, min(met, now), min(laid_out, now), cause)
        for bundle in self._bundles[self._at] if now > first_byte else ():
            end = self._clock.end(bundle.links, _LINK, first_byte, bundle.cycles)
            self._record(bundle.what, self._step, first_byte, min(end, now), cause)
        if now > laid_out:
            cause = self._record(self._exchange[self._at], self._step, laid_out, now, cause)
        self._meet(cause, resent=True)

    def _meet(self, cause: int, *, resent: bool = False) -> None:
        """Begin the work after the last arrival.

        The IPUs synchronise and copy, or are released at once if there is nothing to copy. The meeting is a chain of
        event callbacks instead of a process, which would cost an event more per step. The loop repeats while every IPU
        sleeps.
        """
        while True:
            if not resent:
                self._record_waits(self._step)
            resent = False
            self._at = self._which()
            self._copy = copy = self._copies[self._at]
            start, end, fixed = self._clock.now, self._clock.end, copy.fixed
            met = end(self._workers, _SYNC, start, fixed.sync_cycles)
            laid_out = end(self._workers, _PRE_COPY, met, fixed.pre_copy_cycles)
            first_byte = end(self._workers, _EXCHANGE, laid_out, fixed.exchange_cycles + fixed.latency_cycles)
            self._copying = True
            if self._routes and (cut := self._cut_short(first_byte)) is not None:
                self._clock.call_at(cut, partial(self._resend, start, met, laid_out, first_byte, cause))
                return
            bundles = self._bundles[self._at]
            if self._is_alone and len(bundles) == 1:
                (bundle,) = bundles
                self._carrying = len(bundle.links)
                last_byte = end(bundle.links, _LINK, first_byte, bundle.cycles)
                whole = partial(self._carry_whole, start, met, laid_out, first_byte, last_byte, bundle, cause)
                self._clock.call_at(self._put_away_at(last_byte), whole)
                return
            if first_byte > start:
                self._clock.call_at(first_byte, partial(self._begin, start, met, laid_out, cause))
                return
            if copy.links:
                self._transfer(start, cause)
                return
            if (done := self._finish(cause)) is not None:
                done.succeed(cause)
            if self._sleepers != self._everyone:
                return

    def _record_waits(self, step: int) -> dict[int, int]:
        now = self._clock.now
        since, cause = self._released
        if not self._asleep:
            super()._record_waits(step)
        elif since < now:
            if any(arrival == since for arrival, _ in self._arrived.values()):
                sleepers = (ipu for ipu, bit in self._bits.items() if self._asleep & bit)
                self._arrived |= dict.fromkeys(sleepers, self._released)
                super()._record_waits(step)
            else:
                self._record(self._all_waits(self._asleep), step, since, now, cause)
                for ipu, (arrival, before) in sorted(self._arrived.items()):
                    if arrival < now:
                        self._record(self._wait_of[ipu], step, arrival, now, before)
        self._arrived.clear()
        if self._falling_asleep:
            self._asleep |= sum(map(self._bits.__getitem__, self._falling_asleep))
            self._sleepers += len(self._falling_asleep)
            self._falling_asleep.clear()
        return {}

    def _found_waits(self, asleep: int) -> int:
        """Return the recorder's group of the waits of sleeping IPUs."""
        return self._recorder.group([self._wait_of[ipu] for ipu, bit in self._bits.items() if asleep & bit])

    def _begin(self, start: int, met: int, laid_out: int, cause: int, _: object) -> None:
        """Record sync and pre-copy since the last arrival at ``start``, and start the links."""
        self._transfer(laid_out, self._record_lead(start, met, laid_out, cause))

    def _record_lead(self, start: int, met: int, laid_out: int, cause: int) -> int:
        if met > start:
            cause = self._record(self._sync, self._step, start, met, cause)
        if laid_out > met:
            cause = self._record(self._pre_copy, self._step, met, laid_out, cause)
        return cause

    def _carry_whole(
        self,
        start: int,
        met: int,
        laid_out: int,
        first_byte: int,
        last_byte: int,
        bundle: Bundle,
        cause: int,
        event: object,
    ) -> None:
        """Record a copy of a single bundle, at the copy's end."""
        cause = self._record_lead(start, met, laid_out, cause)
        self._deliver(bundle, laid_out, first_byte, last_byte, cause, event)

    def _transfer(self, since: int, cause: int) -> None:
        """Start the link directions of the copy; end a copy without links.

        The exchange began at ``since``.
        """
        if not self._copy.links:
            self._end(cause)
            return
        self._carrying = len(self._copy.links)
        first_byte = self._clock.now
        bundles = self._bundles[self._at]
        # Only the post-copy follows a single bundle: a shared event saves an event per time-step.
        after = self._copy.fixed.post_copy_cycles if len(bundles) == 1 else 0
        for bundle in bundles:
            last_byte = self._clock.end(bundle.links, _LINK, first_byte, bundle.cycles)
            done = self._put_away_at(last_byte) if after else last_byte
            self._clock.call_at(done, partial(self._deliver, bundle, since, first_byte, last_byte, cause))

    def _put_away_at(self, start: int) -> int:
        """Return the end of the post-copy of data received by ``start``."""
        return self._clock.end(self._workers, _POST_COPY, start, self._copy.fixed.post_copy_cycles)

    def _put_away(self, start: int, cause: int, _: object) -> None:
        """Record the post-copy."""
        self._end(self._record(self._post_copy, self._step, start, self._clock.now, cause))

    def _end(self, cause: int) -> None:
        """End the copy and wake the IPUs.

        If every IPU sleeps through the next time-step, begin its meeting.
        """
        if (done := self._finish(cause)) is not None:
            self._clock.happen(done, cause)
        elif self._sleepers == self._everyone:
            self._meet(cause)

    def _finish(self, cause: int) -> simpy.Event | None:
        """End a time-step and deliver tensors; return the event that wakes IPUs, if any."""
        for executor in self._executors:
            executor.copy(self._copy.edges)
        self._copying = False
        self._time_step += 1
        self._step += 1
        if self._time_step == len(self._copy_of):
            self._time_step = 0
            self._step += 1  # the weight update counts as a time-step
        for ipu in self._awake_after.pop(self._meeting, ()):
            if self._asleep & self._bits[ipu]:
                self._asleep ^= self._bits[ipu]
                self._sleepers -= 1
        done = self._events.pop(self._meeting, None)
        self._meeting += 1
        self._released = (self._clock.now, cause)
        self._finished(self._step)
        return done

    def _deliver(self, bundle: Bundle, since: int, first_byte: int, last_byte: int, cause: int, event: object) -> None:
        """End a bundle's share of the merged copy; the last delivery ends the exchange."""
        self._record(bundle.what, self._step, first_byte, last_byte, cause)
        self._carrying -= len(bundle.links)
        if not self._carrying:
            last = self._record(self._exchange[self._at], self._step, since, last_byte, cause)
            if self._clock.now > last_byte:
                self._put_away(last_byte, last, event)
            elif self._copy.fixed.post_copy_cycles:
                self._clock.call_at(self._put_away_at(last_byte), partial(self._put_away, last_byte, last))
            else:
                self._end(last)


def _bundles_of(context: Context, copies: Sequence[StepCopy]) -> list[list[Bundle]]:
    """Return every copy's bundles: links that carry equally long in the same copies.

    If links may be slower than their neighbours, every link is a separate bundle.
    """
    labels, recorder = [direction.label for direction in context.costs.links], context.recorder
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for link in sorted({share.link for copy in copies for share in copy.links}):
        cycles = tuple(
            (which, share.cycles) for which, copy in enumerate(copies) for share in copy.links if share.link == link
        )
        alike.setdefault(cycles, []).append(link)
    bundles: list[list[Bundle]] = [[] for _ in copies]
    for pattern, together in alike.items():
        steady = context.clock.is_steady(resources.links(labels[link] for link in together))
        for links in [together] if steady else [[link] for link in together]:
            workers = resources.links(labels[link] for link in links)
            for which, link_cycles in pattern:
                sizes = {share.link: share.bytes for share in copies[which].links}
                spans = (Description(SpanKind.LINK, link=link, bytes=sizes[link], replica=NONE) for link in links)
                what = recorder.group([recorder.describe(span) for span in spans])
                bundles[which].append(Bundle(what, link_cycles, workers))
    return bundles


def build(context: Context) -> list[Interconnect]:
    """Return the meetings after time-steps; empty in point-to-point.

    Replicas meet jointly, or each separately.
    """
    meetings = context.costs.copies.meetings
    return [Interconnect(context, replicas, copies) for replicas, copies in zip(context.groups, meetings, strict=False)]
