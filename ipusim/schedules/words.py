"""A schedule written as words: of each IPU its passes before a period, of the period, and behind it.

A letter of a word is a pass of a stage, such as ``F0``, over the micro-batch that is next for it; the period has the
passes of one micro-batch. With a period more an execution has a micro-batch more. A bar, ``|``, ends a time-step of
lock-step; words without bars get time-steps in which each pass runs as early as its needs allow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from ipusim.base.errors import CountError, PlanError, UnsupportedProgramError
from ipusim.pipeline.grid import mapping_text
from ipusim.pipeline.instructions import Table
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import Column, PlanShape
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import any_count
from ipusim.schedules.schedule import Schedule

_LETTER: Final = re.compile(r"([FBIW])([0-9]{1,9})")
_KINDS: Final = {kind.letter: kind for kind in Pass}
#: What ends a time-step in a word, and the letter that stands for it.
_BAR: Final = "|"
_END: Final = (-1, -1)
_Letter = tuple[int, int]
#: Of each IPU its letters before a period, of it and behind it.
_Parts = Mapping[int, tuple[tuple[_Letter, ...], ...]]


def in_words(name: str, words: Mapping[int, Sequence[str]], summary: str = "of words") -> Schedule:
    """Return the schedule whose IPUs, by their numbers, run words.

    Args:
        name: what it is called.
        words: of each IPU the letters before its period, of it, and behind it, each with blanks between them. Without
            letters in any period it has one count. The bars before the periods are as many on each IPU, and those in
            the periods, unless all letters stand before them.
        summary: one line for people.

    Returns:
        A schedule of every count from that of the words without periods on.

    Raises:
        PlanError: for words that are none, that have a letter too often or too rarely, that leave out a stage, or whose
            IPUs have other numbers of time-steps.

    Example:
        >>> from ipusim.api import schedules
        >>> made = schedules.in_words("mine", {0: ("F0 |", "F0 | | B0 |", "| B0"), 1: ("|", "F1 B1 | |", "F1 B1")})
        >>> made.least, made.mapping(2)
        (1, (0, 1))
    """
    parts = {ipu: tuple(_letters(name, ipu, text) for text in _three(name, ipu, texts)) for ipu, texts in words.items()}
    least = _least(name, parts)
    timed = _time_steps(name, parts)
    passes = {ipu: [letter for letter in (*head, *tail) if letter != _END] for ipu, (head, _, tail) in parts.items()}
    stages = {stage: ipu for ipu, of in passes.items() for _, stage in of}
    homes = Counter((ipu, stage) for ipu, of in passes.items() for stage in {stage for _, stage in of})
    if sorted(stages) != list(range(len(stages))) or len(homes) != len(stages):
        raise PlanError(f"{name}: expected each stage from 0 up on one IPU, got {sorted(stage for _, stage in homes)}")
    mapping = tuple(stages[stage] for stage in range(len(stages)))
    kinds = {kind for of in passes.values() for kind, _ in of}
    supports = {Feature.SEVERAL_IPUS, Feature.SEVERAL_STAGES}
    supports.add(Feature.INFERENCE if kinds == {Pass.FORWARD} else Feature.TRAINING)
    if Pass.INPUT_GRADIENT not in kinds:
        supports.add(Feature.RECOMPUTE_INTERLEAVED)
    return Schedule(
        name,
        partial(_order, name, mapping, least, parts),
        any_count,
        True,
        summary,
        frozenset(supports),
        (Sync.LOCK_STEP, Sync.POINT_TO_POINT) if timed else (Sync.POINT_TO_POINT, Sync.LOCK_STEP),
        placement=lambda stages, per_ipu: mapping,  # noqa: ARG005 - the signature that every placement has
        period=any_count if all(period for _, period, _ in parts.values()) else None,
        least=least,
    )


def _three(name: str, ipu: int, texts: Sequence[str]) -> Sequence[str]:
    if len(texts) != 3:
        raise PlanError(f"{name}, IPU {ipu}: expected words before, in and behind a period, got {len(texts)} of them")
    return texts


def _letters(name: str, ipu: int, text: str) -> tuple[_Letter, ...]:
    letters = []
    for letter in text.split():
        if letter == _BAR:
            letters.append(_END)
            continue
        match = _LETTER.fullmatch(letter)
        if match is None:
            raise PlanError(f"{name}, IPU {ipu}: expected letters such as F0, B0, I1 or W1, got {letter!r}")
        letters.append((int(_KINDS[match[1]]), int(match[2])))
    return tuple(letters)


def _least(name: str, parts: _Parts) -> int:
    """Return the micro-batches of words without periods; raises PlanError where letters are there unequally often."""
    often = {times for head, _, tail in parts.values() for times in _times((*head, *tail)).values()}
    if len(often) != 1:
        raise PlanError(f"{name}: expected each letter equally often beside periods, got {sorted(often)} times")
    for ipu, (head, period, tail) in parts.items():
        once = dict.fromkeys(_times((*head, *tail)), 1)
        if any(of for _, of, _ in parts.values()) and _times(period) != once:
            raise PlanError(f"{name}, IPU {ipu}: expected each of its letters once in the period")
    return often.pop()


def _times(letters: Sequence[_Letter]) -> dict[_Letter, int]:
    """Return how often each stage runs forward, for the gradient of its input, and for those of its weights.

    A whole backward pass counts as both halves.
    """
    times: Counter[_Letter] = Counter()
    for kind, stage in letters:
        if kind == Pass.BACKWARD:
            times[Pass.INPUT_GRADIENT, stage] += 1
            times[Pass.WEIGHT_GRADIENT, stage] += 1
        elif (kind, stage) != _END:
            times[kind, stage] += 1
    return dict(times)


def _time_steps(name: str, parts: _Parts) -> bool:
    """Return whether words have bars; raises PlanError unless as many of them end the time-steps of each IPU."""
    goes_on = any(period or tail for _, period, tail in parts.values())
    for place, where in enumerate(("before the period", "in the period")) if goes_on else ():
        numbers = {ipu: of[place].count(_END) for ipu, of in parts.items()}
        if len(set(numbers.values())) > 1:
            said = ", ".join(f"{number} of IPU {ipu}" for ipu, number in numbers.items())
            raise PlanError(f"{name}: expected as many time-steps of each IPU {where}, got {said}")
    return any(_END in part for of in parts.values() for part in of)


def _order(name: str, mapping: tuple[int, ...], least: int, parts: _Parts, shape: PlanShape) -> Order:
    """Return the Order of a shape; raises UnsupportedProgramError for another mapping, CountError for too few."""
    if shape.mapping != mapping:
        right = ", ".join(map(str, mapping))
        raise UnsupportedProgramError(f"expected stages on IPUs {right}, as {name} has them, got {mapping_text(shape)}")
    more = shape.micro_batches - least
    if more < 0 or (more and not all(period for _, period, _ in parts.values())):
        right = f"{least} micro-batches" + (" or more" if more < 0 and parts[mapping[0]][1] else "")
        raise CountError(f"expected {right}, as {name} has them, got {shape.micro_batches}")
    tables = []
    for ipu, (head, period, tail) in sorted(parts.items()):
        letters = [*head, *period * more, *tail]
        said = np.array(letters, np.int64).reshape(-1, 2)
        step = np.cumsum(said[:, 0] == _END[0])
        step, said = step[said[:, 0] >= 0], said[said[:, 0] >= 0]
        micro_batch = _micro_batches(said, shape.stages)
        tables.append(np.column_stack([step, np.full(len(said), ipu), said, micro_batch]))
    table = np.concatenate(tables)
    if not any(_END in part for of in parts.values() for part in of):
        return Order(name, shape, table=table[:, 1:])
    return Order(name, shape, table=table, emitted=int(table[:, 0].max()) + 1)


def _micro_batches(passes: Table, stages: int) -> Column:
    """Return the micro-batch of each pass, (kind, stage): the next one for its kind.

    Whole backward passes and halves for the input go on with each other. A half for the weights takes the first
    micro-batch whose half for the input has none yet.
    """
    kind, stage = passes.T
    backward = np.where(kind == Pass.INPUT_GRADIENT, Pass.BACKWARD, kind)
    micro_batch = _turns(backward * stages + stage)
    halves, weights = kind == Pass.INPUT_GRADIENT, kind == Pass.WEIGHT_GRADIENT
    for number in range(stages):
        of = stage == number
        known = micro_batch[halves & of]
        rows = np.flatnonzero(weights & of)[: len(known)]
        micro_batch[rows] = known[: len(rows)]
    return micro_batch


def _turns(letter: Column) -> Column:
    """Return how many of the same letter stand before each letter."""
    order = np.argsort(letter, kind="stable")
    ordered = letter[order]
    turns = np.empty(len(letter), np.int64)
    turns[order] = np.arange(len(letter)) - np.searchsorted(ordered, ordered)
    return turns
