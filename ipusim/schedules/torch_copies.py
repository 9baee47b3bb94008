"""Checks of the copies in an Order that torch.distributed.pipelining wrote with format="compute_comms".

``0SEND_F3`` sends stage 0's output of micro-batch 3 to stage 1, ``1RECV_F3`` receives it there; ``1SEND_B3`` and
``0RECV_B3`` do so with the gradient (``_add_send_recv`` of torch/distributed/pipelining/schedules.py). As copies follow
from the passes here, the copies of a file are checked against the passes and then dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ipusim.base.errors import FileError
from ipusim.pipeline.ops import Op, Pass

_COPY: Final = re.compile(r"([0-9]{1,9})(SEND|RECV)_([FB])([0-9]{1,9})")


class Copy(NamedTuple):
    """A cell that sends or receives.

    Attributes:
        rank: its row.
        passes: the number of passes before it in the row.
        stage, sends, forward, micro_batch: the parts of the cell; ``forward`` is False for a gradient.
        position: file, row and column, for messages.
    """

    rank: int
    passes: int
    stage: int
    sends: bool
    forward: bool
    micro_batch: int
    position: str

    def __str__(self) -> str:
        """Return the cell."""
        return f"{self.stage}{'SEND' if self.sends else 'RECV'}_{'F' if self.forward else 'B'}{self.micro_batch}"


def copy_of(text: str, rank: int, passes: int, position: str) -> Copy | None:
    """Return the copy in a cell; None for a cell without one."""
    match = _COPY.fullmatch(text)
    if match is None:
        return None
    return Copy(rank, passes, int(match[1]), match[2] == "SEND", match[3] == "F", int(match[4]), position)


def check_copies(copies: Sequence[Copy], rows: Sequence[Sequence[Op]], mapping: Sequence[int], name: str) -> None:
    """Raise FileError for copies that are not exactly those that the passes of ``rows`` need; no copies are valid."""
    if not copies:
        return
    kinds = {Pass.FORWARD: True, Pass.BACKWARD: False, Pass.INPUT_GRADIENT: False}
    needed: dict[tuple[bool, int, bool, int], tuple[int, Op]] = {}
    for row in rows:
        for turn, op in enumerate(row):
            if op.kind not in kinds:
                continue
            forward = kinds[op.kind]
            for sends, step in ((True, 1 if forward else -1), (False, -1 if forward else 1)):
                other = op.stage + step
                if 0 <= other < len(mapping) and mapping[other] != mapping[op.stage]:
                    needed[sends, op.stage, forward, op.micro_batch] = turn, op
    seen: set[tuple[bool, int, bool, int]] = set()
    for copy in copies:
        key = copy.sends, copy.stage, copy.forward, copy.micro_batch
        of_copy = needed.get(key)
        if of_copy is None:
            raise FileError(
                f"{copy.position}: expected copies between the rows of a stage and its neighbour, got '{copy}'"
            )
        if key in seen:
            raise FileError(f"{copy.position}: expected each copy once, got '{copy}' again")
        seen.add(key)
        turn, op = of_copy
        if copy.rank != mapping[copy.stage] or (turn >= copy.passes) == copy.sends:
            side = "behind" if copy.sends else "before"
            raise FileError(f"{copy.position}: expected '{copy}' {side} its pass {op} in row {mapping[copy.stage] + 1}")
    for (sends, stage, forward, micro_batch), (_, op) in needed.items():
        if (sends, stage, forward, micro_batch) not in seen:
            left_out = Copy(0, 0, stage, sends, forward, micro_batch, "")
            raise FileError(f"{name!r}: expected every copy that passes need, or none; got no '{left_out}' for {op}")
