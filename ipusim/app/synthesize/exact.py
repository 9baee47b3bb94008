"""Find provably optimal time-steps for few passes in lock-step, as shortest paths through pipeline states (A*).

A state counts finished passes of each stage; as micro-batches are alike, their order does not matter. A time-step leads
from state to state, and takes as long as its slowest IPU plus the meeting. If an IPU has time for another forward pass,
whole backward pass or weight-gradient half within a time-step, it runs the pass: this can only reduce later work. The
rule discards most time-steps, but never all optimal Orders.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import comb
from operator import add
from typing import Final, NamedTuple

from ipusim.api import pipelines
from ipusim.app.synthesize.grid import Grid
from ipusim.app.synthesize.tasks import BAR, Tasks

#: Maximum number of pipeline states to search: 3 micro-batches in 4 stages, 5 in 3 stages, or 11 in 2 stages.
_MOST_STATES: Final = 200_000
#: Passes of a stage in a time-step: forward, input-gradient half, whole backward pass, weight-gradient half.
_Passes = tuple[bool, bool, bool, bool]
#: Numbers of a stage: finished forward passes, finished backward passes, pending weight-gradient halves.
_Stage = tuple[int, int, int]


class _State(NamedTuple):
    """Progress of a pipeline, and whether a result waits for the host."""

    stages: tuple[_Stage, ...]
    has_result_to_send: bool


class _Work(NamedTuple):
    """Passes of an IPU in one time-step.

    Attributes:
        cycles: cycles of the passes.
        least_further_cycles: minimum cycles of another possible pass that would reduce later work; None without one.
        passes: passes of each of the IPU's stages.
    """

    cycles: int
    least_further_cycles: int | None
    passes: tuple[_Passes, ...]


def is_small(tasks: Tasks, count: int) -> bool:
    """Tell whether an exhaustive search of ``count`` micro-batches is feasible."""
    return tasks.meeting_cycles is not None and comb(count + 3, 3) ** tasks.stage_count <= _MOST_STATES


def find_proof(tasks: Tasks, count: int, known_cycles: int, go_on: Callable[[], bool]) -> tuple[int, Grid, int] | None:
    """Return the minimum cycles of Orders in lock-step without memory limits, an Order that reaches it, and the number
    of visited pipeline states; None if stopped, or if every Order takes longer than ``known_cycles``.

    Args:
        tasks: letters in lock-step that satisfy :func:`is_small`.
        count: number of micro-batches.
        known_cycles: cycles of a known Order; an equally fast Order counts as found.
        go_on: whether time is left.
    """
    search = _Search(tasks, count)
    start = _State(((0, 0, 0),) * tasks.stage_count, False)
    best = {start: 0}
    predecessor: dict[_State, tuple[_State, tuple[_Work, ...]]] = {}
    queue = [(search.bound(start), 0, start)]
    visited_states: set[_State] = set()
    while queue and go_on():
        _, cycles, state = heapq.heappop(queue)
        if state in visited_states:
            continue
        visited_states.add(state)
        if search.is_end(state):
            path = []
            while state != start:
                state, step = predecessor[state]
                path.append(step)
            return cycles, search.grid(path[::-1]), len(visited_states)
        for step_cycles, successor, works in search.time_steps(state):
            total = cycles + step_cycles
            if (
                total < best.get(successor, known_cycles + 1)
                and total + (bound := search.bound(successor)) <= known_cycles
            ):
                best[successor] = total
                predecessor[successor] = state, works
                heapq.heappush(queue, (total + bound, total, successor))
    return None


class _Search:
    """Possible next time-steps of a state, and lower bounds on the cycles from a state to the end."""

    def __init__(self, tasks: Tasks, count: int) -> None:
        self._tasks, self._count = tasks, count
        kinds, stages = pipelines.Pass, range(tasks.stage_count)
        cost = dict(zip(tasks.passes, (*tasks.cycles, *tasks.whole_cycles), strict=True))
        self._forward, self._whole_backward, self._input_gradient, self._weight_gradient = (
            [cost.get((kind, stage), 0) for stage in stages]
            for kind in (kinds.FORWARD, kinds.BACKWARD, kinds.INPUT_GRADIENT, kinds.WEIGHT_GRADIENT)
        )
        self._is_training = len(tasks.passes) > tasks.stage_count
        self._last = tasks.stage_count - 1
        word_of = {stage: word for (_, stage), word in zip(tasks.letters, tasks.word_of, strict=True)}
        self._stages_by_word = [
            [stage for stage in stages if word_of[stage] == word] for word in range(tasks.word_count)
        ]
        self._backward, first_backward = list(self._whole_backward), list(self._whole_backward)
        if tasks.whole_cycles:
            self._backward = [
                min(self._whole_backward[stage], self._input_gradient[stage] + self._weight_gradient[stage])
                for stage in stages
            ]
            first_backward = [min(self._whole_backward[stage], self._input_gradient[stage]) for stage in stages]
        self._first_backward = first_backward
        # Cycles to the end of a micro-batch, from the begin of a stage's backward pass and from the begin of its
        # forward pass.
        self._backward_sums = [sum(first_backward[: stage + 1]) for stage in stages]
        self._forward_sums = [sum(self._forward[stage:]) + self._backward_sums[-1] for stage in stages]
        self._bounds: dict[tuple[_Stage, ...], int] = {}
        self._works: dict[tuple[int, tuple[tuple[int, int, int], ...]], list[_Work]] = {}

    def is_end(self, state: _State) -> bool:
        """Tell whether every pass is finished."""
        return all(stage == (self._count, self._count * self._is_training, 0) for stage in state.stages)

    def bound(self, state: _State) -> int:
        """Return a lower bound on the cycles from a state to the end: busiest IPU or longest path, plus meetings."""
        bound = self._bounds.get(state.stages)
        if bound is None:
            bound = self._bounds[state.stages] = self._bound(state.stages)
        return bound

    def _bound(self, stages: tuple[_Stage, ...]) -> int:
        longest = steps = 0
        work = [0] * len(stages)
        for stage, (forward, backward, weights) in enumerate(stages):
            forwards, backwards = self._count - forward, (self._count - backward) * self._is_training
            work[stage] = forwards * self._forward[stage] + backwards * self._backward[stage]
            work[stage] += weights * self._weight_gradient[stage]
            steps = max(steps, weights)
            if forwards:
                steps = max(steps, forwards + self._last - stage + self._last * self._is_training)
                longest = max(longest, (forwards - 1) * self._forward[stage] + self._forward_sums[stage])
            if backwards:
                # An input-gradient half and a whole backward pass are different programs and may share a time-step.
                steps = max(steps, -(-backwards // (2 if self._tasks.whole_cycles else 1)) + stage)
                longest = max(longest, (backwards - 1) * self._first_backward[stage] + self._backward_sums[stage])
        busiest = max(sum(work[stage] for stage in stages) for stages in self._stages_by_word)
        return max(busiest, longest) + steps * (self._tasks.meeting_cycles or 0)

    def time_steps(self, state: _State) -> Iterator[tuple[int, _State, tuple[_Work, ...]]]:
        """Yield possible next time-steps: cycles, resulting state, and each IPU's passes."""
        works = [self._works_of(word, state.stages) for word in range(self._tasks.word_count)]
        send_cycles = [
            self._tasks.outfeed_cycles * (state.has_result_to_send and self._last in stages)
            for stages in self._stages_by_word
        ]
        lengths = {
            work.cycles + step_cycles
            for options, step_cycles in zip(works, send_cycles, strict=True)
            for work in options
        }
        for length in sorted(lengths):
            fitting = [
                [
                    work
                    for work in options
                    if work.cycles + step_cycles <= length
                    and (
                        work.least_further_cycles is None
                        or work.cycles + step_cycles + work.least_further_cycles > length
                    )
                ]
                for options, step_cycles in zip(works, send_cycles, strict=True)
            ]
            for step_works in product(*fitting):
                if max(map(add, send_cycles, (work.cycles for work in step_works))) == length:
                    successor = self._successor(state.stages, step_works)
                    if successor.stages != state.stages:
                        yield length + (self._tasks.meeting_cycles or 0), successor, step_works

    def _works_of(self, word: int, stages: tuple[_Stage, ...]) -> list[_Work]:
        """Return all sets of passes that an IPU can run in the next time-step."""
        ready = tuple(self._ready(stage, stages) for stage in self._stages_by_word[word])
        works = self._works.get((word, ready))
        if works is None:
            choices = [
                self._works_of_stage(stage, *passes_left)
                for stage, passes_left in zip(self._stages_by_word[word], ready, strict=True)
            ]
            works = self._works[word, ready] = [
                _Work(
                    sum(work.cycles for work in works),
                    min(
                        (work.least_further_cycles for work in works if work.least_further_cycles is not None),
                        default=None,
                    ),
                    tuple(passes for work in works for passes in work.passes),
                )
                for works in product(*choices)
            ]
        return works

    def _ready(self, stage: int, stages: tuple[_Stage, ...]) -> tuple[int, int, int]:
        """Return the numbers of forward passes, backward passes and weight-gradient halves that can run next.

        Backward passes enabled by a forward pass in the same time-step do not count.
        """
        forward, backward, weights = stages[stage]
        upstream = self._count if stage == 0 else stages[stage - 1][0]
        gradients = forward if stage == self._last else min(forward, stages[stage + 1][1])
        return min(upstream - forward, 1), min(gradients - backward, 2) * self._is_training, min(weights, 1)

    def _works_of_stage(self, stage: int, forwards: int, backwards: int, weights: int) -> Iterator[_Work]:
        costs = (
            self._forward[stage],
            self._input_gradient[stage],
            self._whole_backward[stage],
            self._weight_gradient[stage],
        )
        for forward, input_half, whole_pass, weight_half in product((False, True), repeat=4):
            passes: _Passes = forward, input_half, whole_pass, weight_half
            left = backwards + (forward and stage == self._last and self._is_training) - input_half - whole_pass
            if forward > forwards or left < 0 or weight_half > weights or (input_half and not self._tasks.whole_cycles):
                continue
            # A stage whose result is sent one time-step later may prefer to delay its forward pass.
            may_delay = stage == self._last and self._tasks.outfeed_cycles > 0
            is_possible = (
                forwards > forward and not may_delay,
                False,
                left > 0 and not whole_pass,
                weights > weight_half,
            )
            least_further_cycles = min(
                (cost for cost, can in zip(costs, is_possible, strict=True) if can), default=None
            )
            yield _Work(
                sum(cost for cost, runs in zip(costs, passes, strict=True) if runs), least_further_cycles, (passes,)
            )

    def _successor(self, stages: tuple[_Stage, ...], works: Sequence[_Work]) -> _State:
        """Return the state after a time-step."""
        progress = list(stages)
        has_result_to_send = False
        for word_stages, work in zip(self._stages_by_word, works, strict=True):
            for stage, (forward, input_half, whole_pass, weight_half) in zip(word_stages, work.passes, strict=True):
                forwards, backwards, weights = stages[stage]
                progress[stage] = (
                    forwards + forward,
                    backwards + input_half + whole_pass,
                    weights + input_half - weight_half,
                )
                has_result_to_send |= forward and stage == self._last and self._tasks.outfeed_cycles > 0
        return _State(tuple(progress), has_result_to_send)

    def grid(self, works: Sequence[Sequence[_Work]]) -> Grid:
        """Return the passes of time-steps, with micro-batches in order."""
        kinds, letter_of = pipelines.Pass, {letter: number for number, letter in enumerate(self._tasks.passes)}
        words: list[list[int]] = [[] for _ in self._stages_by_word]
        for step_works in works:
            for word, stages, work in zip(words, self._stages_by_word, step_works, strict=True):
                for stage, (forward, input_half, whole_pass, weight_half) in zip(stages, work.passes, strict=True):
                    runs = {kinds.WEIGHT_GRADIENT: weight_half, kinds.FORWARD: forward}
                    runs |= {kinds.INPUT_GRADIENT: input_half, kinds.BACKWARD: whole_pass}
                    word += [letter_of[kind, stage] for kind, has_pass in runs.items() if has_pass]
                word.append(BAR)
        grid = Grid.from_words(self._tasks, tuple(map(tuple, words)))
        assert grid is not None, "the words run"
        return grid
