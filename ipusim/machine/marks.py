"""Marks in a run, at which the state of the whole machine is noted: at each execution's beginning, and within it."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, cast

from ipusim.machine.columns import InstructionColumns
from ipusim.machine.facility import Facility, IpuId
from ipusim.pipeline.instructions import NONE, Code

#: The code of an instruction that only notes the state; no Plan has it.
MARK: Final = max(Code) + 1


class Marks(Facility):
    """What notes the state when the IPU of the first stage comes to a mark."""

    def __init__(self, ipu: IpuId, note: Callable[[int], object]) -> None:
        """Call ``note`` with the micro-batch of a mark, NONE at the beginning of an execution."""
        self.ipus = (ipu,)
        self.handlers = {cast(Code, MARK): self._pass}
        self._note = note

    def _pass(self, _ipu: IpuId, _stage: int, micro_batch: int, _number: int, _step: int, cause: int) -> int:
        self._note(micro_batch)
        return cause


def marked(columns: InstructionColumns, micro_batches: Container[int]) -> InstructionColumns:
    """Return instructions with marks at their beginning and before forward passes of the first stage.

    Args:
        columns: of the IPU of the first stage.
        micro_batches: before whose passes.
    """
    code, stage, micro_batch = columns.code, columns.stage, columns.micro_batch
    of = zip(code, stage, micro_batch, strict=True)
    forward = (int(Code.FORWARD), 0)
    at = [row for row, (one, where, batch) in enumerate(of) if (one, where) == forward and batch in micro_batches]
    before = [(0, NONE), *((row, micro_batch[row]) for row in at)]
    made = InstructionColumns(*(column.copy() for column in columns))
    for row, batch in reversed(before):
        new = {"cycles": 0, "code": MARK, "micro_batch": batch, "step": 0}
        for name, column in made._asdict().items():
            column.insert(row, new.get(name, NONE))
    return made
