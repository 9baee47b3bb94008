"""The best Order for a scenario's costs that can be found in a time: searched from the schedules that there are.

The search looks at passes without contention; what it finds is simulated as the named schedules are, and stands only
where its time per weight update is less than theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from ipusim.api import (
    Job,
    Request,
    RequestError,
    RequestMemoryError,
    Schedule,
    Sync,
    analysis,
    assemble,
    schedules,
)
from ipusim.app.compare.compare import Row, compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.study.trial import time_alone, tried
from ipusim.app.synthesize.bound import Bound
from ipusim.app.synthesize.descent import improved
from ipusim.app.synthesize.memory import Limits, held_by
from ipusim.app.synthesize.periods import Periodic, letters_of, with_periods, without_periods
from ipusim.app.synthesize.starts import NAME, Start, assembled, in_halves, starts_of
from ipusim.app.synthesize.tasks import unsearched_for
from ipusim.base.errors import OptionError, ProgramError

#: Rounds of the search, by their shares of its time and how many placements and kinds of passes go on behind them:
#: whole backward passes lead for a while where IPUs meet, and those in halves may end ahead.
_ROUNDS: Final = ((0.1, 2), (0.7, 2))
#: The share of the time that an exhaustive search may take, before the others.
_PROOF: Final = 0.5
#: Passes of torch's CSV, at most.
_IN_CSV: Final = 50_000


@dataclass(frozen=True, eq=False)
class Synthesis:
    """The result of a search.

    Attributes:
        fitting: the named schedules that fit, as `compare` has them.
        named: the best of them.
        made: what was found, where it takes less time than ``named``; else None.
        words: of each IPU its letters before, in and behind a period, where ``made`` is there.
        least: the fewest micro-batches of these words; without periods the only ones.
        bounds: of each placement and kind of backward pass, what no Order of it can beat.
        seconds: that the search took.
        unsearched: the fastest that fits of the schedules that are no part of the search, such as those with two
            copies of each stage; or None.
        micro_batches: the limit of them; None for none.
    """

    fitting: Comparison
    named: Row
    made: Row | None
    words: Mapping[int, tuple[str, str, str]]
    least: int
    bounds: tuple[Bound, ...]
    seconds: float
    unsearched: Row | None = None
    micro_batches: int | None = None

    @property
    def best(self) -> Row:
        """The best Order found, or the best named schedule where none is better."""
        return self.made or self.named

    @property
    def bound(self) -> Bound:
        """The bound that no searched Order can beat."""
        return min(self.bounds, key=lambda bound: bound.cycles)

    @property
    def is_periodic(self) -> bool:
        """Whether the words have periods."""
        return all(period for _, period, _ in self.words.values())

    @property
    def torch_count(self) -> int:
        """The micro-batches of torch's CSV: the scenario's, or the least where a file of all passes would be large."""
        assert self.best.times is not None, "of a row that ran"
        passes = sum(len(f"{head} {tail}".replace("|", "").split()) for head, _, tail in self.words.values())
        return self.best.times.count if self.best.times.count * passes <= _IN_CSV * self.least else self.least

    @property
    def is_optimal(self) -> bool:
        """Whether the pipeline takes as long as the bound."""
        return self.best.times is not None and self.best.times.makespan_cycles <= self.bound.cycles


def synthesize(
    request: Request,
    named: Sequence[str] = ("all",),
    *,
    seconds: float = 10.0,
    memory: Sequence[int] = (),
    micro_batches: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Synthesis:
    """Return the best Order that is found for what ``request`` asks for.

    Args:
        request: the scenario; its sync mode stays.
        named: names of schedules to begin with, and to hold the Order against.
        seconds: for the search, behind the runs of these.
        memory: the most bytes of each IPU, or one size for all, where the machine has more.
        micro_batches: the most whose activations an IPU holds at once; one whose half for the input has ended counts as
            one half. Of Orders that take as long the one with the least cost stands, the longest time from an IPU's
            first pass to its own last.
        tell: called with how far the search is.
        stopped: whether it is to end before its time.

    Raises:
        OptionError: for seconds or micro-batches that are not above 0, and for sizes of another number of IPUs.
        ProgramError: for a scenario whose passes are not to be ordered, or that no schedule fits.
        RequestError: where no schedule can run it.
    """
    if not seconds > 0:
        raise OptionError("seconds", f"expected a time above 0, got {seconds:g}")
    if micro_batches is not None and micro_batches < 1:
        raise OptionError("memory", f"expected 1 micro-batch or more, got {micro_batches}")
    request = request.replace({"pipeline.sync": _sync(request).value})
    jobs, unsearched = _rows(request, named)
    rows = tuple(row for row, _ in jobs)
    limits = Limits(_sizes(memory, rows), micro_batches)
    comparison = Comparison(tuple(row for row in rows if _fits(row, limits)))
    best = comparison.best
    if best is None:
        raise ProgramError("expected a schedule that fits the memory, got none: raise the limit, or use more stages")
    starts = list(starts_of(request, [job for _, job in jobs], limits))
    if not starts:
        raise ProgramError(
            "expected passes that can be put into another order, got concurrent stages, batch serialization, I/O tiles "
            "or recomputation as passes of its own under every schedule"
        )
    began = time.monotonic()
    known = best.times.makespan_cycles if best.times else 0
    for start in starts:
        start.prove(lambda: time.monotonic() < began + seconds * _PROOF and not stopped())
    # In a limit of micro-batches an Order may have less cost than a schedule that takes as long as the bound.
    searching = [start for start in starts if start.bound.cycles < known or (micro_batches and start.cost < inf)]
    searched = _searched(searching, seconds, stopped, tell)
    made, periodic = _judged(request, searched, limits, comparison, best)
    letters, least = ({}, 0) if periodic is None else (letters_of(periodic), periodic.least)
    bounds, took = tuple(start.bound for start in starts), time.monotonic() - began
    other = min((row for row in unsearched if _fits(row, limits)), key=comparison.cost, default=None)
    return Synthesis(comparison, best, made, letters, least, bounds, took, other, micro_batches)


def _rows(request: Request, named: Sequence[str]) -> tuple[list[tuple[Row, Job]], list[Row]]:
    """Return the runs of named schedules that have as many IPUs as the scenario's own, which is among them.

    On other numbers of IPUs there are other numbers of replicas, and another work behind a weight update.

    Returns:
        Those that a search may begin with, each with its Job, and the others.
    """
    own = request.options.pipeline.schedule
    rows = compare(request, list(dict.fromkeys([*schedules.called(named), own])))
    ipus = len(set(_placement(request)))
    jobs = [(row, of) for row in rows if (of := _job(request, row)) is not None]
    jobs = [(row, of) for row, of in jobs if len(set(of.program.shape.mapping)) == ipus]
    searchable = [(row, of) for row, of in jobs if not unsearched_for(of)]
    if not searchable:
        text = "expected a schedule of whole micro-batches with one copy of each stage to begin with, got none"
        raise ProgramError(f"{text}: name others")
    return searchable, [row for row, of in jobs if unsearched_for(of)]


def _placement(request: Request) -> tuple[int, ...]:
    """Return the IPU of each stage under a request's own schedule, whose rule of counts an Order need not keep."""
    try:
        return assemble(time_alone(request, misfits=True)).program.shape.mapping
    except RequestError:
        own = schedules.schedule_of(request.options.pipeline.schedule, request.folder)
        halves = in_halves(())
        job = assembled(request, replace(halves, placement=own.placement, per_ipu=own.per_ipu))
        if job is None:
            raise
        return job.program.shape.mapping


