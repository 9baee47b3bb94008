"""The check of Plans against plain loops over the same rules, on Plans of which a few numbers are changed."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.errors import MissingTensorError
from ipusim.lowering.lower import lower
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.check import violations
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.effort import share
from tests.orders import random_order
from tests.plans import price_and_run, with_table
from tests.properties.test_disturbed_runs import LEARNING
from tests.scenarios import job_from

F, B, R, G, W = Pass.FORWARD, Pass.BACKWARD, Pass.RECOMPUTE, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT


@st.composite
def plans(draw):
    """Return a Plan with up to four numbers of its table changed, each to one that a Plan may have."""
    name = draw(st.sampled_from(["grouped", "interleaved", "sequential", "zero_bubble_h1", "drawn"]))
    stages, training = draw(st.integers(2, 4)), name == "zero_bubble_h1" or draw(st.booleans())
    recompute = training and name in ("grouped", "interleaved", "drawn") and draw(st.booleans())
    count = 2 * stages * draw(st.integers(1, 2))
    shape = PlanShape(mapping=tuple(range(stages)), micro_batches=count, training=training, recompute=recompute)
    if name == "drawn":
        plan = lower(random_order(random.Random(draw(st.integers(0, 999))), shape), Sync.LOCK_STEP)
    else:
        plan = plan_of(find(name), shape, Sync.LOCK_STEP)
    table = plan.table.copy()
    highest = {0: plan.emitted + 1, 1: stages - 1, 2: 4, 3: stages - 1, 4: count - 1}
    for _ in range(draw(st.integers(0, 4))):
        column = draw(st.integers(0, 4))
        table[draw(st.integers(0, len(table) - 1)), column] = draw(st.integers(0, highest[column]))
    return with_table(plan, table)


def needs(shape, op, halves):
    """What must have run before an operation; ``halves`` are the places where a backward pass is not whole."""
    kind, stage, batch = op
    if kind == F:
        return [Op(F, stage - 1, batch)] if stage else []
    if kind == W:
        return [Op(G, stage, batch)]
    found = [Op(F, stage, batch)]
    if kind in (B, G) and stage < shape.stages - 1:
        found.append(Op(G if (stage + 1, batch) in halves else B, stage + 1, batch))
        if shape.recompute:
            found.append(Op(R, stage, batch))
    return found


def by_loops(plan):
    """Return each broken rule with its place and the operation's name, rule by rule, in the order of the Plan."""
    shape, placed = plan.shape, list(plan.ops())
    halves = {(op.stage, op.micro_batch) for *_, op in placed if op.kind in (G, W)}
    wanted = set()
    for batch in range(shape.micro_batches):
        for stage in range(shape.stages):
            kinds = [F, *((G, W) if (stage, batch) in halves else (B,))] if shape.training else [F]
            kinds += [R] if shape.recompute and stage < shape.stages - 1 else []
            wanted |= {Op(kind, stage, batch) for kind in kinds}
    when = {op: at for at, _, op in placed}
    row = {op: number for number, (*_, op) in enumerate(placed)}
    found, seen, programs, held = (
        {rule: [] for rule in ("once", "place", "need", "repeat", "memory")},
        Counter(),
        {},
        {},
    )
    for number, (at, ipu, op) in enumerate(placed):
        seen[op] += 1
        if op not in wanted or seen[op] == 2:
            found["once"].append(("once", at, ipu, str(op)))
        if at >= plan.emitted:
            found["once"].append(("range", at, ipu, str(op)))
        if shape.mapping[op.stage] != ipu:
            found["place"].append(("placement", at, ipu, str(op)))
        for need in needs(shape, op, halves):
            # The last stage needs nothing of another IPU, and may turn round in one time-step.
            turns = need == Op(F, shape.stages - 1, op.micro_batch) and op.kind in (B, G) and not shape.sizes
            if when.get(need, -1) >= at and not (turns and when[need] == at and row[need] < number):
                found["need"].append(("dependency", at, ipu, str(op)))
        if programs.setdefault((at, op.kind, op.stage), op) is not op:
            found["repeat"].append(("repeat", at, ipu, str(op)))
        release = (R,) if shape.recompute and op.stage < shape.stages - 1 else (B, G)
        held[op.stage] = held.get(op.stage, 0) + (op.kind == F) - (op.kind in release)
        if shape.training and op.kind == F and held[op.stage] > plan.fifo_depths[op.stage] + 1:
            found["memory"].append(("memory", at, ipu, str(op)))
    found["once"] += [("once", None, None, str(op)) for op in sorted(wanted - seen.keys())]
    return [each for rule in found.values() for each in rule]


@settings(max_examples=share(400))
@given(plan=plans())
def test_the_check_finds_what_plain_loops_find(plan):
    found = violations(plan)
    expected = by_loops(plan)
    assert [(each.rule, each.time_step, each.ipu) for each in found] == [each[:3] for each in expected]
    for each, (*_, op) in zip(found, expected, strict=True):
        assert op in each.text


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ([0, 1, 0, 0, 0], "IPU 1 cannot run F0.0: the IPU does not hold the parameters of stage 0, which are on IPU 0"),
        ([0, 1, 0, 1, 0], "IPU 1 cannot run F1.0 in execution 0: its input is missing"),
    ],
)
def test_a_plan_that_breaks_a_rule_and_is_not_checked_stops_at_a_missing_tensor(first, text):
    job = job_from(LEARNING | {"system": {"name": "m2000", "auto_select_ipus": 2}})
    table = job.plan.table.copy()
    table[0] = first
    plan = with_table(job.plan, table)
    with pytest.raises(MissingTensorError, match=text):
        price_and_run(plan, job.program, job.system, executor=NumpyExecutor(plan.shape, job.workload(0)))
