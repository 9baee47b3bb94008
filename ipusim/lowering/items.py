"""Instructions on their way into a Plan: rows that know where they belong, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.instructions import NONE, Table

#: Columns of items: where they belong, and the columns of an instruction but for its IPU, which is the first.
COLUMNS: Final = ("ipu", "step", "rank", "turn", "around", "code", "stage", "micro_batch", "number")
Items = npt.NDArray[np.int64]
#: Values of ``around`` reach from its negative to it.
_MOST_AROUND: Final = 8


class Place(NamedTuple):
    """Where items belong: columns of one length, or one number for all.

    Attributes:
        ipu: on which IPU.
        step: in which time-step; 0 where there are none.
        rank: in which part of it.
        turn: of several in one part, which comes first.
        around: before (negative) or after the pass of that turn.
    """

    ipu: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64] | int = 0
    rank: int = 0
    turn: npt.NDArray[np.int64] | int = 0
    around: int = 0


def items(
    place: Place,
    code: npt.NDArray[np.int64] | int,
    stage: npt.NDArray[np.int64] | int = NONE,
    micro_batch: npt.NDArray[np.int64] | int = NONE,
    number: npt.NDArray[np.int64] | int = NONE,
) -> Items:
    """Return instructions at their places, shape (instructions, 9), the columns of COLUMNS."""
    return np.stack(np.broadcast_arrays(*place, code, stage, micro_batch, number), axis=1).astype(np.int64)


def in_order(parts: Iterable[Items]) -> Items:
    """Return all items in the order of their places; those of one place stay as they came."""
    table = np.concatenate(list(parts))
    key = table[:, 0]
    for column, least in ((1, 0), (2, 0), (3, 0), (4, -_MOST_AROUND)):
        key = key * (int(table[:, column].max(initial=0)) - least + 1) + table[:, column] - least
    return table[np.argsort(key, kind="stable")]


def instructions(table: Items) -> Table:
    """Return items as rows of instructions."""
    return np.ascontiguousarray(table[:, [0, 5, 6, 7, 8]])
