"""Assign the earliest time-steps to an Order without time-steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import Column, PlanShape


def earliest(order: Order, *, one_at_a_time: bool) -> Column:
    """Return the earliest time-step of each pass, in row order, shape (passes,).

    A pass runs in a later time-step than needed passes, and not before earlier passes of its IPU. Passes of one IPU
    share a time-step unless ``one_at_a_time`` is set or the same kind of pass of the same stage is already in it.
    Joined passes share a time-step unless one needs another. Passes in a circle of needs are placed at the end, and
    the check of Plans reports them.
    """
    ipus, kinds, stages, micro_batches = order.passes.T.tolist()
    what = [*zip(kinds, stages, strict=True)]
    made: dict[tuple[int, int], dict[int, int]] = {one: {} for one in what}  # time-step by micro-batch
    makers = {one: [_made_by(made, *need) for need in needs(order.shape, *one)] for one in made}
    left: dict[int, list[range]] = {}
    for rows in _slots(order):
        left.setdefault(ipus[rows[0]], []).append(rows)
    for slots in left.values():
        slots.reverse()
    steps = [0] * len(what)
    now = dict.fromkeys(left, 0)
    there: dict[int, set[tuple[int, int]]] = {ipu: set() for ipu in left}
    ignoring = False
    while any(left.values()):
        moved = False
        for ipu, slots in left.items():
            while slots:
                rows = slots[-1]
                before = [
                    whole.get(micro_batches[row], half.get(micro_batches[row]))
                    for row in rows
                    for whole, half in makers[what[row]]
                ]
                if None in before and not ignoring:
                    break
                step = max([now[ipu], *(other + 1 for other in before if other is not None)])
                own = {what[row] for row in rows}
                if step == now[ipu] and ((one_at_a_time and there[ipu]) or own & there[ipu]):
                    step += 1
                if step > now[ipu]:
                    now[ipu] = step
                    there[ipu].clear()
                there[ipu] |= own
                for row in rows:
                    steps[row] = made[what[row]][micro_batches[row]] = step
                slots.pop()
                moved = True
        ignoring = not moved
    return np.array(steps, np.int64)


def _slots(order: Order) -> Iterator[range]:
    """Yield the rows of each slot: one row, or several for joined passes without mutual needs."""
    for rows in order.slots:
        if len(rows) > 1 and _depend(order, rows):
            yield from (range(row, row + 1) for row in rows)
        else:
            yield rows


def _depend(order: Order, rows: range) -> bool:
    made: set[tuple[int, int, int]] = set()
    for _, kind, stage, micro_batch in order.passes[rows.start : rows.stop].tolist():
        if any((*need, micro_batch) in made for need in needs(order.shape, kind, stage)):
            return True
        made.add((Pass.BACKWARD if kind == Pass.INPUT_GRADIENT else kind, stage, micro_batch))
    return False


def needs(shape: PlanShape, kind: int, stage: int) -> list[tuple[int, int]]:
    """Return the passes (kind, stage) over the same micro-batch whose results a pass consumes.

    BACKWARD represents the whole pass, or its half with the gradient of the input.
    """
    if kind == Pass.FORWARD:
        return [(Pass.FORWARD, before) for before in shape.neighbours(stage, -1)]
    if kind == Pass.RECOMPUTE:
        return [(Pass.FORWARD, stage)]
    if kind == Pass.WEIGHT_GRADIENT:
        return [(Pass.BACKWARD, stage)]
    saving = Pass.RECOMPUTE if shape.recompute and shape.recomputes(stage) else Pass.FORWARD
    return [(saving, stage), *((Pass.BACKWARD, after) for after in shape.neighbours(stage, 1))]


def _made_by(
    made: Mapping[tuple[int, int], dict[int, int]], kind: int, stage: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return entries of ``made`` for a needed pass, and for its equivalent half."""
    half = made.get((Pass.INPUT_GRADIENT, stage), {}) if kind == Pass.BACKWARD else {}
    return made.get((kind, stage), {}), half
