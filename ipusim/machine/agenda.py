"""What an IPU does in one execution, as columns: an object for each instruction would cost as much as running it."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.machine.delivery import tensor_numbers
from ipusim.pipeline.instructions import NONE, PASSES, Code
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs
from ipusim.timeline.kinds import KIND_OF_PASS, SpanKind
from ipusim.timeline.recorder import Recorder

#: The code of what notes the state of the machine; no Plan has it.
MARK: Final = max(Code) + 1


class Agenda(NamedTuple):
    """One IPU's instructions.

    Attributes:
        what, cycles: of each, the recorder's description of its span, and its duration; -1 and 0 where it has none
            that is known before it runs.
        code, stage, micro_batch, number: the instruction; ``number`` of sends and receives is that of their tensor.
    """

    what: list[int]
    cycles: list[int]
    code: list[int]
    stage: list[int]
    micro_batch: list[int]
    number: list[int]

    @property
    def marks(self) -> int:
        """How many of the instructions only note the state of the machine."""
        return self.code.count(MARK)

    def marked(self, micro_batches: Container[int]) -> Agenda:
        """Return the agenda with a note of the machine's state at its beginning and before the first stage's passes.

        Args:
            micro_batches: before whose forward passes.
        """
        rows = [(NONE, 0, MARK, NONE, NONE, NONE)]
        for row in zip(*self, strict=True):
            if row[2] == Code.FORWARD and row[3] == 0 and row[4] in micro_batches:
                rows.append((NONE, 0, MARK, NONE, row[4], NONE))
            rows.append(row)
        return Agenda(*map(list, zip(*rows, strict=True)))


def agendas(plan: Plan, costs: Costs, recorder: Recorder, replica: int, first_ipu: int) -> dict[int, Agenda]:
    """Return what each IPU does, by its number within the replica, whose IPUs begin at ``first_ipu`` of the device."""
    table = plan.instructions
    ipu, code, stage, micro_batch, number = table.T
    prices = np.array([[costs.passes.get((kind, at), 0) for at in range(plan.shape.stages)] for kind in range(PASSES)])
    passes, sends = code < PASSES, (code == Code.SEND) | (code == Code.BLOCKING_SEND)
    cycles = np.zeros(len(table), np.int64)
    cycles[passes] = prices[code[passes], stage[passes]]
    kind = np.where(
        passes,
        KIND_OF_PASS[np.where(passes, code, 0)],
        np.where(code == Code.SEND, SpanKind.SEND, SpanKind.BLOCKING_SEND),
    )
    size = np.zeros(len(table), np.int64)
    if sends.any():
        size[sends] = _sizes(plan, costs, replica)[stage[sends], number[sends]]
    described = passes | sends
    taken = code == Code.RECEIVE
    tensor = number.copy()
    for own, source, target in ((sends, stage, number), (taken, number, stage)):
        tensor[own] = tensor_numbers(source[own], target[own], micro_batch[own], plan.shape.micro_batches)
    none = np.full(len(table), NONE)
    rows = np.stack([kind, ipu + first_ipu, stage, micro_batch, none, size, np.full(len(table), replica)], axis=1)
    what = none.copy()
    what[described] = np.arange(described.sum()) + recorder.describe_rows(rows[described].astype(np.int64))
    columns = (what, cycles, code, stage, micro_batch, tensor)
    ends = np.flatnonzero(np.diff(ipu)) + 1
    parts = [np.split(column, ends) for column in columns]
    return {
        int(own[0]): Agenda(*(part[place].tolist() for part in parts)) for place, own in enumerate(np.split(ipu, ends))
    }


def _sizes(plan: Plan, costs: Costs, replica: int) -> npt.NDArray[np.int64]:
    """Return the bytes that each stage sends to each other, shape (stages, stages)."""
    sizes = np.zeros((plan.shape.stages, plan.shape.stages), np.int64)
    for (of, source, target), send in costs.sends.items():
        if of == replica:
            sizes[source, target] = send.bytes
    return sizes
