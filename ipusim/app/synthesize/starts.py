"""List the starting points of a search: placements of stages, with words of schedules and greedy words.

A word is the sequence of an IPU's passes, in letters (see ``tasks``). The full count is the scenario's number of
micro-batches.

In lock-step, each placement has one search over whole and split backward passes. In point-to-point, each placement has
a search with whole backward passes and a search with split backward passes, following the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Final

from ipusim.api import Job, Request, Schedule, pipelines, schedules
from ipusim.app.study.trial import try_request
from ipusim.app.synthesize.bound import Bound, lower_bound
from ipusim.app.synthesize.evaluate import evaluate
from ipusim.app.synthesize.exact import find_proof, is_small
from ipusim.app.synthesize.greedy import greedy
from ipusim.app.synthesize.grid import words_in_time_steps
from ipusim.app.synthesize.in_turns import words_in_turns
from ipusim.app.synthesize.memory import Limits, Memory, memory_of
from ipusim.app.synthesize.periods import letters_of, without_periods
from ipusim.app.synthesize.tasks import Tasks, Words, tasks_of, words_of
from ipusim.base.errors import ProgramError

#: Name of a synthesized Order.
NAME: Final = "synthesized"
#: Maximum number of passes for a search of the whole execution.
_MOST_SEARCHED_PASSES: Final = 3000
#: Approximate number of passes searched in place of a longer execution; periods extend the result.
_SEARCHED_PASSES: Final = 1000
#: Amounts of memory to try for initial words, as multiples of 1F1B's memory.
_MEMORY_FACTORS: Final = (1.0, 1.5, 2.0, 1e9)
#: Waiting times to try, as fractions of a weight-gradient half.
_PATIENCES: Final = (0.0, 0.5, 1.0)


@dataclass(eq=False)
class Start:
    """One search: passes of a placement, with the best words so far.

    Attributes:
        job: Job with the placement and kind of backward pass.
        memory: memory of the IPUs, with the tasks.
        bound: lower bound for the full count.
        update_bound: lower bound in cycles, weight updates included; 0 if the search has fewer micro-batches.
        count: number of micro-batches in the search.
        words: best words so far.
        makespan: cycles of the best words.
        first: initial words.
        cost: upper limit of the cycles from an IPU's first pass to its last.
    """

    job: Job
    memory: Memory
    bound: Bound
    update_bound: int
    count: int
    words: Words = ()
    makespan: int = 0
    first: Words = ()
    cost: float = inf

    @property
    def tasks(self) -> Tasks:
        """Letters to order."""
        return self.memory.tasks

    def take(self, words: Words) -> None:
        """Keep fitting words if no words are known, or if the new words are faster."""
        outcome = evaluate(self.tasks, words)
        if outcome is None or (self.words and outcome.makespan >= self.makespan):
            return
        if all(self.memory.fits(number, word) for number, word in enumerate(words)):
            self.words = self.first = words
            self.makespan = outcome.makespan

    def take_order(self, order: pipelines.Order) -> None:
        """Keep an Order's words, if valid and faster."""
        if not {(kind, stage) for _, kind, stage, _ in order.passes.tolist()} <= {*self.tasks.passes}:
            return
        if self.tasks.meeting_cycles is None:
            words = words_of(self.tasks, order.passes.tolist())
        else:
            words = words_in_time_steps(self.tasks, order)
        if words is not None:
            self.take(words)

    def prove(self, go_on: Callable[[], bool]) -> None:
        """Search all Orders for few passes in lock-step: keep the best fitting Order, and its cycles as bound."""
        if self.update_bound and self.bound.cycles < self.makespan and is_small(self.tasks, self.count):
            proof = find_proof(self.tasks, self.count, self.makespan, go_on)
            if proof is not None:
                self.update_bound, grid, states = proof
                self.take(grid.words)
                self.bound = Bound(self.update_bound, states=states)


def starts_of(request: Request, jobs: Sequence[Job], limits: Limits) -> Iterator[Start]:
    """Yield a search per placement and kind of backward pass, with fitting initial words.

    In lock-step there is one search per placement, with whole or split backward passes.
    """
    starts: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], Start] = {}
    mappings = dict.fromkeys(job.program.shape.mapping for job in jobs)
    split_jobs = [job for mapping in mappings if (job := assemble_with(request, in_halves(mapping))) is not None]
    has_time_steps = any(job.plan.sync.has_time_steps for job in jobs)
    for job in split_jobs if has_time_steps else [*jobs, *split_jobs]:
        tasks = tasks_of(job)
        key = (job.program.shape.mapping, tasks.letters if tasks is not None else ())
        if tasks is not None and key not in starts:
            starts[key] = _start(job, tasks, limits)
    for start in starts.values():
        for job in jobs:
            if job.program.shape.mapping == start.job.program.shape.mapping:
                with suppress(ProgramError):  # the schedule may refuse the count
                    start.take_order(job.schedule.lay_out(replace(job.program.shape, micro_batches=start.count)))
    for start in starts.values():
        for words in _greedy(start):
            start.take_order(_order(start, words))
        is_limited = limits.micro_batches is not None
        # Without a limit, a long program is searched by part of its micro-batches: a full search would take seconds.
        turns_start = _in_turns(start) if is_limited or start.count == start.job.program.shape.micro_batches else None
        if turns_start is not None and not is_limited:
            start.take(turns_start.words)
            turns_start = None
        yield from (candidate for candidate in (start, turns_start) if candidate is not None and candidate.words)


