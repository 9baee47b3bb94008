"""Find the best Order, the sequence of passes on every IPU, for a scenario's costs within a time limit.

The search starts from existing schedules, and ignores contention. Results are simulated like named schedules, and kept
only if their time per weight update is shorter.
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
    pipelines,
    schedules,
)
from ipusim.app.compare.compare import Row, compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.study.trial import time_alone, try_request
from ipusim.app.synthesize.bound import Bound
from ipusim.app.synthesize.descent import improve_words
from ipusim.app.synthesize.memory import Limits, held_micro_batches
from ipusim.app.synthesize.periods import Periodic, letters_of, with_periods, without_periods
from ipusim.app.synthesize.starts import NAME, Start, assemble_with, in_halves, starts_of
from ipusim.app.synthesize.tasks import unsearched_for
from ipusim.base.errors import OptionError, ProgramError

#: Rounds of the search: share of the search time, and number of starts (each a placement and a kind of backward pass)
#: that continue. Two continue because in lock-step whole backward passes may be faster at first, and split backward
#: passes at the end.
_ROUNDS: Final = ((0.1, 2), (0.7, 2))
#: Maximum share of the time for an exhaustive search, before other searches.
_PROOF_SHARE: Final = 0.5
#: Maximum number of passes in torch's CSV.
_MOST_CSV_PASSES: Final = 50_000


@dataclass(frozen=True, eq=False)
class Synthesis:
    """Result of a search.

    Attributes:
        fitting: named schedules that fit, as in `compare`.
        best_named: best named schedule.
        new_order: best Order found; None unless better than ``best_named``.
        words: letters of every IPU before, in and after its period, if ``new_order`` exists.
        least_count: minimum number of micro-batches for these words; without periods, the only number.
        bounds: lower bound for every placement and kind of backward pass.
        seconds: duration of the search.
        unsearched: fastest fitting schedule outside of the search, such as a schedule with two copies of every stage;
            None if all are searched.
        micro_batches: maximum number of micro-batches held by an IPU; unlimited if None.
        is_among_all: whether the search compared all named schedules, and not only given ones.
    """

    fitting: Comparison
    best_named: Row
    new_order: Row | None
    words: Mapping[int, tuple[str, str, str]]
    least_count: int
    bounds: tuple[Bound, ...]
    seconds: float
    unsearched: Row | None = None
    micro_batches: int | None = None
    is_among_all: bool = True

    @property
    def best(self) -> Row:
        """Best Order found; the best named schedule if no Order is faster."""
        return self.new_order or self.best_named

    @property
    def bound(self) -> Bound:
        """Lower bound for all searched Orders."""
        return min(self.bounds, key=lambda bound: bound.cycles)

    @property
    def is_periodic(self) -> bool:
        """Whether the words have periods."""
        return all(period for _, period, _ in self.words.values())

    def contains(self, signs: str) -> bool:
        """Return whether the words contain one of the ``signs``, such as ``|``, which ends a time-step."""
        return any(sign in part for parts in self.words.values() for part in parts for sign in signs)

    @property
    def torch_count(self) -> int:
        """Micro-batches in torch's CSV: the scenario's count, or the minimum if the file would become large."""
        assert self.best.times is not None, "the best row has a result"
        passes = sum(len(f"{head} {tail}".replace("|", "").split()) for head, _, tail in self.words.values())
        is_small = self.best.times.count * passes <= _MOST_CSV_PASSES * self.least_count
        return self.best.times.count if is_small else self.least_count

    @property
    def has_bound(self) -> bool:
        """Validity of the bound for the best schedule; false for schedules without copies after some time-steps."""
        assert self.best.result is not None, "the best row has a result"
        job = self.best.result.job
        copies_always = not job.plan.sync.has_time_steps or job.plan.copy_rule is pipelines.CopyRule.MERGED
        return copies_always or job.system.free or len(job.plan.ipus) == 1

    @property
    def is_optimal(self) -> bool:
        """Whether the pipeline reaches a valid bound."""
        makespan = None if self.best.times is None else self.best.times.makespan_cycles
        return makespan is not None and makespan <= self.bound.cycles and self.has_bound


def synthesize(
    request: Request,
    names: Sequence[str] = ("all",),
    *,
    seconds: float = 10.0,
    memory: Sequence[int] = (),
    micro_batches: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Synthesis:
    """Find the best Order for a request.

    Args:
        request: the scenario; searches keep the scenario's sync mode.
        names: names of initial schedules, also used for comparison.
        seconds: time of the search, without simulations of named schedules.
        memory: maximum bytes of every IPU, or one size for all, below the machine's memory.
        micro_batches: maximum number of micro-batches whose activations an IPU holds at once; a micro-batch counts half
            after its input-gradient half. Among equally fast Orders, the Order with the lowest cost is chosen: the
            longest time from an IPU's first pass to its last.
        tell: receives progress messages.
        is_stopped: whether to end early.

    Raises:
        OptionError: if seconds or micro-batches are not positive, and for a wrong number of sizes.
        ProgramError: for a scenario whose passes cannot be reordered, or without a schedule that fits.
        RequestError: for a scenario that no schedule can run.
    """
    if not seconds > 0:
        raise OptionError("seconds", f"expected a time above 0, got {seconds:g}")
    if micro_batches is not None and micro_batches < 1:
        raise OptionError("memory", f"expected 1 micro-batch or more, got {micro_batches}")
    request = request.replace({"pipeline.sync": _sync(request).value})
    jobs, unsearched = _rows(request, names)
    rows = tuple(row for row, _ in jobs)
    limits = Limits(_sizes(memory, rows), micro_batches)
    comparison = Comparison(tuple(row for row in rows if _fits(row, limits)))
    best = comparison.best
    if best is None:
        raise ProgramError("expected a schedule that fits the memory, got none: raise the limit, or use more stages")
    starts = _starts(request, [job for _, job in jobs], limits)
    start_time = time.monotonic()
    known_cycles = best.times.makespan_cycles if best.times else 0
    for start in starts:
        start.prove(lambda: time.monotonic() < start_time + seconds * _PROOF_SHARE and not is_stopped())
    # With a limit of micro-batches, search continues at the bound: an equally fast Order may have less cost.
    unproven_starts = [
        start for start in starts if start.bound.cycles < known_cycles or (micro_batches and start.cost < inf)
    ]
    results = _search(unproven_starts, seconds, is_stopped, tell)
    order, periodic = _judge(request, results, limits, comparison, best)
    letters, least_count = ({}, 0) if periodic is None else (letters_of(periodic), periodic.least_count)
    bounds, duration_s = tuple(start.bound for start in starts), time.monotonic() - start_time
    alternative = min((row for row in unsearched if _fits(row, limits)), key=comparison.cost, default=None)
    is_among_all = {*schedules.names()} <= {*schedules.expand_names(names)}
    return Synthesis(
        comparison, best, order, letters, least_count, bounds, duration_s, alternative, micro_batches, is_among_all
    )


def _starts(request: Request, jobs: Sequence[Job], limits: Limits) -> list[Start]:
    """Return the starts of the search. Raises ProgramError if the passes of no schedule can be reordered."""
    if starts := list(starts_of(request, jobs, limits)):
        return starts
    raise ProgramError(
        "expected passes that can be reordered, got concurrent stages, batch serialization, I/O tiles or separate "
        "recomputation passes under every schedule"
    )


def _rows(request: Request, names: Sequence[str]) -> tuple[list[tuple[Row, Job]], list[Row]]:
    """Run the named schedules and the scenario's own schedule, on the scenario's number of IPUs.

    Other numbers of IPUs imply other numbers of replicas, and other work per weight update.

    Returns:
        Runs that a search may start with, each with its Job, and other runs.
    """
    request_schedule = request.options.pipeline.schedule
    rows = compare(request, list(dict.fromkeys([*schedules.expand_names(names), request_schedule])))
    ipus = len(set(_placement(request)))
    jobs = [(row, job) for row in rows if (job := _job(request, row)) is not None]
    jobs = [(row, job) for row, job in jobs if len(set(job.program.shape.mapping)) == ipus]
    searchable = [(row, job) for row, job in jobs if not unsearched_for(job)]
    if not searchable:
        text = (
            "no named schedule can start the search: expected one with whole micro-batches and one copy of each stage"
        )
        raise ProgramError(text)
    return searchable, [row for row, job in jobs if unsearched_for(job)]


def _placement(request: Request) -> tuple[int, ...]:
    """Return the placement of a request's schedule, even if the schedule refuses the count."""
    try:
        return assemble(time_alone(request, allow_oversized=True)).program.shape.mapping
    except RequestError:
        schedule = schedules.schedule_of(request.options.pipeline.schedule, request.folder)
        split_schedule = in_halves(())
        job = assemble_with(request, replace(split_schedule, placement=schedule.placement, per_ipu=schedule.per_ipu))
        if job is None:
            raise
        return job.program.shape.mapping


