"""Plans as tests write and change them: read from the text of a grid, or with other operations."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import PlanError
from ipusim.lowering.lower import lower
from ipusim.pipeline.grid import parse_mapping
from ipusim.pipeline.ops import Op
from ipusim.pipeline.order import CopyRule, Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape

_HEADER: Final = re.compile(
    r"(?P<schedule>\S+) (?P<task>training|inference)(?P<recompute> with recomputation)?(?P<inline> inside backward)?"
    r"(?P<io> with overlapped I/O)?, stages on IPUs (?P<mapping>[\d, +]+), count (?P<count>\d+)"
    r"(, (?P<serial>\d+) in a row)?"
)
_EMITTED: Final = re.compile(r"time-steps (?P<emitted>\d+) emitted, copies (?P<copies>.+), FIFO depths (?P<depths>.*)")
_OFFSETS: Final = re.compile(r"offsets \[([\d, ]*)\]")
_ROW: Final = re.compile(r"\s*(\d+)\s\s(.*?)(\s+<--.*)?")


def parse_grid(text: str) -> Plan:
    """Read back what :func:`format_grid` wrote; raises PlanError naming the line that does not fit."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = _HEADER.fullmatch(lines[0].strip()) if lines else None
    emitted = _EMITTED.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    if head is None or emitted is None or len(lines) < 3 or not lines[2].strip().startswith("offsets ["):
        raise PlanError("expected a grid that begins with its three header lines (schedule, time-steps, offsets)")
    mapping, sizes = parse_mapping(head["mapping"])
    inline = head["inline"] is not None
    recompute = head["recompute"] is not None and not inline
    io = head["io"] is not None
    shape = PlanShape(
        mapping=mapping,
        micro_batches=int(head["count"]),
        training=head["task"] == "training",
        recompute=recompute,
        recompute_inline=inline,
        overlapped_io=io,
        sizes=sizes,
        serialization=int(head["serial"] or 1),
    )
    offsets = _OFFSETS.fullmatch(lines[2].strip())
    if offsets is None or emitted["copies"] not in {rule.value for rule in CopyRule}:
        raise PlanError(f"expected offsets and a copy rule in the header, got {lines[1]!r} and {lines[2]!r}")
    ipus = sorted(set(mapping))
    rows: list[tuple[int, ...]] = []
    for line in lines[3:]:
        match = _ROW.fullmatch(line)
        cells = match[2].split("|") if match else []
        if match is None or len(cells) != len(ipus):
            raise PlanError(f"expected a row of {len(ipus)} cells behind a time-step, got {line!r}")
        for ipu, cell in zip(ipus, cells, strict=True):
            for word in cell.split():
                if word != ".":
                    try:
                        rows.append((int(match[1]), ipu, *Op.parse(word)))
                    except ValueError as error:
                        raise PlanError(f"{error} in row {line!r}") from None
    order = Order(
        head["schedule"],
        shape,
        offsets=tuple(int(offset) for offset in re.findall(r"\d+", offsets[1])),
        emitted=int(emitted["emitted"]),
        fifo_depths=tuple(int(depth) for depth in re.findall(r"\d+", emitted["depths"])),
        copy_rule=CopyRule(emitted["copies"]),
        table=np.array(rows, dtype=np.int64).reshape(-1, 5),
    )
    return lower(order, Sync.LOCK_STEP)


def with_table(plan: Plan, table: npt.NDArray[np.int64]) -> Plan:
    """Return a Plan in lock-step with the same header and other operations."""
    order = Order(
        plan.schedule,
        plan.shape,
        offsets=plan.offsets or (0,),
        emitted=plan.emitted,
        fifo_depths=plan.fifo_depths,
        copy_rule=plan.copy_rule,
        table=table,
    )
    return lower(order, Sync.LOCK_STEP)


def time_steps_with_work(plan: Plan) -> int:
    """Return the number of time-steps in which any IPU runs an operation."""
    return len(np.unique(plan.time_step))
