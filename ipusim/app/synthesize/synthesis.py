"""The best Order for a scenario's costs that can be found in a time: searched from the schedules that there are.

The search looks at passes without contention; what it finds is simulated as the named schedules are, and stands only
where its time per weight update is less than theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
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
from ipusim.app.synthesize.bound import Bound, lower_bound
from ipusim.app.synthesize.descent import improved
from ipusim.app.synthesize.evaluate import evaluate
from ipusim.app.synthesize.greedy import greedy
from ipusim.app.synthesize.memory import Memory, memory_of
from ipusim.app.synthesize.periods import Periodic, with_periods
from ipusim.app.synthesize.tasks import Tasks, Words, tasks_of, unsearched_for, words_of
from ipusim.base.errors import OptionError, ProgramError

#: With which a scenario that does not fit is looked at all the same.
_REPORTED: Final = {"memory": "report", "numerics": "off"}
#: What the Order that is found is called.
NAME: Final = "synthesized"
#: Passes of an execution up to which its words are searched whole; of a longer one so many are, and periods make up the
#: rest.
_WHOLE: Final = 3000
_PART: Final = 1000
#: Rounds of the search, by their shares of its time and how many placements and kinds of passes go on behind them:
#: whole backward passes lead for a while where IPUs meet, and those in halves may end ahead.
_ROUNDS: Final = ((0.1, 2), (0.7, 2))
#: Passes of torch's CSV, at most.
_IN_CSV: Final = 50_000
#: By how many times what 1F1B keeps words are begun with, and for which part of a half for the weights they wait.
_DEPTHS: Final = (1.0, 1.5, 2.0, 1e9)
_WAITS: Final = (0.0, 0.5, 1.0)


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
    """

    fitting: Comparison
    named: Row
    made: Row | None
    words: Mapping[int, tuple[str, str, str]]
    least: int
    bounds: tuple[Bound, ...]
    seconds: float
    unsearched: Row | None = None

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
        passes = sum(len(head.split()) + len(tail.split()) for head, _, tail in self.words.values())
        return self.best.times.count if self.best.times.count * passes <= _IN_CSV * self.least else self.least

    @property
    def is_optimal(self) -> bool:
        """Whether the pipeline takes as long as the bound."""
        return self.best.times is not None and self.best.times.makespan_cycles <= self.bound.cycles


@dataclass(eq=False)
class _Start:
    """One search: the passes of a placement of stages, with the best words of passes so far.

    Attributes:
        memory: of its IPUs, with its tasks.
        bound: of the whole count.
        least: the same with weight updates, where it is the whole count that is searched; else 0.
        count: micro-batches that are searched.
        words: the best so far, with their makespan.
        first: those that the search began with.
    """

    job: Job
    memory: Memory
    bound: Bound
    least: int
    count: int
    words: Words = ()
    makespan: int = 0
    first: Words = ()

    @property
    def tasks(self) -> Tasks:
        return self.memory.tasks

    def take(self, words: Words) -> None:
        """Take words where they fit, and are the first or take less time."""
        outcome = evaluate(self.tasks, words)
        if outcome is None or (self.words and outcome.makespan >= self.makespan):
            return
        if all(self.memory.fits(number, word) for number, word in enumerate(words)):
            self.words = self.first = words
            self.makespan = outcome.makespan


