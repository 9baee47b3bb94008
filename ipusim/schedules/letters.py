"""Parse and check the words that describe a schedule, and assign micro-batches to their letters.

A word lists passes of an IPU. A letter is a pass of a stage, such as ``F0``, over the stage's next micro-batch. An IPU
has three words: its letters before a period, in the period, and after it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ipusim.base.errors import PlanError
from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column

_LETTER: Final = re.compile(r"([FBIW])([0-9]{1,9})")
_KINDS: Final = {kind.letter: kind for kind in Pass}
#: Text for the end of a time-step in a word.
_BAR: Final = "|"
#: Letter for the end of a time-step.
END: Final = (-1, -1)
_Letter = tuple[int, int]
#: Letters of each IPU: before the period, in the period, and after it.
Parts = Mapping[int, tuple[tuple[_Letter, ...], ...]]


def check_three(name: str, ipu: int, texts: Sequence[str]) -> Sequence[str]:
    """Return the words of an IPU; raises PlanError unless there are three: before, in and after its period."""
    if len(texts) != 3:
        raise PlanError(f"{name}, IPU {ipu}: expected words before, in and after a period, got {len(texts)} of them")
    return texts


def letters_of(name: str, ipu: int, text: str) -> tuple[_Letter, ...]:
    """Parse a word into letters, as kind and stage of a pass; raises PlanError for other text."""
    letters = []
    for letter in text.split():
        if letter == _BAR:
            letters.append(END)
            continue
        match = _LETTER.fullmatch(letter)
        if match is None:
            raise PlanError(f"{name}, IPU {ipu}: expected letters such as F0, B0, I1 or W1, got {letter!r}")
        letters.append((int(_KINDS[match[1]]), int(match[2])))
    return tuple(letters)


def least_count(name: str, parts: Parts) -> int:
    """Return the number of micro-batches in an Order without the period.

    Raises PlanError unless letters outside the periods occur equally often, and letters in a period once.
    """
    occurrence_counts = {times for head, _, tail in parts.values() for times in _times((*head, *tail)).values()}
    if len(occurrence_counts) != 1:
        raise PlanError(
            f"{name}: expected each letter equally often outside periods, got {sorted(occurrence_counts)} times"
        )
    for ipu, (head, period, tail) in parts.items():
        single = dict.fromkeys(_times((*head, *tail)), 1)
        if any(middle for _, middle, _ in parts.values()) and _times(period) != single:
            raise PlanError(f"{name}, IPU {ipu}: expected each of its letters once in the period")
    return occurrence_counts.pop()


def _times(letters: Sequence[_Letter]) -> dict[_Letter, int]:
    """Count forward passes, input-gradient halves and weight-gradient halves of each stage.

    A whole backward pass counts as both halves.
    """
    times: Counter[_Letter] = Counter()
    for kind, stage in letters:
        if kind == Pass.BACKWARD:
            times[Pass.INPUT_GRADIENT, stage] += 1
            times[Pass.WEIGHT_GRADIENT, stage] += 1
        elif (kind, stage) != END:
            times[kind, stage] += 1
    return dict(times)


def has_time_steps(name: str, parts: Parts) -> bool:
    """Tell whether words have bars; raises PlanError if the numbers of bars differ between IPUs."""
    has_more_words = any(period or tail for _, period, tail in parts.values())
    for index, phrase in enumerate(("before the period", "in the period")) if has_more_words else ():
        numbers = {ipu: words[index].count(END) for ipu, words in parts.items()}
        if len(set(numbers.values())) > 1:
            counts = ", ".join(f"{number} of IPU {ipu}" for ipu, number in numbers.items())
            raise PlanError(f"{name}: expected equal numbers of time-steps of all IPUs {phrase}, got {counts}")
    return any(END in part for words in parts.values() for part in words)


def micro_batches_of(passes: Table, stages: int) -> Column:
    """Return the micro-batch of each pass, given as (kind, stage): the next micro-batch of this kind and stage.

    Whole backward passes and input-gradient halves share one sequence. A weight-gradient half takes the first
    micro-batch that already has its input-gradient half, and no weight-gradient half yet.
    """
    kind, stage = passes.T
    backward = np.where(kind == Pass.INPUT_GRADIENT, Pass.BACKWARD, kind)
    micro_batch = _earlier_occurrences(backward * stages + stage)
    is_input_half, is_weight_half = kind == Pass.INPUT_GRADIENT, kind == Pass.WEIGHT_GRADIENT
    for number in range(stages):
        is_stage = stage == number
        gradients = micro_batch[is_input_half & is_stage]
        rows = np.flatnonzero(is_weight_half & is_stage)[: len(gradients)]
        micro_batch[rows] = gradients[: len(rows)]
    return micro_batch


def _earlier_occurrences(letter: Column) -> Column:
    """Count earlier occurrences of each letter."""
    order = np.argsort(letter, kind="stable")
    sorted_letters = letter[order]
    turns = np.empty(len(letter), np.int64)
    turns[order] = np.arange(len(letter)) - np.searchsorted(sorted_letters, sorted_letters)
    return turns
