"""Improve words by local search, which moves passes along the critical path and may accept worse words for a while.

A word is the sequence of an IPU's passes; a letter is a pass of a stage over its next micro-batch.

Passes are moved past the pass directly before them on a critical path, as other moves cannot shorten the run
(E. Nowicki and C. Smutnicki, A fast taboo search algorithm for the job shop problem, Management Science 1996). Words
are accepted if they are no worse than the words some steps ago (E. Burke and Y. Bykov, The late acceptance
hill-climbing heuristic, EJOR 2017). In lock-step, :mod:`time_steps` moves passes between time-steps instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final

from ipusim.app.synthesize.evaluate import Outcome, evaluate
from ipusim.app.synthesize.grid import Grid
from ipusim.app.synthesize.memory import Memory
from ipusim.app.synthesize.tasks import Tasks, Words
from ipusim.app.synthesize.time_steps import improve_grid

#: Length of the late-acceptance history in steps.
_HISTORY_LENGTH: Final = 60
#: Average number of moves per move of an arbitrary pass.
_MOVES_PER_ARBITRARY_MOVE: Final = 8
#: Steps without improvement before the search returns to the best words.
_PATIENCE: Final = 2500


def improve_words(
    memory: Memory, words: Words, bound: int, go_on: Callable[[], bool], seed: int = 0, cost: float = inf
) -> tuple[Words, int]:
    """Return words at least as fast as ``words``, and their makespan.

    Args:
        memory: memory of the IPUs, which words must fit.
        words: initial words.
        bound: lower bound, at which the search ends.
        go_on: whether time is left; called before every step.
        seed: seed of random moves.
        cost: maximum cycles from an IPU's first pass to its last, in point-to-point.
    """
    tasks, random = memory.tasks, Random(seed)
    if tasks.meeting_cycles is not None:
        grid = Grid.from_words(tasks, words)
        assert grid is not None, "the words run"
        grid = improve_grid(memory, grid, bound, go_on, seed)
        return grid.words, grid.cycles
    outcome = evaluate(tasks, words)
    assert outcome is not None, "the words run"
    current, best = (words, outcome), (words, outcome)
    history = [outcome.makespan] * _HISTORY_LENGTH
    step = idle_steps = 0
    path = _moves(tasks, *current)
    while best[1].makespan > bound and go_on():
        step, idle_steps = step + 1, idle_steps + 1
        move = _random_move(tasks, current[0], path, random)
        if move is None:
            continue
        number, word = move
        candidate = (*current[0][:number], word, *current[0][number + 1 :])
        outcome = evaluate(tasks, candidate)
        history_index = step % _HISTORY_LENGTH
        worst = max(history[history_index], current[1].makespan)
        is_better = outcome is not None and outcome.makespan <= worst and outcome.cost <= cost
        if outcome is not None and is_better and memory.fits(number, word):
            current = candidate, outcome
            path = _moves(tasks, *current)
            if outcome.makespan < best[1].makespan:
                best, idle_steps = current, 0
        if idle_steps > _PATIENCE:
            current, idle_steps = _shake(memory, *best, random), 1
            path = _moves(tasks, *current)
            history = [current[1].makespan] * _HISTORY_LENGTH
        history[history_index] = min(history[history_index], current[1].makespan) if idle_steps else current[1].makespan
    return best[0], best[1].makespan


def _shake(memory: Memory, words: Words, outcome: Outcome, random: Random) -> tuple[Words, Outcome]:
    """Apply random moves that keep words valid and within memory, even if slower."""
    tasks = memory.tasks
    for _ in range(random.randint(2, 12)):
        move = _random_move(tasks, words, [], random)
        if move is not None and memory.fits(*move):
            candidate = (*words[: move[0]], move[1], *words[move[0] + 1 :])
            words, outcome = (words, outcome) if (result := evaluate(tasks, candidate)) is None else (candidate, result)
    return words, outcome


def _moves(tasks: Tasks, words: Words, outcome: Outcome) -> list[tuple[int, int]]:
    """Return critical passes directly after another pass of the same IPU, as word number and index."""
    ends, cycles = outcome.ends, tasks.cycles
    indices: list[list[int]] = [[] for _ in tasks.letters]
    for word in words:
        for index, letter in enumerate(word):
            indices[letter].append(index)
    last = max(range(len(ends)), key=lambda letter: ends[letter][-1] + tasks.update_cycles[tasks.word_of[letter]])
    letter, turn = last, len(ends[last]) - 1
    critical_passes: list[tuple[int, int]] = []
    while True:
        number, index = tasks.word_of[letter], indices[letter][turn]
        begin = ends[letter][turn] - cycles[letter]
        if begin <= 0:
            return critical_passes
        if index:
            previous = words[number][index - 1]
            earlier = bisect_left(indices[previous], index - 1)
            if ends[previous][earlier] == begin:
                critical_passes.append((number, index))
                letter, turn = previous, earlier
                continue
        need_ends = [(outcome.arrivals if is_apart else ends)[need][turn] for need, is_apart in tasks.needs[letter]]
        letter = tasks.needs[letter][need_ends.index(begin)][0]


def _random_move(
    tasks: Tasks, words: Words, path: list[tuple[int, int]], random: Random
) -> tuple[int, tuple[int, ...]] | None:
    """Return a random move as the number of the word and the changed word; None for impossible moves."""
    if path and random.randrange(_MOVES_PER_ARBITRARY_MOVE):
        number, index = path[random.randrange(len(path))]
        kind = random.randrange(3)
        distance = min(int(random.expovariate(0.4)) + 1, len(words[number]))
        source, target = ((index, index - 1), (index, index - distance), (index - 1, index - 1 + distance))[kind]
    else:
        number = random.randrange(len(words))
        source = random.randrange(len(words[number]))
        target = source + random.choice((-1, 1)) * (int(random.expovariate(0.3)) + 1)
    word = words[number]
    target = min(max(target, 0), len(word) - 1)
    crossed_letters = word[target:source] if target < source else word[source + 1 : target + 1]
    letter = word[source]
    # A move past passes of the same letter changes nothing, and passes cannot move past needed passes.
    needs = tasks.needs_in_word[letter]
    if not crossed_letters or all(letter_between == letter for letter_between in crossed_letters):
        return None
    kept_letters = word[:source] + word[source + 1 :]
    new_word = (*kept_letters[:target], letter, *kept_letters[target:])
    if any(
        letter_between in needs or letter in tasks.needs_in_word[letter_between] for letter_between in crossed_letters
    ) and not tasks.is_ordered(new_word):
        return None
    return number, new_word
