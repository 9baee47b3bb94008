"""Store an IPU's instructions of an execution as columns, and insert marks among them.

Columns replace an object per instruction, which would cost as much time as the run. A mark is an extra instruction at
which the machine notes its whole state; equal states at two marks show that the run repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ipusim.machine.facility import Context, Facility, IpuId
from ipusim.machine.tensor_ways import tensor_numbers
from ipusim.pipeline.instructions import NONE, PASSES, UPDATE_CODES, Code, any_of
from ipusim.timeline.kinds import KIND_OF_PASS

#: Code of a mark, an instruction that only notes the machine's state; no Plan has it.
MARK: Final = max(Code) + 1


class InstructionColumns(NamedTuple):
    """One IPU's instructions.

    Attributes:
        descriptions: number of a span's description in the recorder; -1 for other instructions.
        cycles: duration of a pass; 0 for other instructions.
        code, stage, micro_batch, number: the instruction; ``number`` of a send or receive is its tensor's number.
        step: time-step of the instruction's spans within an execution.
    """

    descriptions: list[int]
    cycles: list[int]
    code: list[int]
    stage: list[int]
    micro_batch: list[int]
    number: list[int]
    step: list[int]


def instruction_columns(context: Context, replica: int) -> dict[int, InstructionColumns]:
    """Return the instructions of every IPU of a replica, by the IPU's number within the replica."""
    plan = context.plan
    table = plan.instructions
    shard, code, stage, micro_batch, number = table.T
    passes, is_transfer = code < PASSES, any_of(code, (Code.SEND, Code.BLOCKING_SEND, Code.RECEIVE))
    count = int(passes.sum())
    first = context.recorder.describe_columns(
        count,
        kind=KIND_OF_PASS[code[passes]],
        ipu=shard[passes] + replica * context.system.shards,
        stage=stage[passes],
        micro_batch=micro_batch[passes],
        replica=replica,
    )
    descriptions = np.full(len(table), NONE)
    descriptions[passes] = np.arange(first, first + count)
    tensor = number.copy()
    receives = code == Code.RECEIVE
    source, target = np.where(receives, number, stage), np.where(receives, stage, number)
    tensor[is_transfer] = tensor_numbers(source, target, micro_batch, plan.shape)[is_transfer]
    ends = np.flatnonzero(np.diff(shard)) + 1
    columns = (descriptions, context.pass_cycles, code, stage, micro_batch, tensor, _steps(context, ends))
    parts = [np.split(column, ends) for column in columns]
    return {
        int(ipu_rows[0]): InstructionColumns(*(part[index].tolist() for part in parts))
        for index, ipu_rows in enumerate(np.split(shard, ends))
    }


def _steps(context: Context, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the time-step of every instruction; ``ends`` has the first row of each IPU except the first."""
    plan, last = context.plan, context.steps - 1
    _, code, stage, _, number = plan.instructions.T
    meetings = np.where(code == Code.MEET, number, 0)
    meetings_before = np.cumsum(meetings) - meetings
    # Meetings count from 0 again in the first row of every IPU.
    earlier_ipus = np.zeros(len(code), np.int64)
    earlier_ipus[ends] = np.diff(meetings_before[ends], prepend=0)
    step = meetings_before - np.cumsum(earlier_ipus)
    step[any_of(code, UPDATE_CODES) & (stage == NONE)] = last
    # Results leave after a meeting, but belong to the time-step before the meeting.
    # Sums of results do likewise in runs without weight updates.
    step[code == Code.OUTFEED] -= plan.sync.has_time_steps
    step[code == Code.OUTFEED_TOTAL] -= not plan.shape.training
    return step


class Marks(Facility):
    """Facility that notes the machine's state at marks of the first stage's IPU."""

    def __init__(self, ipu: IpuId, note: Callable[[int, tuple[int, int]], object]) -> None:
        """Call ``note`` with a mark's micro-batch and pass.

        Micro-batch and pass are NONE at the start of an execution.
        """
        self.ipus = (ipu,)
        self.handlers = {cast(Code, MARK): self._note_mark}
        self._note = note

    def _note_mark(self, _ipu: IpuId, stage: int, micro_batch: int, number: int, _step: int, cause: int) -> int:
        self._note(micro_batch, (number, stage))
        return cause


def with_marks(columns: InstructionColumns, micro_batches: Container[int], *, in_phases: bool) -> InstructionColumns:
    """Return instructions with marks at the start and before first-stage forward passes.

    Args:
        columns: instructions of the first stage's IPU.
        micro_batches: micro-batches whose passes get a mark.
        in_phases: whether all passes of the IPU over these micro-batches get a mark; otherwise only forward passes.
    """
    code, stage, micro_batch = columns.code, columns.stage, columns.micro_batch
    ops = zip(code, stage, micro_batch, strict=True)
    forward = (int(Code.FORWARD), 0)
    rows = [
        row
        for row, (op_code, op_stage, batch) in enumerate(ops)
        if ((op_code, op_stage) == forward or (in_phases and op_code < PASSES)) and batch in micro_batches
    ]
    mark_values: dict[str, int | list[int]] = {
        "cycles": 0,
        "code": MARK,
        "stage": [NONE, *(stage[row] for row in rows)],
        "micro_batch": [NONE, *(micro_batch[row] for row in rows)],
        "number": [NONE, *(code[row] for row in rows)],
        "step": 0,
    }
    return InstructionColumns(
        *(
            np.insert(column, [0, *rows], mark_values.get(name, NONE)).tolist()
            for name, column in columns._asdict().items()
        )
    )
