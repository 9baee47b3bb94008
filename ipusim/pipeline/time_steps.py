"""Time-steps for an Order that has none: each pass as early as its needs allow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape


def earliest(order: Order, *, one_at_a_time: bool) -> npt.NDArray[np.int64]:
    """Return the time-step of each of the Order's passes, in its rows' order, shape (passes,).

    A pass comes in a later time-step than all that it needs, and no earlier than what its IPU runs before it:
    later, where IPUs run ``one_at_a_time``, or where the same pass of the same stage is there already. What waits
    for itself is put behind the rest, for the check to find.
    """
    passes = order.passes.tolist()
    shape = order.shape
    queues: dict[int, list[int]] = {}
    for row, (ipu, *_) in enumerate(passes):
        queues.setdefault(ipu, []).append(row)
    done: dict[tuple[int, int, int], int] = {}
    found = np.zeros(len(passes), np.int64)
    at = dict.fromkeys(queues, 0)
    now = dict.fromkeys(queues, 0)
    there: dict[int, set[tuple[int, int]]] = {ipu: set() for ipu in queues}
    ignoring = False
    while any(at[ipu] < len(queue) for ipu, queue in queues.items()):
        moved = False
        for ipu, queue in queues.items():
            while at[ipu] < len(queue):
                row = queue[at[ipu]]
                _, kind, stage, micro_batch = passes[row]
                before = [_of(done, need, micro_batch) for need in needs(shape, kind, stage)]
                if None in before and not ignoring:
                    break
                step = max([now[ipu], *(each + 1 for each in before if each is not None)])
                if step == now[ipu] and ((one_at_a_time and there[ipu]) or (kind, stage) in there[ipu]):
                    step += 1
                if step > now[ipu]:
                    now[ipu] = step
                    there[ipu].clear()
                there[ipu].add((kind, stage))
                found[row] = done[kind, stage, micro_batch] = step
                at[ipu] += 1
                moved = True
        ignoring = not moved
    return found


def needs(shape: PlanShape, kind: int, stage: int) -> list[tuple[int, int]]:
    """Return the passes (kind, stage) over the same micro-batch that a pass consumes something of.

    BACKWARD stands for the whole pass, or for the half of it that gives the gradient of the input.
    """
    if kind == Pass.FORWARD:
        return [(Pass.FORWARD, before) for before in shape.neighbours(stage, -1)]
    if kind == Pass.RECOMPUTE:
        return [(Pass.FORWARD, stage)]
    if kind == Pass.WEIGHT_GRADIENT:
        return [(Pass.BACKWARD, stage)]
    kept = Pass.RECOMPUTE if shape.recompute and shape.recomputes(stage) else Pass.FORWARD
    return [(kept, stage), *((Pass.BACKWARD, after) for after in shape.neighbours(stage, 1))]


def _of(done: dict[tuple[int, int, int], int], need: tuple[int, int], micro_batch: int) -> int | None:
    """Return when a need has been made; None where it has not."""
    kind, stage = need
    found = done.get((kind, stage, micro_batch))
    return done.get((Pass.INPUT_GRADIENT, stage, micro_batch)) if found is None and kind == Pass.BACKWARD else found