def _order(start: Start, words: Words) -> pipelines.Order:
    """Return the Order of words without periods."""
    letters = letters_of(without_periods(start.tasks, words, start.count))
    shape = replace(start.job.program.shape, micro_batches=start.count)
    return schedules.in_words(NAME, letters).lay_out(shape)


def in_halves(mapping: tuple[int, ...]) -> Schedule:
    """Return a schedule with split backward passes and with stages placed by ``mapping``.

    Callers only use the costs of its passes, and their memory.
    """

    def order(shape: pipelines.PlanShape) -> pipelines.Order:
        forward = [(ipu, f"F{stage}") for stage, ipu in enumerate(shape.mapping)]
        backward = [(ipu, f"{half}{stage}") for stage, ipu in reversed([*enumerate(shape.mapping)]) for half in "IW"]
        runs = [*forward, *(backward if shape.training else [])]
        passes = {
            ipu: [f"{name}.{turn}" for owner, name in runs if owner == ipu for turn in range(shape.micro_batches)]
            for ipu in sorted(set(shape.mapping))
        }
        return pipelines.Order.from_passes(NAME, shape, passes)

    return replace(
        schedules.find("gpipe"),
        name=NAME,
        order=order,
        placement=lambda stages, per_ipu: mapping,  # noqa: ARG005
    )


def assemble_with(request: Request, schedule: Schedule) -> Job | None:
    """Return a request's Job under an unregistered schedule, even beyond the memory; None if refused."""
    with schedules.temporarily():
        schedules.register(schedule)
        return try_request(request, {"pipeline.schedule": schedule.name}).job


def _start(job: Job, tasks: Tasks, limits: Limits) -> Start:
    full_count = job.program.shape.micro_batches
    sram = job.memory.sram_bytes
    sizes = limits.sizes
    memories = {ipu: min(sizes.get(ipu, sram or 0), sram or sizes.get(ipu, 0)) for ipu in tasks.ipus}
    sizes = {ipu: most for ipu, most in memories.items() if sram or ipu in sizes}
    memory = memory_of(job, tasks, replace(limits, sizes=sizes))
    count = full_count
    if full_count * len(tasks.letters) > _MOST_SEARCHED_PASSES:
        count = min(full_count, max(3 * tasks.word_count + 3, _SEARCHED_PASSES // len(tasks.letters)))
    pass_bound = lower_bound(replace(tasks, update_cycles=(0,) * tasks.word_count), full_count)
    return Start(job, memory, pass_bound, lower_bound(tasks, full_count).cycles if count == full_count else 0, count)


def _in_turns(start: Start) -> Start | None:
    """Return a search that starts with words constructed in turns, and keeps their cost.

    None for whole backward passes, in lock-step, for several stages per IPU, and for words beyond the memory.
    """
    tasks, memory = start.tasks, start.memory
    full_count = start.job.program.shape.micro_batches
    full_start = replace(
        start, count=full_count, update_bound=lower_bound(tasks, full_count).cycles, words=(), makespan=0, first=()
    )
    held_counts = (
        [memory.micro_batches] if memory.micro_batches else [tasks.word_count, 2 * tasks.word_count, full_count]
    )
    for most in dict.fromkeys(min(held_count, full_count) for held_count in held_counts):
        words = words_in_turns(tasks, full_count, most)
        if words is not None:
            full_start.take(words)
    outcome = evaluate(tasks, full_start.words) if full_start.words else None
    return None if outcome is None else replace(full_start, cost=outcome.cost)


def _greedy(start: Start) -> Iterator[Words]:
    """Yield greedily constructed words for several amounts of memory."""
    tasks, memory = start.tasks, start.memory
    stages = memory.stages
    has_sizes = any(stage.kept_bytes for stage in stages)
    stashed = [stage.kept_bytes if has_sizes else 1 for stage in stages]
    rests = [stage.halves_bytes for stage in stages]
    if memory.micro_batches is not None:
        stashed, rests = [2] * len(stages), [1] * len(stages)
    for depth in _MEMORY_FACTORS:
        room = []
        for word, ipu in enumerate(tasks.ipus):
            numbers = [number for number, stage in enumerate(stages) if ipu in stage.ipus]
            most = depth * sum(stashed[number] * (len(stages) - number) for number in numbers) / len(numbers)
            most = max(most, sum(stashed[number] for number in numbers))
            limit = memory.limits[word]
            if memory.micro_batches is not None:
                most = min(most, 2 * memory.micro_batches * len(numbers))
            elif limit is not None:
                pass_bytes = max(stages[number].forward_bytes + stages[number].backward_bytes for number in numbers)
                most = min(most, limit - memory.base[word] - pass_bytes)
            room.append(most)
        for patience, avoids_delay in product(_PATIENCES, (False, True)):
            words = greedy(tasks, start.count, room, stashed, rests, patience, avoids_delay=avoids_delay)
            if words is not None:
                yield words
