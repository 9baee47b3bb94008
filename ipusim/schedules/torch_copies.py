"""Check copies in an Order that torch.distributed.pipelining wrote with format="compute_comms".

``0SEND_F3`` sends stage 0's output of micro-batch 3 to stage 1, and ``1RECV_F3`` receives it; ``1SEND_B3`` and
``0RECV_B3`` transfer the gradient (``_add_send_recv`` of torch/distributed/pipelining/schedules.py). ipusim derives
copies from passes, so copies of a file are checked against its passes and then dropped. With blocking sends, the
order of copies can cause a deadlock of ranks, which :func:`hang` finds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ipusim.base.errors import FileError
from ipusim.pipeline.ops import Op, Pass

_COPY: Final = re.compile(r"([0-9]{1,9})(SEND|RECV)_([FB])([0-9]{1,9})")


class Copy(NamedTuple):
    """A send or receive cell; ``is_forward`` is False for a gradient."""

    stage: int
    is_send: bool
    is_forward: bool
    micro_batch: int

    def __str__(self) -> str:
        """Return the cell."""
        return f"{self.stage}{'SEND' if self.is_send else 'RECV'}_{'F' if self.is_forward else 'B'}{self.micro_batch}"

    @property
    def partner(self) -> Copy:
        """Cell at the other end of the copy."""
        step = 1 if self.is_send == self.is_forward else -1
        return self._replace(stage=self.stage + step, is_send=not self.is_send)


#: A copy, its row, number of passes before it in the row, and file position for messages.
PlacedCopy = tuple[Copy, int, int, str]


def copy_of(text: str) -> Copy | None:
    """Parse the copy in a cell; None for other cells."""
    match = _COPY.fullmatch(text)
    return None if match is None else Copy(int(match[1]), match[2] == "SEND", match[3] == "F", int(match[4]))


def check_copies(copies: Sequence[PlacedCopy], rows: Sequence[Sequence[Op]], mapping: Sequence[int], name: str) -> None:
    """Raise FileError unless copies match the needs of passes in ``rows``; a file without copies is valid."""
    if not copies:
        return
    needs = _list_needs(rows, mapping)
    seen: set[Copy] = set()
    for copy, rank, passes, position in copies:
        if copy not in needs:
            raise FileError(f"{position}: expected copies between the rows of a stage and its neighbour, got '{copy}'")
        if copy in seen:
            raise FileError(f"{position}: expected each copy once, got '{copy}' again")
        seen.add(copy)
        pass_number, op = needs[copy]
        if rank != mapping[copy.stage] or (pass_number >= passes) == copy.is_send:
            side = "after" if copy.is_send else "before"
            raise FileError(f"{position}: expected '{copy}' {side} its pass {op} in row {mapping[copy.stage] + 1}")
    for copy, (_, op) in needs.items():
        if copy not in seen:
            raise FileError(f"{name!r}: expected every copy that passes need, or none; got no '{copy}' for {op}")


def hang(copies: Sequence[PlacedCopy], rows: Sequence[Sequence[Op]], mapping: Sequence[int]) -> str:
    """Describe the deadlock under blocking sends, with the cell at which each rank waits. Empty without a deadlock.

    If a file has no ``copies``, receives directly precede their pass, and sends directly follow it.
    """
    placements = {copy: (rank, passes, position) for copy, rank, passes, position in copies}
    if not placements:
        for copy, (pass_number, op) in _list_needs(rows, mapping).items():
            side = "after" if copy.is_send else "before"
            placements[copy] = mapping[copy.stage], pass_number + copy.is_send, f"{side} {op}"
    queues: dict[int, list[Copy]] = {rank: [] for rank in range(len(rows))}
    # Copies between the same passes keep the order of cells; without cells, sends precede receives.
    for copy in sorted(placements, key=lambda copy: (placements[copy][1], not copies and not copy.is_send)):
        queues[placements[copy][0]].append(copy)
    heads = dict.fromkeys(queues, 0)
    progress = True
    while progress:
        progress = False
        for rank, order in queues.items():
            while heads[rank] < len(order):
                partner = order[heads[rank]].partner
                peer = placements[partner][0]
                if queues[peer][heads[peer] : heads[peer] + 1] != [partner]:
                    break
                heads[rank] += 1
                heads[peer] += 1
                progress = True
    stuck = {rank: order[heads[rank]] for rank, order in queues.items() if heads[rank] < len(order)}
    return "; ".join(
        f"rank {rank} waits in {copy} ({placements[copy][2]}) for {copy.partner} of rank {placements[copy.partner][0]}"
        for rank, copy in stuck.items()
    )


def _list_needs(rows: Sequence[Sequence[Op]], mapping: Sequence[int]) -> dict[Copy, tuple[int, Op]]:
    """Return needed copies between ranks, with their pass and its row position."""
    needs: dict[Copy, tuple[int, Op]] = {}
    for row in rows:
        for pass_number, op in enumerate(row):
            if op.kind is Pass.WEIGHT_GRADIENT:
                continue
            forward = op.kind is Pass.FORWARD
            for is_send, step in ((True, 1 if forward else -1), (False, -1 if forward else 1)):
                neighbour = op.stage + step
                if 0 <= neighbour < len(mapping) and mapping[neighbour] != mapping[op.stage]:
                    needs[Copy(op.stage, is_send, forward, op.micro_batch)] = pass_number, op
    return needs
