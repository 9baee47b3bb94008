"""Tables of spans, a column for each field of :class:`Span`, with rows moved to later copies of blocks."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.timeline.copies import Copies
from ipusim.timeline.repeats import Blocks, Column
from ipusim.timeline.span import NONE, Span

#: The columns to which cycles, micro-batches, time-steps and executions are added.
_MOVED: Final = (("start", "end"), ("micro_batch",), ("time_step",), ("execution",))


def moved(table: Column, added: tuple[Column, Column, Column, Column], sign: int) -> Column:
    """Return a table with cycles, micro-batches, time-steps and executions added to its numbers.

    Args:
        table: of spans, shape (rows, fields).
        added: to each row, shape (rows,) each.
        sign: 1, or -1 to take them away.
    """
    result = table.copy(order="F")
    for names, more in zip(_MOVED, added, strict=True):
        for name in names:
            column = result[:, Span._fields.index(name)]
            column += np.where(column == NONE, 0, sign * more)
    return result


def written(table: Column, blocks: Blocks, copies: Copies) -> tuple[Column, Column]:
    """Return a table of copies of rows, and the position of the cause of each among all spans.

    Args:
        table: of spans, shape (rows, fields).
        blocks: of the table.
        copies: of its rows.
    """
    added = copies.cycles, copies.micro_batches, copies.time_steps, copies.executions
    cause = blocks.causes(table[:, Span._fields.index("cause")])[copies.row]
    result = moved(np.asfortranarray(table[copies.row]), added, 1)
    return result, np.where(cause == NONE, NONE, cause + copies.causes)


def alone(table: Column, blocks: Blocks, copies: Copies, chosen: npt.NDArray[np.bool_]) -> Column:
    """Return a table of chosen copies of rows, without the causes that are not among them.

    Args:
        table: of spans, shape (rows, fields).
        blocks: of the table.
        copies: of its rows.
        chosen: which of them.
    """
    result, cause = written(table, blocks, Copies(*(column[chosen] for column in copies)))
    position = copies.position[chosen]
    row = np.minimum(np.searchsorted(position, cause), max(len(position) - 1, 0))
    result[:, Span._fields.index("cause")] = np.where((cause != NONE) & (position[row] == cause), row, NONE)
    return result
