"""Improve time-steps in lock-step by local search, which moves passes, and inserts and joins time-steps.

A grid assigns passes to time-steps. A letter is a pass of a stage; the word of an IPU has its letters in order
(see :mod:`ipusim.app.synthesize.tasks`).

Grids are accepted if they are no worse than the grid some moves ago (E. Burke and Y. Bykov, The late acceptance
hill-climbing heuristic, EJOR 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from ipusim.app.synthesize.grid import Grid
from ipusim.app.synthesize.memory import Memory

#: Length of the late-acceptance history in moves.
_HISTORY_LENGTH: Final = 200
#: Moves without improvement before the search returns to the best grid.
_PATIENCE: Final = 10_000
#: Average number of moves per inserted or joined time-step.
_MOVES_PER_RESTRUCTURING: Final = 25


def improve_grid(memory: Memory, grid: Grid, bound: int, go_on: Callable[[], bool], seed: int = 0) -> Grid:
    """Return a grid at least as fast as ``grid`` that fits the memory.

    Args:
        memory: memory of the IPUs.
        grid: initial grid.
        bound: lower bound, at which the search ends.
        go_on: whether time is left; called before every move.
        seed: seed of random moves.
    """
    random, layout = Random(seed), grid.layout
    best, steps = grid.cycles, list(grid.steps)
    history = [best] * _HISTORY_LENGTH
    turn = idle_turns = 0
    while best > bound and grid.steps and go_on():
        turn, idle_turns = turn + 1, idle_turns + 1
        limit = max(history[turn % _HISTORY_LENGTH], grid.cycles)
        if random.randrange(_MOVES_PER_RESTRUCTURING) == 0:
            grid = _restructure(memory, grid, limit, random)
        else:
            _move(memory, grid, limit, random)
            if grid.has_gap:
                grid = Grid(layout, grid.steps)
        if grid.cycles < best:
            best, steps, idle_turns = grid.cycles, list(grid.steps), 0
        elif idle_turns > _PATIENCE:
            grid, idle_turns = Grid(layout, steps), 0
            history = [best + best // 50] * _HISTORY_LENGTH
        history[turn % _HISTORY_LENGTH] = grid.cycles
    return Grid(layout, steps)


def _move(memory: Memory, grid: Grid, limit: int, random: Random) -> None:
    """Move a random pass, or both halves of a backward pass, if cycles stay within ``limit`` and memory suffices."""
    number = random.randrange(len(grid.steps))
    old_step = grid.steps[number]
    partner = grid.layout.partner[number]
    numbers = [number]
    if partner >= 0 and grid.steps[partner] == old_step and random.randrange(2):
        numbers.append(partner)
    first, last = grid.window(numbers)
    if first >= last:
        return
    step = random.randint(first, last)
    if step != old_step and grid.move(numbers, step):
        word = grid.layout.tasks.word_of[grid.layout.letter_of[number]]
        if grid.cycles > limit or not (memory.limits[word] is None or memory.fits(word, grid.word(word))):
            grid.move(numbers, old_step)


def _restructure(memory: Memory, grid: Grid, limit: int, random: Random) -> Grid:
    """Return a grid with a time-step inserted for a random pass, or with two time-steps joined.

    The grid is returned unchanged if the new grid is illegal, slower than ``limit``, or too large for the memory.
    """
    layout = grid.layout
    cut_step = random.randrange(grid.length)
    if random.randrange(2):
        steps = [step - (step > cut_step) for step in grid.steps]
    else:
        steps = [step + (step >= cut_step) for step in grid.steps]
        steps[random.randrange(len(steps))] = cut_step
    if not layout.is_legal(steps):
        return grid
    candidate = Grid(layout, steps)
    if candidate.cycles > limit or not all(map(memory.fits, range(layout.tasks.word_count), candidate.words)):
        return grid
    return candidate
