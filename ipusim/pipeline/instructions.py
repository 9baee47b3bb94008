"""Define the instructions of IPUs: passes, and all steps between passes, as integer rows.

An instruction is a row of five integers: IPU, code, stage, micro-batch, and a number whose meaning depends on the code.
Only ``BEGIN_IO`` has a period in executions in place of the stage.
Codes of passes are values of :class:`~ipusim.pipeline.ops.Pass`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.ops import Op, Pass

#: Columns of an instruction table.
COLUMNS: Final = ("ipu", "code", "stage", "micro_batch", "number")
#: Value of unused columns.
NONE: Final = -1
Table = npt.NDArray[np.int64]


class Code(IntEnum):
    """Operation of an instruction."""

    FORWARD = Pass.FORWARD
    BACKWARD = Pass.BACKWARD
    RECOMPUTE = Pass.RECOMPUTE
    INPUT_GRADIENT = Pass.INPUT_GRADIENT
    WEIGHT_GRADIENT = Pass.WEIGHT_GRADIENT
    #: All IPUs meet and copy tensors, ``number`` times in a row.
    MEET = 5
    #: Send a stage's output to stage ``number``; from a forward pass for ``number`` >= ``stage``, else from a backward
    #: pass.
    SEND = 6
    #: Send a stage's output, as above, and wait for its delivery.
    BLOCKING_SEND = 7
    #: Wait for the tensor from stage ``number`` to ``stage``.
    RECEIVE = 8
    #: Take an infeed element.
    INFEED = 9
    #: Send results of a micro-batch to the host, in every ``number``-th execution.
    OUTFEED = 10
    #: Add results of a micro-batch to the sum sent at the end.
    ADD_RESULTS = 11
    #: Send the sum of results to the host.
    OUTFEED_TOTAL = 12
    #: I/O tiles begin to send results of micro-batch ``number``, in every ``stage``-th execution, and to receive
    #: the infeed element of ``micro_batch``.
    BEGIN_IO = 13
    #: Wait for I/O tiles.
    END_IO = 14
    #: Load tensors for the next pass of a stage, or the weight update (NONE), from Streaming Memory; ``number``: Pass.
    LOAD = 15
    #: Store tensors changed by a pass of a stage, or the weight update (NONE); ``number``: a Pass.
    STORE = 16
    #: Replicas gather variables of a stage, or of the weight update.
    GATHER = 17
    #: A replica drops gathered variables outside of its shard.
    RELEASE = 18
    #: Replicas sum up gradients.
    ALL_REDUCE = 19
    #: Stages of this IPU update their weights.
    UPDATE = 20
    #: All IPUs meet, and the execution ends.
    END = 21
    #: Receive rows of host tables for the next forward pass of a stage.
    LOOK_UP = 22
    #: Send gradients of looked-up rows to the host, which updates its tables.
    UPDATE_ROWS = 23
    #: Hosts sum up gradients of their IPUs.
    HOST_SUM = 24
    #: Replicas meet for collectives of the next pass; ``number``: a Pass.
    COLLECTIVE = 25
    #: The host updates all weights and sends them back.
    HOST_UPDATE = 26
    #: The host runs calls of the next pass, and the IPU waits; ``number``: a Pass.
    OUTSIDE = 27
    #: Copies of each stage sum up gradients.
    SUM_COPIES = 28
    #: Begin to move a stage's stash of a micro-batch, out or back; ``number``: a Way.
    MOVE = 29
    #: Wait for the end of such a move.
    MOVED = 30

    @property
    def word(self) -> str:
        """Name of the code in text."""
        return self.name.lower().replace("_", "-")


PASSES: Final = len(Pass)
#: Codes of the weight update, the last time-step of an execution, if the instruction has no stage.
UPDATE_CODES: Final = (
    Code.OUTFEED_TOTAL,
    Code.LOAD,
    Code.STORE,
    Code.GATHER,
    Code.SUM_COPIES,
    Code.ALL_REDUCE,
    Code.HOST_SUM,
    Code.UPDATE,
    Code.HOST_UPDATE,
)


def any_of(column: npt.NDArray[np.int64], numbers: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Mask a column at any of a few ``numbers``; ``np.isin`` takes ten times as long."""
    mask = np.zeros(column.shape, np.bool_)
    for number in numbers:
        mask |= column == int(number)  # NumPy compares integers with enumerations slowly
    return mask


def text_of(code: int, stage: int, micro_batch: int, number: int) -> str:
    """Format an instruction: ``F1.3``, ``send 0->1.3`` for micro-batch 3, ``load B1``, ``load update``."""
    if code < PASSES:
        return str(Op(Pass(code), stage, micro_batch))
    detail = ""
    match code:
        case Code.MEET:
            detail = f"x{number}" if number != 1 else ""
        case Code.SEND | Code.BLOCKING_SEND:
            detail = f"{stage}->{number}.{micro_batch}"
        case Code.RECEIVE:
            detail = f"{number}->{stage}.{micro_batch}"
        case Code.OUTFEED:
            detail = f"{micro_batch}" + (f" /{number}" if number != 1 else "")
        case Code.INFEED | Code.ADD_RESULTS:
            detail = f"{micro_batch}"
        case Code.LOOK_UP | Code.UPDATE_ROWS:
            detail = f"{stage}.{micro_batch}"
        case Code.BEGIN_IO:
            results, element = (str(value) if value != NONE else "." for value in (number, micro_batch))
            detail = f"{results} {element}" + (f" /{stage}" if stage != 1 else "")
        case Code.MOVE | Code.MOVED:
            detail = f"{stage}.{micro_batch} {'back' if number else 'out'}"
        case Code.COLLECTIVE | Code.OUTSIDE:
            detail = str(Op(Pass(number), stage, micro_batch))
        case Code.LOAD | Code.STORE:
            detail = "update" if stage == NONE else f"{Pass(number).letter}{stage}"
        case Code.GATHER | Code.RELEASE:
            detail = "update" if stage == NONE else f"{stage}"
    return f"{Code(code).word} {detail}".rstrip()
