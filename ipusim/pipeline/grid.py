"""Format a Plan as text: a row per time-step, a column per IPU, operations as ``F1.3``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.time_steps import earliest

#: Number of IPUs shown around the first mark.
_MOST_IPUS: Final = 8


def format_grid(
    plan: Plan,
    notes: Mapping[int, str] | None = None,
    marks: Mapping[tuple[int | None, Op], str] | None = None,
) -> str:
    """Format a Plan as text: three header lines, then time-steps.

    Empty time-steps are omitted; the header has the number of emitted time-steps. ``notes`` adds a remark to the row of
    a time-step. ``marks`` adds a remark to the row of an operation, and puts the operation between ``>`` and ``<``;
    keys have the time-step in lock-step, None in point-to-point. A marked grid of many IPUs shows only IPUs around the
    first mark.

    Point-to-point has no time-steps; rows assume one time-step per pass and free copies.
    """
    shape = plan.shape
    if plan.sync.has_time_steps:
        filled = len({time_step for time_step, _ in _cells(plan)})
        filled_text = f", {filled} with passes" if filled != plan.emitted else ""
        steps = f"time-steps {plan.emitted} emitted{filled_text}, copies {plan.copy_rule.value}"
    else:
        steps = f"{plan.sync.words}, a row is the time of one pass, and copies take no time"
    lines = [
        f"{plan.schedule} {'training' if shape.training else 'inference'}"
        f"{' with recomputation' if shape.recompute or shape.recompute_inline else ''}"
        f"{' inside backward' if shape.recompute_inline else ''}"
        f"{' with overlapped I/O' if shape.overlapped_io else ''}, "
        f"stages on IPUs {mapping_text(shape)}, count {shape.count}"
        f"{f' in {shape.segments} segments' if shape.segments > 1 else ''}"
        f"{f', {shape.serialization} in a row' if shape.serialization > 1 else ''}",
        f"{steps}, FIFO depths {', '.join(map(str, plan.fifo_depths)) or 'none'}",
        f"offsets {list(plan.offsets)}" if plan.offsets else "offsets of stages: none",
    ]
    marks, remarks = marks or {}, dict(notes or {})
    cell_of: dict[tuple[int | None, Op], tuple[int, int]] = {}
    cells: dict[tuple[int, int], str] = {}
    for (time_step, ipu), ops in _cells(plan).items():
        texts = []
        for op in ops:
            key, text = (time_step if plan.sync.has_time_steps else None, op), op.text(shape.segments)
            texts.append(f">{text}<" if key in marks else text)
            cell_of.setdefault(key, (time_step, ipu))
        cells[time_step, ipu] = " ".join(texts)
    marked_cells = [(cell_of[key], remark) for key, remark in marks.items() if key in cell_of]
    for (time_step, _), remark in marked_cells:
        remarks.setdefault(time_step, remark)
    columns = sorted({*plan.ipus, *(ipu for _, ipu in cells)})  # an invalid plan may use IPUs without a stage
    if marks and len(columns) > _MOST_IPUS:
        first = columns.index(marked_cells[0][0][1]) if marked_cells else 0
        begin = min(max(0, first - _MOST_IPUS // 2), len(columns) - _MOST_IPUS)
        columns = columns[begin : begin + _MOST_IPUS]
        lines[-1] += f"; IPUs {columns[0]} to {columns[-1]}"
    widths = [max((len(text) for (_, column), text in cells.items() if column == ipu), default=1) for ipu in columns]
    for time_step in sorted({time_step for time_step, ipu in cells if ipu in columns}):
        row = [cells.get((time_step, ipu), ".").ljust(width) for ipu, width in zip(columns, widths, strict=True)]
        note = f"  <-- {remarks[time_step]}" if time_step in remarks else ""
        lines.append(f"{time_step:>3}  {' | '.join(row)}".rstrip() + note)
    return "\n".join(lines) + "\n"


def _cells(plan: Plan) -> dict[tuple[int, int], list[Op]]:
    """Return the operations by row and IPU."""
    if plan.sync.has_time_steps:
        return plan.cells()
    steps = earliest(plan.order, one_at_a_time=True).tolist()
    passes = zip(steps, plan.order.passes.tolist(), strict=True)
    return {(step, ipu): [Op(Pass(kind), *numbers)] for step, (ipu, kind, *numbers) in passes}


def mapping_text(shape: PlanShape) -> str:
    """Format the IPU of each stage, with concurrent stages joined: ``0, 1+2, 3``."""
    return ", ".join("+".join(str(shape.mapping[stage]) for stage in parts) for parts in shape.parts)


def parse_mapping(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse the output of :func:`mapping_text`: IPU of each part, and sizes (empty for equal sizes of 1).

    Raises ValueError for text that is not a list of numbers.
    """
    parts = [[int(ipu) for ipu in part.split("+")] for part in text.split(",")]
    sizes = tuple(map(len, parts)) if any(len(part) > 1 for part in parts) else ()
    return tuple(ipu for part in parts for ipu in part), sizes
