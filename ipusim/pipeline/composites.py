"""Composite passes of a Plan: forward passes of some stages of an IPU in one slot with backward passes of others."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan

#: A pass, its stage and its micro-batch.
OnePass = tuple[int, int, int]


def composites(plan: Plan) -> Iterator[tuple[OnePass, ...]]:
    """Yield the passes of each composite pass, in the order in which they run.

    Passes that an Order has in one slot are none where a backward pass goes back over what a forward pass in it has
    just made, or where lock-step has them in several time-steps, as one of them needs another.
    """
    order = plan.order
    if not order.joined.any():
        return
    passes = [(kind, stage, micro_batch) for _, kind, stage, micro_batch in order.passes.tolist()]
    own = [(kind, stage, micro_batch) for _, _, kind, stage, micro_batch in plan.table.tolist()]
    step_of = dict(zip(own, plan.time_step.tolist(), strict=True))
    for rows in order.slots:
        slot = passes[rows.start : rows.stop]
        made = {(stage, micro_batch) for kind, stage, micro_batch in slot if kind == Pass.FORWARD}
        back = {(stage, micro_batch) for kind, stage, micro_batch in slot if kind != Pass.FORWARD}
        if made and back and not made & back and len({step_of[one] for one in slot}) == 1:
            yield tuple(slot)