def _sync(request: Request) -> Sync:
    """Return a request's sync mode, by default the schedule's."""
    mode = request.options.pipeline.sync
    if mode:
        return Sync(mode)
    return schedules.schedule_of(request.options.pipeline.schedule, request.folder).syncs[0]


def _sizes(memory: Sequence[int], rows: Sequence[Row]) -> dict[int, int]:
    """Return the maximum bytes by IPU number; raises OptionError for a wrong number of sizes."""
    ipus = 1 + max(ipu for row in rows if row.times is not None for ipu in row.times.mapping)
    if len(memory) not in (0, 1, ipus):
        raise OptionError("memory", f"expected one size, or one for each of {ipus} IPUs, got {len(memory)}")
    return dict(enumerate([*memory] * ipus if len(memory) == 1 else memory))


def _fits(row: Row, limits: Limits) -> bool:
    """Tell whether a row ran, and its IPUs keep within limits."""
    if row.result is None:
        return False
    job = row.result.job
    if limits.micro_batches is not None:
        passes: dict[int, list[tuple[int, int]]] = {}
        for ipu, kind, stage, _ in job.plan.order.passes.tolist():
            passes.setdefault(ipu, []).append((kind, stage))
        segments = job.program.shape.segments
        if any(held_micro_batches(letters, segments) > limits.micro_batches for letters in passes.values()):
            return False
    return analysis.fits_or_unknown(row.fits) and all(
        peak.bytes <= limits.sizes.get(peak.ipu, peak.bytes) for peak in job.memory.peaks
    )


