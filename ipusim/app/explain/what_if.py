"""What a change would give: the run again with other Costs, beside what its critical path says of that.

A path of spans that release each other stays a bound whatever becomes of their lengths: with a change, a run takes at
least as long as its critical path then is. It takes just that where no other path becomes longer; else the run with the
change, which is simulated in either case, says how long it takes. Where spans of the path share bandwidth with others,
Streaming Memory's or a link's, a change may let them share less: the path is no bound then, but an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Final

import numpy as np

from ipusim.api import Costs, Job, SpanKind, Sync, System, Timeline, analysis, hardware, pricing, runs, timelines

#: Executions that are simulated at most: the first may find streams that later ones do not.
_MOST_EXECUTIONS: Final = 2
#: By how much a faster stage is faster.
_FASTER: Final = Fraction(1, 10)

#: A faster stage that cannot save this part of the time, by the critical path, is left out.
_LEAST_GAIN: Final = 0.001

_COPIES: Final = (
    SpanKind.EXCHANGE,
    SpanKind.PRE_COPY,
    SpanKind.POST_COPY,
    SpanKind.SEND,
    SpanKind.BLOCKING_SEND,
)
_HOST: Final = (*timelines.kinds_with(lambda row: row.track is timelines.Track.HOST or row.category == "host"),)


@dataclass(frozen=True)
class Change:
    """Something that would be otherwise.

    Attributes:
        words: what, as in ``dense2 10% faster``.
        costs, system: with the change.
        cycles: of a span of a kind and a stage (-1: of none) that takes some cycles now; those with the change.
        one_of_many: whether it is left out where its bound says that it gives next to nothing.
    """

    words: str
    costs: Costs
    system: System
    cycles: Callable[[int, int, int], int]
    one_of_many: bool = False


@dataclass(frozen=True)
class WhatIf:
    """What a change makes of a run.

    Attributes:
        change: in words.
        executions: of the pipeline in these runs.
        before, after: cycles of the run without and with the change, both simulated.
        path: of the critical path with the change.
    """

    change: str
    executions: int
    before: int
    after: int
    path: int

    @property
    def gain(self) -> float:
        """The part of its time that the run saves; negative where it takes longer, 0 of a run that takes no time."""
        return self._saved(self.after)

    @property
    def bound(self) -> float:
        """The most that the critical path lets it save."""
        return self._saved(self.path)

    @property
    def said_by_path(self) -> str:
        """What its critical path says of the change: ``exact`` where it stays critical, else a ``bound``.

        An ``estimate`` where bandwidth is shared otherwise, so that its spans themselves become shorter.
        """
        if self.path == self.after:
            return "exact"
        return "bound" if self.path < self.after else "estimate"

    def _saved(self, cycles: int) -> float:
        return 1 - cycles / self.before if self.before else 0.0


def what_if(job: Job) -> tuple[WhatIf, ...]:
    """Return what each change that can matter to ``job`` makes of it, the largest gain first.

    The runs are of time only and of two executions of the pipeline at most.
    """
    executions = min(job.executions, _MOST_EXECUTIONS)

    def run(number: int | None = None) -> Timeline:
        """Return the Timeline with the change of a number, which every Job of other counts has too."""

        def priced(of: Job) -> tuple[Costs, System]:
            if number is None:
                return of.costs, of.system
            change = next(islice(changes(of), number, None))
            return change.costs, change.system

        return runs.timeline_of(job, executions, priced=priced)

    timeline = run()
    path = analysis.critical_path_of(timeline)
    rows = np.flatnonzero(path.spans)
    kind, stage = timeline.kind[rows], timeline.stage[rows]
    spans = np.stack(
        [kind, np.where(timelines.PASS_OF_KIND[kind] >= 0, stage, -1), timeline.end[rows] - timeline.start[rows]]
    )
    times = path.spans[rows].tolist()
    before = analysis.run_times_of(timeline).throughput.run_cycles
    found = []
    for number, change in enumerate(changes(job)):
        least = sum(often * change.cycles(*span) for often, span in zip(times, spans.T.tolist(), strict=True))
        # What can give next to nothing needs no run: in a pipeline of 64 stages those are most of them.
        if not change.one_of_many or before - least >= before * _LEAST_GAIN:
            after = analysis.run_times_of(run(number)).throughput.run_cycles
            found.append(WhatIf(change.words, executions, before, after, least))
    return tuple(sorted(found, key=lambda each: -each.gain))


def changes(job: Job) -> Iterator[Change]:
    """Yield every change that can matter to ``job``: a faster stage each, perfect balance, and all that is no pass."""
    costs, system, names = job.costs, job.system, [profile.name for profile in job.program.stages]
    passes = costs.passes
    for stage, name in enumerate(names) if len(names) > 1 else ():
        faster = {key: _less(cycles) if key[1] == stage else cycles for key, cycles in passes.items()}
        yield replace(_of_passes(f"{name} {float(_FASTER):.0%} faster", job, faster), one_of_many=True)
    balanced = _balanced(job)
    if balanced != dict(passes):
        yield _of_passes("perfect balance of the IPUs", job, balanced)
    if job.plan.sync is Sync.POINT_TO_POINT:
        sends = {key: pricing.Send(send.bytes) for key, send in costs.sends.items()}
        yield Change("free copies between IPUs", replace(costs, sends=sends), system, _without(_COPIES))
    elif any(copy.total_cycles for copies in costs.copies.meetings for copy in copies):
        yield Change("free copies between IPUs", _with_copies(costs, _only_sync), system, _without(_COPIES))
        yield Change("free sync", _with_copies(costs, _no_sync), system, _without((SpanKind.SYNC,)))
    idle = _without_host(costs)
    if idle != costs:
        yield Change("a host that takes no time", idle, system, _without(_of_host(costs)))
    if job.plan.shape.training and any(costs.updates.values()):
        update = replace(costs, updates=dict.fromkeys(costs.updates, 0))
        yield Change("free arithmetic of the weight update", update, system, _without((SpanKind.WEIGHT_UPDATE,)))
    if costs.gradient_sum is not None and job.plan.shape.training:
        nothing = replace(costs.gradient_sum.cost, fixed=hardware.FixedParts(), rounds=())
        total = replace(costs.gradient_sum, cost=nothing)
        free = replace(costs, gradient_sum=total)
        yield Change("free all-reduce of the gradients", free, system, _without((SpanKind.ALL_REDUCE,)))


def _balanced(job: Job) -> dict[tuple[int, int], int]:
    """Return the cycles of passes, the same for each IPU: its stages share what is its part of all of a kind."""
    passes, mapping = job.costs.passes, job.plan.shape.mapping
    ipus = len(set(mapping))
    total: dict[int, int] = {}
    for (kind, _), cycles in passes.items():
        total[kind] = total.get(kind, 0) + cycles
    return {(kind, stage): -(-total[kind] // (ipus * mapping.count(mapping[stage]))) for kind, stage in passes}


def _less(cycles: int) -> int:
    return -int(-(cycles * (1 - _FASTER)) // 1)


def _of_passes(words: str, job: Job, passes: Mapping[tuple[int, int], int]) -> Change:
    def cycles(kind: int, stage: int, before: int) -> int:
        of = int(timelines.PASS_OF_KIND[kind])
        return passes[of, stage] if of >= 0 else before

    return Change(words, replace(job.costs, passes=passes), job.system, cycles)


def _without(kinds: tuple[SpanKind, ...]) -> Callable[[int, int, int], int]:
    def cycles(kind: int, _stage: int, before: int) -> int:
        return 0 if kind in kinds else before

    return cycles


def _without_host(costs: Costs) -> Costs:
    """Return costs without the streams of the host, its own work and its network."""
    update, total = costs.host_update, costs.host_sum
    tables = {
        stage: replace(table, ids=0, gather=0, rows=0, gradients=0, apply=0) for stage, table in costs.tables.items()
    }
    host_calls = {
        key: tuple(replace(call, send=0, drain=0, compute=0, fill=0, read=0) for call in calls)
        for key, calls in costs.host_calls.items()
    }
    return replace(
        costs,
        host=pricing.HostCosts(0, 0, 0, 0),
        tables=tables,
        host_calls=host_calls,
        host_update=None if update is None else replace(update, write=0, apply=0, read=0),
        host_sum=total if total is None or total.over_links is not None else replace(total, write=0, network=0, read=0),
    )


def _of_host(costs: Costs) -> tuple[SpanKind, ...]:
    """Return the kinds of spans that such a host leaves out."""
    over_links = costs.host_sum is not None and costs.host_sum.over_links is not None
    return (*_HOST, SpanKind.HOST_UPDATE, *(() if over_links else (SpanKind.HOST_SUM,)))


def _with_copies(costs: Costs, change: Callable[[pricing.StepCopy], pricing.StepCopy]) -> Costs:
    meetings = tuple(tuple(map(change, copies)) for copies in costs.copies.meetings)
    return replace(costs, copies=replace(costs.copies, meetings=meetings))


def _only_sync(copy: pricing.StepCopy) -> pricing.StepCopy:
    return replace(copy, fixed=hardware.FixedParts(sync_cycles=copy.fixed.sync_cycles), links=())


def _no_sync(copy: pricing.StepCopy) -> pricing.StepCopy:
    return replace(copy, fixed=copy.fixed._replace(sync_cycles=0))
