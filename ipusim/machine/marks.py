"""Marks in a run, at which the state of the whole machine is noted: at each execution's beginning, and within it."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from typing import Final, cast

import numpy as np

from ipusim.machine.columns import InstructionColumns
from ipusim.machine.facility import Handler, IpuId, Wait
from ipusim.pipeline.instructions import NONE, Code

#: The code of an instruction that only notes the state; no Plan has it.
MARK: Final = max(Code) + 1


class Marks:
    """What notes the state when the IPU of the first stage comes to a mark.

    Attributes:
        ipus: that IPU.
        handlers: what carries out a mark.
    """

    def __init__(self, ipu: IpuId, note: Callable[[int], object]) -> None:
        """Call ``note`` with the micro-batch of a mark, NONE at the beginning of an execution."""
        self.ipus = (ipu,)
        self.handlers: Mapping[Code, Handler] = {cast(Code, MARK): self._pass}
        self._note = note

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - what every facility has
        """Return None: nobody waits at a mark."""
        return None

    def state(self, first_micro_batch: int) -> Hashable:  # noqa: ARG002 - what every facility has
        """Return nothing: a mark changes nothing."""
        return ()

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
    new: dict[str, int | list[int]] = {
        "cycles": 0,
        "code": MARK,
        "micro_batch": [NONE, *(micro_batch[row] for row in at)],
        "step": 0,
    }
    return InstructionColumns(
        *(np.insert(column, [0, *at], new.get(name, NONE)).tolist() for name, column in columns._asdict().items())
    )
