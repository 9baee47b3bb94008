"""Whether a Plan is laid out exactly as Graphcore's compiler would, operation for operation.

An independent reading of the compiler's layout: it goes from an operation to
its time-step by the closed form, where the schedules go from time-steps to
operations. Orders that break no dependency, yet are not the compiler's, show here.
"""

from __future__ import annotations

from ipusim.pipeline.check import Violation
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.schedules.serial import time_step_of


def expected_time_step(plan: Plan, op: Op) -> int:
    """Return the time-step of ``op``: k_j + S * floor(m / V) + q, with j = m mod V and q its step.

    A recomputation runs one time-step before the backward that it serves. With overlapped
    I/O all passes run one time-step later; with batch serialization see :func:`time_step_of`.
    """
    if plan.shape.serialization > 1:
        return time_step_of(plan.shape, plan.shape.step_of(op.kind, op.stage), op.micro_batch)
    row, column = op.micro_batch % plan.overlap, op.micro_batch // plan.overlap
    start = plan.offsets[row] + plan.shape.steps * column + plan.shape.overlapped_io
    if op.kind == Pass.FORWARD:
        return start + plan.shape.position_of[op.stage]
    backward = start + plan.shape.step_of(Pass.BACKWARD, op.stage)
    return backward - 1 if op.kind == Pass.RECOMPUTE else backward


def order_violations(plan: Plan) -> list[Violation]:
    """Return every operation that is not where the compiler puts it, or not in its order within a time-step.

    Within a time-step an IPU runs stage programs in descending step order
    (backward before forward), then recomputations, later stages first.
    """
    found = []
    last: tuple[int, int, tuple[int, int]] | None = None
    for time_step, ipu, op in plan.ops():
        right = expected_time_step(plan, op)
        if right != time_step:
            text = f"{op} belongs in time-step {right} of the {plan.schedule} schedule"
            found.append(Violation("order", time_step, ipu, text))
        key = (1, -op.stage) if op.kind == Pass.RECOMPUTE else (0, -plan.shape.step_of(op.kind, op.stage))
        if last is not None and last[:2] == (time_step, ipu) and last[2] > key:
            text = f"{op} runs too late in its time-step: backward goes before forward, recomputation last"
            found.append(Violation("order", time_step, ipu, text))
        last = (time_step, ipu, key)
    return found
