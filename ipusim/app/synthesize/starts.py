"""Where a search begins: each placement of stages, with words of schedules and words made pass by pass.

In lock-step a placement has one search, whose backward passes may be whole or in halves. In point-to-point it has one
for whole backward passes and one for halves, as schedules have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Final

from ipusim.api import Job, Request, Schedule, pipelines, schedules
from ipusim.app.study.trial import tried
from ipusim.app.synthesize.bound import Bound, lower_bound
from ipusim.app.synthesize.evaluate import evaluate
from ipusim.app.synthesize.exact import is_small, proven
from ipusim.app.synthesize.greedy import greedy
from ipusim.app.synthesize.grid import words_in_time_steps
from ipusim.app.synthesize.in_turns import in_turns
from ipusim.app.synthesize.memory import Limits, Memory, memory_of
from ipusim.app.synthesize.periods import letters_of, without_periods
from ipusim.app.synthesize.tasks import Tasks, Words, tasks_of, words_of
from ipusim.base.errors import ProgramError

#: What the Order that is found is called.
NAME: Final = "synthesized"
#: Passes of an execution up to which its words are searched whole; of a longer one so many are, and periods make up the
#: rest.
_WHOLE: Final = 3000
_PART: Final = 1000
#: By how many times what 1F1B keeps words are begun with, and for which part of a half for the weights they wait.
_DEPTHS: Final = (1.0, 1.5, 2.0, 1e9)
_WAITS: Final = (0.0, 0.5, 1.0)


@dataclass(eq=False)
class Start:
    """One search: the passes of a placement of stages, with the best words of passes so far.

    Attributes:
        memory: of its IPUs, with its tasks.
        bound: of the whole count.
        least: the same with weight updates, where it is the whole count that is searched; else 0.
        count: micro-batches that are searched.
        words: the best so far, with their makespan.
        first: those that the search began with.
        cost: the most cycles from an IPU's first pass to its own last.
    """

    job: Job
    memory: Memory
    bound: Bound
    least: int
    count: int
    words: Words = ()
    makespan: int = 0
    first: Words = ()
    cost: float = inf

    @property
    def tasks(self) -> Tasks:
        """The letters that are put into an order."""
        return self.memory.tasks

    def take(self, words: Words) -> None:
        """Take words where they fit, and are the first or take less time."""
        outcome = evaluate(self.tasks, words)
        if outcome is None or (self.words and outcome.makespan >= self.makespan):
            return
        if all(self.memory.fits(number, word) for number, word in enumerate(words)):
            self.words = self.first = words
            self.makespan = outcome.makespan

    def take_order(self, order: pipelines.Order) -> None:
        """Take the words of an Order."""
        if not {(kind, stage) for _, kind, stage, _ in order.passes.tolist()} <= {*self.tasks.passes}:
            return
        if self.tasks.meeting is None:
            words = words_of(self.tasks, order.passes.tolist())
        else:
            words = words_in_time_steps(self.tasks, order)
        if words is not None:
            self.take(words)

    def prove(self, go_on: Callable[[], bool]) -> None:
        """Search all Orders of few passes in lock-step: the best is taken if it fits, and is the bound."""
        if self.least and self.bound.cycles < self.makespan and is_small(self.tasks, self.count):
            proof = proven(self.tasks, self.count, self.makespan, go_on)
            if proof is not None:
                self.take(proof.grid.words)
                self.bound, self.least = Bound(proof.cycles, states=proof.states), proof.cycles


def starts_of(request: Request, jobs: Sequence[Job], limits: Limits) -> Iterator[Start]:
    """Yield the searches: for each placement and kind of backward pass, with initial words that fit the memory.

    In lock-step there is one for each placement, in which backward passes may be whole or in halves.
    """
    starts: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], Start] = {}
    mappings = dict.fromkeys(job.program.shape.mapping for job in jobs)
    halved = [job for mapping in mappings if (job := assembled(request, in_halves(mapping))) is not None]
    meets = any(job.plan.sync.meets for job in jobs)
    for job in halved if meets else [*jobs, *halved]:
        tasks = tasks_of(job)
        key = (job.program.shape.mapping, tasks.letters if tasks is not None else ())
        if tasks is not None and key not in starts:
            starts[key] = _start(job, tasks, limits)
    for start in starts.values():
        for job in jobs:
            if job.program.shape.mapping == start.job.program.shape.mapping:
                with suppress(ProgramError):  # of a count that it has not
                    start.take_order(job.schedule.laid_out(replace(job.program.shape, micro_batches=start.count)))
    for start in starts.values():
        for words in _greedy(start):
            start.take_order(_order(start, words))
        limited = limits.micro_batches is not None
        # Without a limit a long program is searched by a part of its micro-batches: all of them would take seconds.
        apart = _in_turns(start) if limited or start.count == start.job.program.shape.micro_batches else None
        if apart is not None and not limited:
            start.take(apart.words)
            apart = None
        yield from (of for of in (start, apart) if of is not None and of.words)


def _order(start: Start, words: Words) -> pipelines.Order:
    """Return the Order of words without periods."""
    letters = letters_of(without_periods(start.tasks, words, start.count))
    shape = replace(start.job.program.shape, micro_batches=start.count)
    return schedules.in_words(NAME, letters).laid_out(shape)


def in_halves(mapping: tuple[int, ...]) -> Schedule:
    """Return a schedule of any count with stages where ``mapping`` has them, and backward passes in halves.

    Nothing but the costs of its passes, and what they hold, is looked at.
    """

    def order(shape: pipelines.PlanShape) -> pipelines.Order:
        forward = [(ipu, f"F{stage}") for stage, ipu in enumerate(shape.mapping)]
        back = [(ipu, f"{half}{stage}") for stage, ipu in reversed([*enumerate(shape.mapping)]) for half in "IW"]
        runs = [*forward, *(back if shape.training else [])]
        passes = {
            ipu: [f"{name}.{turn}" for at, name in runs if at == ipu for turn in range(shape.micro_batches)]
            for ipu in sorted(set(shape.mapping))
        }
        return pipelines.Order.of(NAME, shape, passes)

    return replace(
        schedules.find("gpipe"),
        name=NAME,
        order=order,
        placement=lambda stages, per_ipu: mapping,  # noqa: ARG005
    )


def assembled(request: Request, schedule: Schedule) -> Job | None:
    """Return the Job of a request under a schedule of no name, whether it fits or not; None where it is refused."""
    with schedules.scoped():
        schedules.register(schedule)
        return tried(request, {"pipeline.schedule": schedule.name}).job


def _start(job: Job, tasks: Tasks, limits: Limits) -> Start:
    whole = job.program.shape.micro_batches
    sram = job.memory.sram_bytes
    sizes = limits.sizes
    of = {ipu: min(sizes.get(ipu, sram or 0), sram or sizes.get(ipu, 0)) for ipu in tasks.ipus}
    sizes = {ipu: most for ipu, most in of.items() if sram or ipu in sizes}
    memory = memory_of(job, tasks, replace(limits, sizes=sizes))
    count = whole
    if whole * len(tasks.letters) > _WHOLE:
        count = min(whole, max(3 * tasks.words + 3, _PART // len(tasks.letters)))
    alone = lower_bound(replace(tasks, updates=(0,) * tasks.words), whole)
    return Start(job, memory, alone, lower_bound(tasks, whole).cycles if count == whole else 0, count)


def _in_turns(start: Start) -> Start | None:
    """Return the search that begins with all passes made micro-batch by micro-batch, and keeps the cost of these.

    It is None for whole backward passes, for IPUs that meet or have several stages, and where the words do not fit.
    """
    tasks, memory = start.tasks, start.memory
    whole = start.job.program.shape.micro_batches
    own = replace(start, count=whole, least=lower_bound(tasks, whole).cycles, words=(), makespan=0, first=())
    caps = [memory.micro_batches] if memory.micro_batches else [tasks.words, 2 * tasks.words, whole]
    for most in dict.fromkeys(min(cap, whole) for cap in caps):
        words = in_turns(tasks, whole, most)
        if words is not None:
            own.take(words)
    outcome = evaluate(tasks, own.words) if own.words else None
    return None if outcome is None else replace(own, cost=outcome.cost)


def _greedy(start: Start) -> Iterator[Words]:
    """Yield words that are made pass by pass, with more or less of what they keep."""
    tasks, memory = start.tasks, start.memory
    stages = memory.stages
    known = any(stage.saved for stage in stages)
    stashed = [stage.saved if known else 1 for stage in stages]
    rest = [stage.rest for stage in stages]
    if memory.micro_batches is not None:
        stashed, rest = [2] * len(stages), [1] * len(stages)
    for depth in _DEPTHS:
        room = []
        for word, ipu in enumerate(tasks.ipus):
            own = [number for number, stage in enumerate(stages) if ipu in stage.ipus]
            most = depth * sum(stashed[number] * (len(stages) - number) for number in own) / len(own)
            most = max(most, sum(stashed[number] for number in own))
            limit = memory.limits[word]
            if memory.micro_batches is not None:
                most = min(most, 2 * memory.micro_batches * len(own))
            elif limit is not None:
                running = max(stages[number].forward + stages[number].backward for number in own)
                most = min(most, limit - memory.base[word] - running)
            room.append(most)
        for patience, awaits in product(_WAITS, (False, True)):
            words = greedy(tasks, start.count, room, stashed, rest, patience, awaits=awaits)
            if words is not None:
                yield words
