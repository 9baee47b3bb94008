"""Listings of a Plan read back: the instructions that the text of :meth:`ipusim.pipeline.plan.Plan.listing` says."""

from __future__ import annotations

import re

import numpy as np

from ipusim.base.errors import PlanError
from ipusim.pipeline.instructions import COLUMNS, NONE, PASSES, Code, Table, text_of
from ipusim.pipeline.moves import Way
from ipusim.pipeline.ops import Op

_CODES = {code.word: code for code in Code if code >= PASSES}
_SENT = re.compile(r"(\d+)->(\d+)\.(\d+)")


def parse_listing(text: str) -> Table:
    """Read back what :meth:`Plan.listing` wrote; raises PlanError naming the line or the instruction."""
    rows: list[tuple[int, ...]] = []
    for line in text.splitlines():
        head, colon, rest = line.partition(": ")
        number = head.removeprefix("IPU ")
        if not colon or not number.isdecimal():
            raise PlanError(f"expected a line that begins with an IPU, such as 'IPU 0: ', got {line!r}")
        rows += ((int(number), *parse(instruction)) for instruction in rest.split(";"))
    return np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))


def _of_pass(text: str, has_micro_batch: bool) -> tuple[int, int, int]:
    """Read the pass that an instruction is for, or ``update``, as (stage, micro-batch, number)."""
    if text == "update":
        return NONE, NONE, NONE
    op = Op.parse(text if has_micro_batch else f"{text}.0")
    return op.stage, op.micro_batch if has_micro_batch else NONE, int(op.kind)


def parse(text: str) -> tuple[int, int, int, int]:
    """Read back what :func:`text_of` wrote, as (code, stage, micro-batch, number); raises PlanError for other text."""
    word, _, rest = text.strip().partition(" ")
    code = _CODES.get(word)
    try:
        if code is None:
            op = Op.parse(word)
            instruction = (int(op.kind), op.stage, op.micro_batch, NONE)
        elif code is Code.MEET:
            instruction = (code, NONE, NONE, int(rest.removeprefix("x") or 1))
        elif code in (Code.SEND, Code.BLOCKING_SEND, Code.RECEIVE):
            match = _SENT.fullmatch(rest)
            if match is None:
                raise ValueError(rest)
            source, target, micro_batch = map(int, match.groups())
            ends = (target, micro_batch, source) if code is Code.RECEIVE else (source, micro_batch, target)
            instruction = (code, *ends)
        elif code is Code.OUTFEED:
            micro, _, period = rest.partition(" /")
            instruction = (code, NONE, int(micro), int(period or 1))
        elif code in (Code.INFEED, Code.ADD_RESULTS, Code.LOOK_UP, Code.UPDATE_ROWS, Code.MOVE, Code.MOVED):
            which, _, way = rest.partition(" ")
            of_stage, _, micro = which.rpartition(".")
            instruction = (code, int(of_stage or NONE), int(micro), Way[way.upper()] if way else NONE)
        elif code is Code.BEGIN_IO:
            moved, _, period = rest.partition(" /")
            handed_out, taken = (NONE if side == "." else int(side) for side in moved.split())
            instruction = (code, int(period or 1), taken, handed_out)
        elif code in (Code.LOAD, Code.STORE, Code.COLLECTIVE, Code.OUTSIDE):
            instruction = (code, *_of_pass(rest, code in (Code.COLLECTIVE, Code.OUTSIDE)))
        elif code in (Code.GATHER, Code.RELEASE):
            instruction = (code, NONE if rest == "update" else int(rest), NONE, NONE)
        else:
            instruction = (code, NONE, NONE, NONE)
    except ValueError:
        instruction = None
    if instruction is None or text_of(*instruction) != text.strip():
        raise PlanError(f"expected an instruction such as F1.3, meet, send 0->1.3 or load B1, got {text.strip()!r}")
    return instruction