def _job(request: Request, row: Row) -> Job | None:
    """Return the Job of a row, even if it does not fit; None if the schedule refuses the program."""
    if row.result is not None:
        return row.result.job
    if row.memory is None:
        return None
    return try_request(request, {"pipeline.schedule": row.schedule}).job


def _search(
    starts: Sequence[Start], seconds: float, is_stopped: Callable[[], bool], tell: Callable[[str], None]
) -> list[tuple[int, Periodic]]:
    """Return the best words of every start after all rounds, with periods, fastest first."""
    remaining = sorted(starts, key=_expected_cycles)
    end = time.monotonic()

    def deadline(moment: float) -> Callable[[], bool]:
        return lambda: time.monotonic() < moment and not is_stopped()

    for turn, (share, count) in enumerate(_ROUNDS):
        for start in remaining:
            end += seconds * share / len(remaining)
            tell(f"{remaining[0].makespan:,} cycles of {start.count} micro-batches")
            start.words, start.makespan = improve_words(
                start.memory, start.words, start.update_bound, deadline(end), turn, start.cost
            )
        remaining = sorted(remaining, key=_expected_cycles)[:count]
    fastest = []
    for start in remaining:
        full_count = start.job.program.shape.micro_batches
        # The initial words may have a shorter period than the best words.
        candidates = dict.fromkeys([start.words, *([start.first] if start.count < full_count else [])])
        for words in candidates:
            end += seconds * (1 - sum(share for share, _ in _ROUNDS)) / len(remaining) / len(candidates)
            periodic = with_periods(start.memory, words, start.count, full_count, deadline(end))
            if periodic is None and start.count == full_count:
                periodic = without_periods(start.tasks, words, full_count)
            if periodic is not None:
                fastest.append((periodic.makespan(full_count) or 0, periodic))
    return sorted(fastest, key=lambda item: item[0])


def _expected_cycles(start: Start) -> float:
    """Return estimated cycles per micro-batch, the sort key of starts."""
    full_count = start.job.program.shape.micro_batches
    return max(start.makespan / start.count, start.bound.cycles / full_count)


def _judge(
    request: Request,
    results: Sequence[tuple[int, Periodic]],
    limits: Limits,
    comparison: Comparison,
    best_named: Row,
) -> tuple[Row | None, Periodic | None]:
    """Simulate found words; return the fastest fitting words that are faster than ``best_named``.

    With a limit of micro-batches, an equally fast Order of less cost counts as well.
    """

    def order(row: Row) -> tuple[float, int]:
        assert row.times is not None, "the row has a result"
        return comparison.cost(row), 0 if limits.micro_batches is None else row.times.bubble.rank_cost_cycles

    best: tuple[Row | None, Periodic | None] = None, None
    for _, periodic in results:
        schedule = schedules.in_words(NAME, letters_of(periodic))
        row = _simulate(request, schedule)
        if row is not None and _fits(row, limits) and order(row) < order(best[0] or best_named):
            best = row, periodic
    return best


def _simulate(request: Request, schedule: Schedule) -> Row | None:
    """Simulate a request under a schedule of words; None if refused."""
    with schedules.temporarily():
        schedules.register(schedule)
        try:
            (row,) = compare(request, [NAME])
        except (RequestMemoryError, RequestError):
            return None
    return row