def _sync(request: Request) -> Sync:
    """Return the sync mode of a request, by default that of its schedule."""
    mode = request.options.pipeline.sync
    if mode:
        return Sync(mode)
    return schedules.schedule_of(request.options.pipeline.schedule, request.folder).syncs[0]


def _sizes(memory: Sequence[int], rows: Sequence[Row]) -> dict[int, int]:
    """Return the most bytes of each IPU, by its number; raises OptionError for sizes of another number of IPUs."""
    ipus = 1 + max(ipu for row in rows if row.times is not None for ipu in row.times.mapping)
    if len(memory) not in (0, 1, ipus):
        raise OptionError("memory", f"expected one size, or one for each of {ipus} IPUs, got {len(memory)}")
    return dict(enumerate([*memory] * ipus if len(memory) == 1 else memory))


def _fits(row: Row, limits: Limits) -> bool:
    """Whether a row ran, and its IPUs keep within limits."""
    if row.result is None:
        return False
    job = row.result.job
    if limits.micro_batches is not None:
        passes: dict[int, list[tuple[int, int]]] = {}
        for ipu, kind, stage, _ in job.plan.order.passes.tolist():
            passes.setdefault(ipu, []).append((kind, stage))
        if any(held_by(of, job.program.shape.segments) > limits.micro_batches for of in passes.values()):
            return False
    return analysis.usable(row.fits) and all(
        peak.bytes <= limits.sizes.get(peak.ipu, peak.bytes) for peak in job.memory.peaks
    )


