"""Collect the instructions of a Plan in any order, each with a sort key, and sort them.

Both lowerings (from Order to Plan, in lock-step or point-to-point) use this module. An item is an instruction with its
key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.instructions import NONE, Table

#: Names of the items' rows; an item is a column. First the sort key, from the IPU on, then the rest of the
#: instruction.
COLUMNS: Final = ("ipu", "step", "rank", "turn", "around", "code", "stage", "micro_batch", "number")
Items = npt.NDArray[np.int64]
#: Largest absolute value of ``around``.
_MOST_OFFSET: Final = 8


class SortKey(NamedTuple):
    """The sort key of items; each part is a column with an entry per item, or a number common to all items.

    Attributes:
        ipu: IPU of the instruction.
        step: time-step; 0 without time-steps.
        rank: part of the time-step.
        turn: order within the part.
        around: place before (negative) or after (positive) the pass of this turn; 0 is the pass.
    """

    ipu: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64] | int = 0
    rank: int = 0
    turn: npt.NDArray[np.int64] | int = 0
    around: int = 0

    def for_passes(self, mask: npt.NDArray[np.bool_], around: int = 0) -> SortKey:
        """Return the keys of selected passes, with a place ``around`` the pass."""
        step, turn = (column[mask] if isinstance(column, np.ndarray) else column for column in (self.step, self.turn))
        return SortKey(self.ipu[mask], step, self.rank, turn, around)


def items(
    key: SortKey,
    code: npt.NDArray[np.int64] | int,
    stage: npt.NDArray[np.int64] | int = NONE,
    micro_batch: npt.NDArray[np.int64] | int = NONE,
    number: npt.NDArray[np.int64] | int = NONE,
) -> Items:
    """Return instructions with sort keys, shape (9, instructions), rows like COLUMNS."""
    columns = np.empty((len(COLUMNS), len(key.ipu)), np.int64)
    for row, column in zip(columns, (*key, code, stage, micro_batch, number), strict=True):
        row[:] = column
    return columns


def in_order(parts: Iterable[Items]) -> Items:
    """Return the items sorted by key; items with equal keys keep their order."""
    table = np.concatenate(list(parts), axis=1)
    key = table[0]
    for row, least in ((1, 0), (2, 0), (3, 0), (4, -_MOST_OFFSET)):
        key = key * (int(table[row].max(initial=0)) - least + 1) + table[row] - least
    return np.take(table, np.argsort(key, kind="stable"), axis=1)


def instructions(table: Items) -> Table:
    """Return items as rows of instructions."""
    return np.asfortranarray(table[[0, 5, 6, 7, 8]].T)
