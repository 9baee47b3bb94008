"""Instructions: what an IPU does one after the other, its passes and all that stands between them.

An instruction is a row of five integers: the IPU, a code, a stage, a micro-batch and a number whose
meaning is the code's. The codes of passes are those of :class:`~ipusim.pipeline.ops.Pass`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.ops import Op, Pass

#: Columns of a table of instructions.
COLUMNS: Final = ("ipu", "code", "stage", "micro_batch", "number")
#: What stands in a column that an instruction does not have.
NONE: Final = -1
Table = npt.NDArray[np.int64]


class Code(IntEnum):
    """The operation of an instruction."""

    FORWARD = Pass.FORWARD
    BACKWARD = Pass.BACKWARD
    RECOMPUTE = Pass.RECOMPUTE
    INPUT_GRADIENT = Pass.INPUT_GRADIENT
    WEIGHT_GRADIENT = Pass.WEIGHT_GRADIENT
    #: All IPUs meet and their tensors are copied, ``number`` times in a row.
    MEET = 5
    #: What the forward pass (``number`` not below ``stage``) or the backward pass of a stage has made goes to stage
    #: ``number``.
    SEND = 6
    #: The same, and the IPU waits until it is delivered.
    BLOCKING_SEND = 7
    #: Wait until what stage ``number`` has made for ``stage`` is here.
    RECEIVE = 8
    #: Take an element of the infeed.
    INFEED = 9
    #: Hand the results of a micro-batch to the host, in every ``number``-th execution.
    OUTFEED = 10
    #: Add the results of a micro-batch to the sum that leaves at the end.
    ADD_RESULTS = 11
    #: Hand the sum of all results to the host.
    OUTFEED_TOTAL = 12
    #: I/O tiles begin to hand out the results of ``number``, in every ``stage``-th execution, and to take in
    #: an element as ``micro_batch``.
    BEGIN_IO = 13
    #: Wait for the I/O tiles.
    END_IO = 14
    #: What the next pass of a stage, or the weight update, needs comes from Streaming Memory; ``number``: a Pass.
    LOAD = 15
    #: What the pass of a stage, or the weight update, has changed goes back; ``number``: a Pass.
    STORE = 16
    #: Replicas put together the variables of a stage, or those of the weight update.
    GATHER = 17
    #: A replica lets go of what is no part of its own.
    RELEASE = 18
    #: Replicas sum up their gradients.
    ALL_REDUCE = 19
    #: The stages of this IPU update their weights.
    UPDATE = 20
    #: The execution ends when all IPUs are here.
    END = 21
    #: What the next forward pass of a stage looks up in tables on the host comes.
    LOOK_UP = 22
    #: The gradients of what a stage has looked up go to the host, which updates its tables.
    UPDATE_ROWS = 23
    #: Hosts sum up the gradients of their IPUs.
    HOST_SUM = 24
    #: Replicas meet for what the next pass, the ``number`` of a Pass, has them do together.
    COLLECTIVE = 25
    #: The host updates the weights of all stages, and they come back.
    HOST_UPDATE = 26
    #: The host does what the next pass, the ``number`` of a Pass, has it do, and the IPU waits for that.
    OUTSIDE = 27
    #: The copies of each stage sum up their gradients.
    SUM_COPIES = 28
    #: What a stage keeps of a micro-batch begins to be moved, out or back: ``number``, a Way.
    MOVE = 29
    #: Wait until such a move has ended.
    MOVED = 30

    @property
    def word(self) -> str:
        """The code in text."""
        return self.name.lower().replace("_", "-")


PASSES: Final = len(Pass)
#: What belongs to the weight update, the last time-step of an execution, where it is no stage's.
OF_UPDATE: Final = (
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
    """Return a mask of a column that is true at any of a few ``numbers``; ``np.isin`` takes ten times as long."""
    mask = np.zeros(column.shape, np.bool_)
    for number in numbers:
        mask |= column == number
    return mask


def text_of(code: int, stage: int, micro_batch: int, number: int) -> str:
    """Return an instruction in words: ``F1.3``, ``send 0->1.3`` of micro-batch 3, ``load B1``, ``load update``."""
    if code < PASSES:
        return str(Op(Pass(code), stage, micro_batch))
    rest = ""
    match code:
        case Code.MEET:
            rest = f"x{number}" if number != 1 else ""
        case Code.SEND | Code.BLOCKING_SEND:
            rest = f"{stage}->{number}.{micro_batch}"
        case Code.RECEIVE:
            rest = f"{number}->{stage}.{micro_batch}"
        case Code.OUTFEED:
            rest = f"{micro_batch}" + (f" /{number}" if number != 1 else "")
        case Code.INFEED | Code.ADD_RESULTS:
            rest = f"{micro_batch}"
        case Code.LOOK_UP | Code.UPDATE_ROWS:
            rest = f"{stage}.{micro_batch}"
        case Code.BEGIN_IO:
            handed_out, taken = (str(moved) if moved != NONE else "." for moved in (number, micro_batch))
            rest = f"{handed_out} {taken}" + (f" /{stage}" if stage != 1 else "")
        case Code.MOVE | Code.MOVED:
            rest = f"{stage}.{micro_batch} {'back' if number else 'out'}"
        case Code.COLLECTIVE | Code.OUTSIDE:
            rest = str(Op(Pass(number), stage, micro_batch))
        case Code.LOAD | Code.STORE:
            rest = "update" if stage == NONE else f"{Pass(number).letter}{stage}"
        case Code.GATHER | Code.RELEASE:
            rest = "update" if stage == NONE else f"{stage}"
    return f"{Code(code).word} {rest}".rstrip()
