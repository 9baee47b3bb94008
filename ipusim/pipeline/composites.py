"""Find the composite passes of a Plan: forward passes of some stages joined with backward passes of others.

A slot is a place for one pass, or for several joined passes, in the Order of an IPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan

#: A pass as kind, stage and micro-batch.
OnePass = tuple[int, int, int]


def composites(plan: Plan) -> Iterator[tuple[OnePass, ...]]:
    """Yield the passes of each composite pass, in order of execution.

    The passes of a slot do not form a composite pass if the backward pass needs the forward pass. In lock-step, they
    also form none if one pass needs another, because the slot is then split into several time-steps.
    """
    order = plan.order
    if not order.joined.any():
        return
    passes = [(kind, stage, micro_batch) for _, kind, stage, micro_batch in order.passes.tolist()]
    plan_passes = [(kind, stage, micro_batch) for _, _, kind, stage, micro_batch in plan.table.tolist()]
    step_of = dict(zip(plan_passes, plan.time_step.tolist(), strict=True))
    for rows in order.slots:
        slot = passes[rows.start : rows.stop]
        forwards = {(stage, micro_batch) for kind, stage, micro_batch in slot if kind == Pass.FORWARD}
        backwards = {(stage, micro_batch) for kind, stage, micro_batch in slot if kind != Pass.FORWARD}
        if forwards and backwards and not forwards & backwards and len({step_of[entry] for entry in slot}) == 1:
            yield tuple(slot)
