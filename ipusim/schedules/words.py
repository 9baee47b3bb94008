"""Create schedules written as words: passes of each IPU before, in and after a period.

A letter of a word is a pass of a stage, such as ``F0``, over the stage's next micro-batch. A period has the passes of
a micro-batch, so every further period adds a micro-batch. A bar, ``|``, ends a time-step of lock-step; passes of
words without bars run in the earliest time-step after their inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from ipusim.base.errors import CountError, PlanError, UnsupportedProgramError
from ipusim.pipeline.grid import mapping_text
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.features import Feature
from ipusim.schedules.letters import END, Parts, check_three, has_time_steps, least_count, letters_of, micro_batches_of
from ipusim.schedules.registry import any_count
from ipusim.schedules.schedule import Schedule


def in_words(name: str, words: Mapping[int, Sequence[str]], summary: str = "of words") -> Schedule:
    """Create a schedule from words of IPUs.

    Args:
        name: name of the schedule.
        words: for each IPU three texts: letters before, in and after its period, separated by blanks. If no IPU has
            letters in its period, the schedule has a single count. The number of bars before the period is equal for
            all IPUs, and so is the number of bars in the period, unless all letters precede the period.
        summary: one line for people.

    Returns:
        A schedule for the count without periods, and for all larger counts.

    Raises:
        PlanError: for malformed words, letters of unequal counts, a missing stage, or unequal numbers of time-steps
            between IPUs.

    Example:
        >>> from ipusim.api import schedules
        >>> made = schedules.in_words("mine", {0: ("F0 |", "F0 | B0 |", "| B0"), 1: ("|", "F1 B1 | |", "F1 B1")})
        >>> made.least, made.mapping(2)
        (1, (0, 1))
    """
    parts = {
        ipu: tuple(letters_of(name, ipu, text) for text in check_three(name, ipu, texts))
        for ipu, texts in words.items()
    }
    least = least_count(name, parts)
    has_steps = has_time_steps(name, parts)
    passes = {ipu: [letter for letter in (*head, *tail) if letter != END] for ipu, (head, _, tail) in parts.items()}
    stages = {stage: ipu for ipu, word in passes.items() for _, stage in word}
    homes = Counter((ipu, stage) for ipu, word in passes.items() for stage in {stage for _, stage in word})
    if sorted(stages) != list(range(len(stages))) or len(homes) != len(stages):
        raise PlanError(f"{name}: expected each stage from 0 up on one IPU, got {sorted(stage for _, stage in homes)}")
    mapping = tuple(stages[stage] for stage in range(len(stages)))
    kinds = {kind for word in passes.values() for kind, _ in word}
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
        (Sync.LOCK_STEP, Sync.POINT_TO_POINT) if has_steps else (Sync.POINT_TO_POINT, Sync.LOCK_STEP),
        placement=lambda stages, per_ipu: mapping,  # noqa: ARG005 - the signature that every placement has
        period=any_count if all(period for _, period, _ in parts.values()) else None,
        least=least,
    )


def _order(name: str, mapping: tuple[int, ...], least: int, parts: Parts, shape: PlanShape) -> Order:
    """Lay out a shape; raises UnsupportedProgramError for another mapping, CountError for too few micro-batches."""
    if shape.mapping != mapping:
        expected = ", ".join(map(str, mapping))
        raise UnsupportedProgramError(f"expected stages on IPUs {expected}, as in {name}, got {mapping_text(shape)}")
    further_count = shape.micro_batches - least
    if further_count < 0 or (further_count and not all(period for _, period, _ in parts.values())):
        expected = f"{least} micro-batches" + (" or more" if further_count < 0 and parts[mapping[0]][1] else "")
        raise CountError(f"expected {expected}, as in {name}, got {shape.micro_batches}")
    tables = []
    for ipu, (head, period, tail) in sorted(parts.items()):
        letters = [*head, *period * further_count, *tail]
        rows = np.array(letters, np.int64).reshape(-1, 2)
        step = np.cumsum(rows[:, 0] == END[0])
        step, rows = step[rows[:, 0] >= 0], rows[rows[:, 0] >= 0]
        micro_batch = micro_batches_of(rows, shape.stages)
        tables.append(np.column_stack([step, np.full(len(rows), ipu), rows, micro_batch]))
    table = np.concatenate(tables)
    if not any(END in part for triple in parts.values() for part in triple):
        return Order(name, shape, table=table[:, 1:])
    return Order(name, shape, table=table, emitted=int(table[:, 0].max()) + 1)
