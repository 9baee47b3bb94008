"""Assign the earliest time-steps to an Order without time-steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import Column, PlanShape


def earliest(order: Order, *, one_at_a_time: bool) -> Column:
    """Return the earliest time-step of each pass, in row order, shape (passes,).

    A pass runs in a later time-step than the passes that it needs, and not before earlier passes of its IPU. Passes of
    one IPU share a time-step, unless ``one_at_a_time`` is set, or the time-step already has a pass of the same kind and
    stage. Joined passes (passes in one slot) share a time-step, unless one of them needs another. If passes need each
    other in a circle, missing results are ignored, so that every pass gets a time-step; the check of the Plan then
    reports the circle.
    """
    ipus, kinds, stages, micro_batches = order.passes.T.tolist()
    pairs = [*zip(kinds, stages, strict=True)]
    # Time-step of a pass, by (kind, stage) and micro-batch. An input-gradient pass counts as the backward pass.
    step_of: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    recorded_as = {pair: (Pass.BACKWARD if pair[0] == Pass.INPUT_GRADIENT else pair[0], pair[1]) for pair in set(pairs)}
    input_steps = {pair: [step_of[need] for need in needs(order.shape, *pair)] for pair in recorded_as}
    input_steps_of_row = [input_steps[pair] for pair in pairs]
    own_steps_of_row = [step_of[recorded_as[pair]] for pair in pairs]
    queues: dict[int, list[range]] = {ipu: [] for ipu in ipus}  # the first slot last
    for rows in reversed([*_slots(order)]):
        queues[ipus[rows[0]]].append(rows)
    steps = [0] * len(pairs)
    last_step = dict.fromkeys(queues, 0)
    in_step: dict[int, set[tuple[int, int]]] = {ipu: set() for ipu in queues}
    ignores_inputs = False
    while any(queues.values()):
        progress = False
        for ipu, slots in queues.items():
            last, in_last_step = last_step[ipu], in_step[ipu]
            while slots:
                rows = slots[-1]
                step, waits = last, False
                for row in rows:
                    micro_batch = micro_batches[row]
                    for steps_of_input in input_steps_of_row[row]:
                        input_step = steps_of_input.get(micro_batch)
                        if input_step is None:
                            waits = True
                        elif input_step >= step:
                            step = input_step + 1
                if waits and not ignores_inputs:
                    break
                slot_passes = pairs[rows.start : rows.stop]
                if step == last and in_last_step and (one_at_a_time or not in_last_step.isdisjoint(slot_passes)):
                    step += 1
                if step > last:
                    last = step
                    in_last_step.clear()
                in_last_step.update(slot_passes)
                for row in rows:
                    steps[row] = own_steps_of_row[row][micro_batches[row]] = step
                slots.pop()
                progress = True
            last_step[ipu] = last
        ignores_inputs = not progress
    return np.array(steps, np.int64)


def _slots(order: Order) -> Iterator[range]:
    """Yield the rows of each slot: one row, or several if the passes are joined and none needs another."""
    for rows in order.slots:
        if len(rows) > 1 and _depend(order, rows):
            yield from (range(row, row + 1) for row in rows)
        else:
            yield rows


def _depend(order: Order, rows: range) -> bool:
    results: set[tuple[int, int, int]] = set()
    for _, kind, stage, micro_batch in order.passes[rows.start : rows.stop].tolist():
        if any((*need, micro_batch) in results for need in needs(order.shape, kind, stage)):
            return True
        results.add((Pass.BACKWARD if kind == Pass.INPUT_GRADIENT else kind, stage, micro_batch))
    return False


def needs(shape: PlanShape, kind: int, stage: int) -> list[tuple[int, int]]:
    """Return the passes (kind, stage) over the same micro-batch whose results a pass consumes.

    BACKWARD represents a whole backward pass, or an input-gradient pass.
    """
    if kind == Pass.FORWARD:
        return [(Pass.FORWARD, source) for source in shape.neighbours(stage, -1)]
    if kind == Pass.RECOMPUTE:
        return [(Pass.FORWARD, stage)]
    if kind == Pass.WEIGHT_GRADIENT:
        return [(Pass.BACKWARD, stage)]
    stash_maker = Pass.RECOMPUTE if shape.recomputes_apart(stage) else Pass.FORWARD
    return [(stash_maker, stage), *((Pass.BACKWARD, target) for target in shape.neighbours(stage, 1))]
