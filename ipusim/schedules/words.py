"""A schedule written as words: of each IPU its passes before a period, of the period, and behind it.

A letter of a word is a pass of a stage, such as ``F0``, over the micro-batch that is next for it; the period has each
of an IPU's letters once. With a period more an execution has a micro-batch more.
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
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PlanShape
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import any_count
from ipusim.schedules.schedule import Schedule

_LETTER: Final = re.compile(r"([FBIW])([0-9]{1,9})")
_KINDS: Final = {kind.letter: kind for kind in Pass}
_Letter = tuple[int, int]
#: Of each IPU its letters before a period, of it and behind it.
_Parts = Mapping[int, tuple[tuple[_Letter, ...], ...]]


def in_words(name: str, words: Mapping[int, Sequence[str]], summary: str = "of words") -> Schedule:
    """Return the schedule whose IPUs, by their numbers, run words.

    Args:
        name: what it is called.
        words: of each IPU the letters before its period, of it, and behind it, each with blanks between them. Without
            letters in any period it has one count.
        summary: one line for people.

    Returns:
        A schedule of every count from that of the words without periods on.

    Raises:
        PlanError: for words that are none, that have a letter too often or too rarely, or that leave out a stage.
    """
    parts = {ipu: tuple(_letters(name, ipu, text) for text in _three(name, ipu, texts)) for ipu, texts in words.items()}
    least = _least(name, parts)
    stages = {stage: ipu for ipu, (head, _, tail) in parts.items() for _, stage in (*head, *tail)}
    homes = Counter((ipu, stage) for ipu, (head, _, tail) in parts.items() for stage in {s for _, s in (*head, *tail)})
    if sorted(stages) != list(range(len(stages))) or len(homes) != len(stages):
        raise PlanError(f"{name}: expected each stage from 0 up on one IPU, got {sorted(stage for _, stage in homes)}")
    mapping = tuple(stages[stage] for stage in range(len(stages)))
    kinds = {kind for head, _, tail in parts.values() for kind, _ in (*head, *tail)}
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
        (Sync.POINT_TO_POINT, Sync.LOCK_STEP),
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
        match = _LETTER.fullmatch(letter)
        if match is None:
            raise PlanError(f"{name}, IPU {ipu}: expected letters such as F0, B0, I1 or W1, got {letter!r}")
        letters.append((int(_KINDS[match[1]]), int(match[2])))
    return tuple(letters)


def _least(name: str, parts: _Parts) -> int:
    """Return the micro-batches of words without periods; raises PlanError where letters are there unequally often."""
    counts = {ipu: Counter((*head, *tail)) for ipu, (head, _, tail) in parts.items()}
    often = {times for of in counts.values() for times in of.values()}
    if len(often) != 1:
        raise PlanError(f"{name}: expected each letter equally often beside periods, got {sorted(often)} times")
    periods = {ipu: Counter(period) for ipu, (_, period, _) in parts.items()}
    for ipu, of in periods.items():
        if any(periods.values()) and of != Counter(dict.fromkeys(counts[ipu], 1)):
            raise PlanError(f"{name}, IPU {ipu}: expected each of its letters once in the period")
    return often.pop()


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
        said = np.array([*head, *period, *tail], np.int64).reshape(-1, 2)
        ends = np.cumsum([len(head), len(period)])
        rows = np.concatenate([said[: ends[0]], np.tile(said[ends[0] : ends[1]], (more, 1)), said[ends[1] :]])
        letter = rows[:, 0] * shape.stages + rows[:, 1]
        order = np.argsort(letter, kind="stable")
        micro_batch = np.empty(len(rows), np.int64)
        micro_batch[order] = np.arange(len(rows)) % shape.micro_batches
        tables.append(np.column_stack([np.full(len(rows), ipu), rows, micro_batch]))
    return Order(name, shape, table=np.concatenate(tables))
