"""A Plan as text and back: one row a time-step, one column an IPU, ``F1.3`` an operation."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from ipusim.errors import PlanError
from ipusim.pipeline.ops import Op
from ipusim.pipeline.plan import CopyRule, Plan
from ipusim.pipeline.program import PlanShape

_HEADER: Final = re.compile(
    r"(?P<schedule>\S+) (?P<task>training|inference)(?P<recompute> with recomputation)?(?P<inline> inside backward)?"
    r"(?P<io> with overlapped I/O)?, stages on IPUs (?P<mapping>[\d, +]+), count (?P<count>\d+)"
    r"(, (?P<serial>\d+) in a row)?"
)
_EMITTED: Final = re.compile(r"time-steps (?P<emitted>\d+) emitted, copies (?P<copies>.+), FIFO depths (?P<depths>.*)")
_OFFSETS: Final = re.compile(r"offsets \[([\d, ]*)\]")
_ROW: Final = re.compile(r"\s*(\d+)\s\s(.*?)(\s+<--.*)?")


def format_grid(plan: Plan, notes: dict[int, str] | None = None) -> str:
    """Return the Plan as text that :func:`parse_grid` reads back.

    Time-steps without any work are left out; the header says how many the
    compiler emits. ``notes`` adds a remark behind the row of a time-step.
    """
    shape = plan.shape
    lines = [
        f"{plan.schedule} {'training' if shape.training else 'inference'}"
        f"{' with recomputation' if shape.recompute or shape.recompute_inline else ''}"
        f"{' inside backward' if shape.recompute_inline else ''}"
        f"{' with overlapped I/O' if shape.overlapped_io else ''}, "
        f"stages on IPUs {mapping_text(shape)}, count {shape.micro_batches}"
        f"{f', {shape.serialization} in a row' if shape.serialization > 1 else ''}",
        f"time-steps {plan.emitted} emitted, copies {plan.copy_rule.value}, "
        f"FIFO depths {', '.join(map(str, plan.fifo_depths)) or 'none'}",
        f"offsets {list(plan.offsets)}",
    ]
    cells = {place: " ".join(map(str, ops)) for place, ops in plan.cells().items()}
    columns = sorted({*plan.ipus, *(ipu for _, ipu in cells)})  # a plan in error may use IPUs that hold no stage
    widths = [max((len(text) for (_, at), text in cells.items() if at == ipu), default=1) for ipu in columns]
    for time_step in sorted({time_step for time_step, _ in cells}):
        row = [cells.get((time_step, ipu), ".").ljust(width) for ipu, width in zip(columns, widths, strict=True)]
        note = f"  <-- {notes[time_step]}" if notes and time_step in notes else ""
        lines.append(f"{time_step:>3}  {' | '.join(row)}".rstrip() + note)
    return "\n".join(lines) + "\n"


def mapping_text(shape: PlanShape) -> str:
    """Return the IPU of each stage as text, concurrent ones joined: ``0, 1+2, 3``."""
    return ", ".join("+".join(str(shape.mapping[stage]) for stage in parts) for parts in shape.parts)


def parse_mapping(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read back what :func:`mapping_text` wrote: the IPU of each part, and the sizes (empty where all are 1).

    Raises ValueError for anything that is no list of numbers.
    """
    parts = [[int(ipu) for ipu in part.split("+")] for part in text.split(",")]
    sizes = tuple(map(len, parts)) if any(len(part) > 1 for part in parts) else ()
    return tuple(ipu for part in parts for ipu in part), sizes


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
    return Plan(
        head["schedule"],
        shape,
        offsets=tuple(int(offset) for offset in re.findall(r"\d+", offsets[1])),
        emitted=int(emitted["emitted"]),
        fifo_depths=tuple(int(depth) for depth in re.findall(r"\d+", emitted["depths"])),
        copy_rule=CopyRule(emitted["copies"]),
        table=np.array(rows, dtype=np.int64).reshape(-1, 5),
    )
