"""A Plan as text: one row a time-step, one column an IPU, ``F1.3`` an operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.shape import PlanShape
from ipusim.pipeline.time_steps import earliest

#: Of a grid with marks as many IPUs are shown beside the first one that has any.
_SHOWN: Final = 8


def format_grid(
    plan: Plan,
    notes: Mapping[int, str] | None = None,
    marked: Mapping[tuple[int | None, Op], str] | None = None,
) -> str:
    """Return the Plan as text: three lines of what holds for all of it, then its time-steps.

    Time-steps without any work are left out; the header says how many the
    compiler emits. ``notes`` adds a remark behind the row of a time-step, and ``marked`` behind that of an operation,
    which stands between ``>`` and ``<`` then; its key has the time-step in lock-step, and None in point-to-point. Of
    many IPUs those beside the first marked one are shown.

    In point-to-point there are no time-steps: rows are then as if every pass took one and copies none.
    """
    shape = plan.shape
    if plan.sync.meets:
        steps = f"time-steps {plan.emitted} emitted, copies {plan.copy_rule.value}"
    else:
        steps = f"{plan.sync.words}, rows as if every pass took one time-step and copies none"
    lines = [
        f"{plan.schedule} {'training' if shape.training else 'inference'}"
        f"{' with recomputation' if shape.recompute or shape.recompute_inline else ''}"
        f"{' inside backward' if shape.recompute_inline else ''}"
        f"{' with overlapped I/O' if shape.overlapped_io else ''}, "
        f"stages on IPUs {mapping_text(shape)}, count {shape.count}"
        f"{f' in {shape.segments} segments' if shape.segments > 1 else ''}"
        f"{f', {shape.serialization} in a row' if shape.serialization > 1 else ''}",
        f"{steps}, FIFO depths {', '.join(map(str, plan.fifo_depths)) or 'none'}",
        f"offsets {list(plan.offsets)}",
    ]
    marked, remarks = marked or {}, dict(notes or {})
    where: dict[tuple[int | None, Op], tuple[int, int]] = {}
    cells: dict[tuple[int, int], str] = {}
    for (time_step, ipu), ops in _cells(plan).items():
        texts = []
        for op in ops:
            key, text = (time_step if plan.sync.meets else None, op), op.text(shape.segments)
            texts.append(f">{text}<" if key in marked else text)
            where.setdefault(key, (time_step, ipu))
        cells[time_step, ipu] = " ".join(texts)
    found = [(where[key], remark) for key, remark in marked.items() if key in where]
    for (time_step, _), remark in found:
        remarks.setdefault(time_step, remark)
    columns = sorted({*plan.ipus, *(ipu for _, ipu in cells)})  # a plan in error may use IPUs that hold no stage
    if marked and len(columns) > _SHOWN:
        first = columns.index(found[0][0][1]) if found else 0
        begin = min(max(0, first - _SHOWN // 2), len(columns) - _SHOWN)
        columns = columns[begin : begin + _SHOWN]
        lines[-1] += f"; IPUs {columns[0]} to {columns[-1]}"
    widths = [max((len(text) for (_, at), text in cells.items() if at == ipu), default=1) for ipu in columns]
    for time_step in sorted({time_step for time_step, ipu in cells if ipu in columns}):
        row = [cells.get((time_step, ipu), ".").ljust(width) for ipu, width in zip(columns, widths, strict=True)]
        note = f"  <-- {remarks[time_step]}" if time_step in remarks else ""
        lines.append(f"{time_step:>3}  {' | '.join(row)}".rstrip() + note)
    return "\n".join(lines) + "\n"


def _cells(plan: Plan) -> dict[tuple[int, int], list[Op]]:
    """Return the operations of each row and IPU."""
    if plan.sync.meets:
        return plan.cells()
    steps = earliest(plan.order, one_at_a_time=True).tolist()
    passes = zip(steps, plan.order.passes.tolist(), strict=True)
    return {(step, ipu): [Op(Pass(kind), *of)] for step, (ipu, kind, *of) in passes}


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
