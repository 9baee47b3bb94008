"""The check of Plans against plain loops over the same rules, on Plans of which a few numbers are changed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.pipeline.check import violations
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.program import PlanShape
from ipusim.schedules.registry import find
from tests.grids import with_table

F, B, R = Pass.FORWARD, Pass.BACKWARD, Pass.RECOMPUTE


@st.composite
def plans(draw):
    """Return a Plan with up to four numbers of its table changed, each to one that a Plan may have."""
    name = draw(st.sampled_from(["grouped", "interleaved", "sequential"]))
    stages, training = draw(st.integers(2, 4)), draw(st.booleans())
    recompute = training and name != "sequential" and draw(st.booleans())
    count = 2 * stages * draw(st.integers(1, 2))
    plan = find(name).plan(
        PlanShape(mapping=tuple(range(stages)), micro_batches=count, training=training, recompute=recompute)
    )
    table = plan.table.copy()
    highest = {0: plan.emitted + 1, 1: stages - 1, 2: 2, 3: stages - 1, 4: count - 1}
    for _ in range(draw(st.integers(0, 4))):
        column = draw(st.integers(0, 4))
        table[draw(st.integers(0, len(table) - 1)), column] = draw(st.integers(0, highest[column]))
    return with_table(plan, table)


def needs(shape, op):
    """What must have run before an operation."""
    kind, stage, batch = op
    if kind == F:
        return [Op(F, stage - 1, batch)] if stage else []
    found = [Op(F, stage, batch)]
    if kind == B and stage < shape.stages - 1:
        found.append(Op(B, stage + 1, batch))
        if shape.recompute:
            found.append(Op(R, stage, batch))
    return found


def by_loops(plan):
    """Return each broken rule with its place and the operation's name, rule by rule, in the order of the Plan."""
    shape, placed = plan.shape, list(plan.ops())
    kinds = {F: shape.stages, B: shape.stages * shape.training, R: (shape.stages - 1) * shape.recompute}
    kinds |= {Pass.INPUT_GRADIENT: 0, Pass.WEIGHT_GRADIENT: 0}
    wanted = {
        Op(kind, stage, batch) for kind in Pass for stage in range(kinds[kind]) for batch in range(shape.micro_batches)
    }
    when = {op: at for at, _, op in placed}
    found, seen, programs, held = (
        {rule: [] for rule in ("once", "place", "need", "repeat", "memory")},
        Counter(),
        {},
        {},
    )
    for at, ipu, op in placed:
        seen[op] += 1
        if op not in wanted or seen[op] == 2:
            found["once"].append(("once", at, ipu, str(op)))
        if at >= plan.emitted:
            found["once"].append(("range", at, ipu, str(op)))
        if shape.mapping[op.stage] != ipu:
            found["place"].append(("placement", at, ipu, str(op)))
        for need in needs(shape, op):
            if when.get(need, -1) >= at:
                found["need"].append(("dependency", at, ipu, str(op)))
        if programs.setdefault((at, op.kind, op.stage), op) is not op:
            found["repeat"].append(("repeat", at, ipu, str(op)))
        held[op.stage] = held.get(op.stage, 0) + {F: 1, B: -1, R: 0}[op.kind]
        if shape.training and op.kind == F and held[op.stage] > plan.fifo_depths[op.stage] + 1:
            found["memory"].append(("memory", at, ipu, str(op)))
    found["once"] += [("once", None, None, str(op)) for op in sorted(wanted - seen.keys())]
    return [each for rule in found.values() for each in rule]


@settings(max_examples=400)
@given(plan=plans())
def test_the_check_finds_what_plain_loops_find(plan):
    found = violations(plan)
    expected = by_loops(plan)
    assert [(each.rule, each.time_step, each.ipu) for each in found] == [each[:3] for each in expected]
    for each, (*_, op) in zip(found, expected, strict=True):
        assert op in each.text