def synthesize(
    request: Request,
    named: Sequence[str] = ("all",),
    *,
    seconds: float = 10.0,
    memory: Sequence[int] = (),
    tell: Callable[[str], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Synthesis:
    """Return the best Order that is found for what ``request`` asks for.

    Args:
        request: the scenario; its sync mode stays.
        named: names of schedules to begin with, and to hold the Order against.
        seconds: for the search, behind the runs of these.
        memory: the most bytes of each IPU, or one size for all, where the machine has more.
        tell: called with how far the search is.
        stopped: whether it is to end before its time.

    Raises:
        OptionError: for seconds that are not above 0, and for sizes of another number of IPUs.
        ProgramError: for a scenario whose passes are not to be ordered, or that no schedule fits.
        RequestError: where no schedule can run it.
    """
    if not seconds > 0:
        raise OptionError("seconds", f"expected a time above 0, got {seconds:g}")
    request = request.replace({"pipeline.sync": _sync(request).value})
    jobs, unsearched = _rows(request, named)
    rows = tuple(row for row, _ in jobs)
    limits = _limits(memory, rows)
    comparison = Comparison(tuple(row for row in rows if _fits(row, limits)))
    best = comparison.best
    if best is None:
        raise ProgramError("expected a schedule that fits the memory, got none: raise the limit, or use more stages")
    starts = list(_starts([job for _, job in jobs], limits))
    if not starts:
        raise ProgramError(
            "expected passes that can be put into another order, got concurrent stages, batch serialization, I/O tiles "
            "or recomputation as passes of its own under every schedule"
        )
    began = time.monotonic()
    known = best.times.makespan_cycles if best.times else 0
    searched = _searched([start for start in starts if start.bound.cycles < known], seconds, stopped, tell)
    made, periodic = _judged(request, searched, limits, comparison, best)
    letters, least = ({}, 0) if periodic is None else (letters_of(periodic), periodic.least)
    bounds, took = tuple(start.bound for start in starts), time.monotonic() - began
    other = min((row for row in unsearched if _fits(row, limits)), key=comparison.cost, default=None)
    return Synthesis(comparison, best, made, letters, least, bounds, took, other)


def _rows(request: Request, named: Sequence[str]) -> tuple[list[tuple[Row, Job]], list[Row]]:
    """Return the runs of named schedules that have as many IPUs as the scenario's own, which is among them.

    On other numbers of IPUs there are other numbers of replicas, and another work behind a weight update.

    Returns:
        Those that a search may begin with, each with its Job, and the others.
    """
    own = request.options.pipeline.schedule
    rows = compare(request, list(dict.fromkeys([*schedules.called(named), own])))
    job = assemble(request.replace(_REPORTED))
    ipus = len(set(job.program.shape.mapping))
    jobs = [(row, of) for row in rows if (of := _job(request, row)) is not None]
    jobs = [(row, of) for row, of in jobs if len(set(of.program.shape.mapping)) == ipus]
    searchable = [(row, of) for row, of in jobs if not unsearched_for(of)]
    if not searchable:
        text = "expected a schedule of whole micro-batches with one copy of each stage to begin with, got none"
        raise ProgramError(f"{text}: name others")
    return searchable, [row for row, of in jobs if unsearched_for(of)]


def _sync(request: Request) -> Sync:
    """Return the sync mode of a request, by default that of its schedule."""
    mode = request.options.pipeline.sync
    if mode:
        return Sync(mode)
    return schedules.schedule_of(request.options.pipeline.schedule, request.folder).syncs[0]


def _limits(memory: Sequence[int], rows: Sequence[Row]) -> dict[int, int]:
    """Return the most bytes of each IPU, by its number; raises OptionError for sizes of another number of IPUs."""
    ipus = 1 + max(ipu for row in rows if row.times is not None for ipu in row.times.mapping)
    if len(memory) not in (0, 1, ipus):
        raise OptionError("memory", f"expected one size, or one for each of {ipus} IPUs, got {len(memory)}")
    return dict(enumerate([*memory] * ipus if len(memory) == 1 else memory))


def _fits(row: Row, limits: Mapping[int, int]) -> bool:
    """Whether a row ran, and its IPUs keep within limits."""
    if row.result is None:
        return False
    return analysis.usable(row.fits) and all(
        peak.bytes <= limits.get(peak.ipu, peak.bytes) for peak in row.result.job.memory.peaks
    )


def _starts(jobs: Sequence[Job], limits: Mapping[int, int]) -> Iterator[_Start]:
    """Yield the searches: for each placement and kind of backward pass, with initial words that fit the memory."""
    starts: dict[tuple[object, ...], _Start] = {}
    for job in jobs:
        tasks = tasks_of(job)
        if tasks is None:
            continue
        key = job.program.shape.mapping, tasks.letters
        if key not in starts:
            starts[key] = _start(job, tasks, limits)
        start = starts[key]
        with suppress(ProgramError):  # of a count that it has not
            count = start.count
            order = job.schedule.laid_out(replace(job.program.shape, micro_batches=count))
            words = words_of(start.tasks, order.passes.tolist())
            if words is not None:
                start.take(words)
    for start in starts.values():
        for words in _greedy(start):
            start.take(words)
        if start.words:
            yield start


def _job(request: Request, row: Row) -> Job | None:
    """Return the Job of a row, also where it does not fit; None where its schedule refuses the program."""
    if row.result is not None:
        return row.result.job
    if row.memory is None:
        return None
    try:
        return assemble(request.replace({"pipeline.schedule": row.schedule, **_REPORTED}))
    except RequestError:
        return None


def _start(job: Job, tasks: Tasks, limits: Mapping[int, int]) -> _Start:
    whole = job.program.shape.micro_batches
    sram = job.memory.sram_bytes
    of = {ipu: min(limits.get(ipu, sram or 0), sram or limits.get(ipu, 0)) for ipu in tasks.ipus}
    memory = memory_of(job, tasks, {ipu: most for ipu, most in of.items() if sram or ipu in limits})
    count = whole
    if whole * len(tasks.letters) > _WHOLE:
        count = min(whole, max(3 * tasks.words + 3, _PART // len(tasks.letters)))
    alone = lower_bound(replace(tasks, updates=(0,) * tasks.words), whole)
    return _Start(job, memory, alone, lower_bound(tasks, whole).cycles if count == whole else 0, count)


def _greedy(start: _Start) -> Iterator[Words]:
    """Yield words that are made pass by pass, with more or less of what they keep."""
    tasks, memory = start.tasks, start.memory
    stages = memory.stages
    known = any(stage.saved for stage in stages)
    stashed = [stage.saved if known else 1 for stage in stages]
    rest = [stage.rest for stage in stages]
    for depth in _DEPTHS:
        room = []
        for word, ipu in enumerate(tasks.ipus):
            own = [number for number, stage in enumerate(stages) if ipu in stage.ipus]
            most = depth * sum(stashed[number] * (len(stages) - number) for number in own) / len(own)
            most = max(most, sum(stashed[number] for number in own))
            limit = memory.limits[word]
            if limit is not None:
                running = max(stages[number].forward + stages[number].backward for number in own)
                most = min(most, limit - memory.base[word] - running)
            room.append(most)
        for patience, awaits in product(_WAITS, (False, True)):
            words = greedy(tasks, start.count, room, stashed, rest, patience, awaits=awaits)
            if words is not None:
                yield words


def _searched(
    starts: Sequence[_Start], seconds: float, stopped: Callable[[], bool], tell: Callable[[str], None]
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
            start.words, start.makespan = improved(start.memory, start.words, start.least, until(end), turn)
        left = sorted(left, key=_promise)[:most]
    fastest = []
    for start in left:
        whole = start.job.program.shape.micro_batches
        # The words that it began with may repeat themselves better than those that are best of their own count.
        every = dict.fromkeys([start.words, *([start.first] if start.count < whole else [])])
        for words in every:
            end += seconds * (1 - sum(share for share, _ in _ROUNDS)) / len(left) / len(every)
            periodic = with_periods(start.memory, words, start.count, whole, until(end))
            if periodic is None and start.count == whole:
                nothing = tuple(() for _ in words)
                periodic = Periodic(start.tasks, words, nothing, nothing, whole)
            if periodic is not None:
                fastest.append((periodic.makespan(whole) or 0, periodic))
    return sorted(fastest, key=lambda item: item[0])


def _promise(start: _Start) -> float:
    """Return the cycles of a micro-batch, by which starts are sorted, with what a bound says of all of them."""
    whole = start.job.program.shape.micro_batches
    return max(start.makespan / start.count, start.bound.cycles / whole)


def _judged(
    request: Request,
    searched: Sequence[tuple[int, Periodic]],
    limits: Mapping[int, int],
    comparison: Comparison,
    named: Row,
) -> tuple[Row | None, Periodic | None]:
    """Return the fastest of what was found, simulated, where it fits and takes less time than ``named``."""
    best: tuple[Row | None, Periodic | None] = None, None
    for _, periodic in searched:
        schedule = schedules.in_words(NAME, letters_of(periodic))
        row = _simulated(request, schedule)
        if row is not None and _fits(row, limits) and comparison.cost(row) < comparison.cost(best[0] or named):
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


def letters_of(periodic: Periodic) -> dict[int, tuple[str, str, str]]:
    """Return of each IPU its letters before, in and behind its period, as text."""
    tasks = periodic.tasks
    names = [f"{pipelines.Pass(kind).letter}{stage}" for kind, stage in tasks.letters]

    def text(word: Sequence[int]) -> str:
        return " ".join(names[letter] for letter in word)

    parts = zip(tasks.ipus, periodic.heads, periodic.periods, periodic.tails, strict=True)
    return {ipu: (text(head), text(period), text(tail)) for ipu, head, period, tail in parts}