def _job(request: Request, row: Row) -> Job | None:
    """Return the Job of a row, also where it does not fit; None where its schedule refuses the program."""
    if row.result is not None:
        return row.result.job
    if row.memory is None:
        return None
    return tried(request, {"pipeline.schedule": row.schedule}).job


def _searched(
    starts: Sequence[Start], seconds: float, stopped: Callable[[], bool], tell: Callable[[str], None]
) -> list[tuple[int, Periodic]]:
    """Return the best words of each start that was looked at to the end, the fastest first, with periods."""
    left = sorted(starts, key=_promise)
    end = time.monotonic()

    def until(moment: float) -> Callable[[], bool]:
        return lambda: time.monotonic() < moment and not stopped()

    for turn, (share, most) in enumerate(_ROUNDS):
        for start in left:
            end += seconds * share / len(left)
            tell(f"{left[0].makespan:,} cycles of {start.count} micro-batches")
            start.words, start.makespan = improved(start.memory, start.words, start.least, until(end), turn, start.cost)
        left = sorted(left, key=_promise)[:most]
    fastest = []
    for start in left:
        whole = start.job.program.shape.micro_batches
        # The first words may repeat with a shorter period than the best words.
        every = dict.fromkeys([start.words, *([start.first] if start.count < whole else [])])
        for words in every:
            end += seconds * (1 - sum(share for share, _ in _ROUNDS)) / len(left) / len(every)
            periodic = with_periods(start.memory, words, start.count, whole, until(end))
            if periodic is None and start.count == whole:
                periodic = without_periods(start.tasks, words, whole)
            if periodic is not None:
                fastest.append((periodic.makespan(whole) or 0, periodic))
    return sorted(fastest, key=lambda item: item[0])


def _promise(start: Start) -> float:
    """Return the cycles of a micro-batch, by which starts are sorted, with what a bound says of all of them."""
    whole = start.job.program.shape.micro_batches
    return max(start.makespan / start.count, start.bound.cycles / whole)


def _judged(
    request: Request,
    searched: Sequence[tuple[int, Periodic]],
    limits: Limits,
    comparison: Comparison,
    named: Row,
) -> tuple[Row | None, Periodic | None]:
    """Return the fastest of what was found, simulated, where it fits and takes less time than ``named``.

    In a limit of micro-batches it may take as long, and have less cost.
    """

    def order(row: Row) -> tuple[float, int]:
        assert row.times is not None, "of a row that ran"
        return comparison.cost(row), 0 if limits.micro_batches is None else row.times.bubble.rank_cost_cycles

    best: tuple[Row | None, Periodic | None] = None, None
    for _, periodic in searched:
        schedule = schedules.in_words(NAME, letters_of(periodic))
        row = _simulated(request, schedule)
        if row is not None and _fits(row, limits) and order(row) < order(best[0] or named):
            best = row, periodic
    return best


def _simulated(request: Request, schedule: Schedule) -> Row | None:
    """Return the run of a request under a schedule of words; None where it is refused."""
    with schedules.scoped():
        schedules.register(schedule)
        try:
            (row,) = compare(request, [NAME])
        except (RequestMemoryError, RequestError):
            return None
    return row
