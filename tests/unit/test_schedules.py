"""Offsets, counts and FIFO depths of every schedule, and the rules by their text."""

from __future__ import annotations

import pytest

from ipusim.errors import CountError, ProgramError, UnsupportedProgramError
from ipusim.pipeline.grid import format_grid, parse_grid
from ipusim.pipeline.plan import CopyRule, Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import nearest_counts, recomputation
from ipusim.schedules import registry
from ipusim.schedules.interleaved import offsets
from ipusim.schedules.registry import Schedule, find

ALSO_CALLED = (
    " This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or "
    "`steps_per_execution` depending on the API used."
)
FOUR = (0, 1, 2, 3)


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_time_steps_of_training(stages, rounds):
    mapping, count = tuple(range(stages)), 2 * stages * rounds
    shape = PlanShape(mapping, count)
    grouped, interleaved, sequential = (find(name).plan(shape) for name in ("grouped", "interleaved", "sequential"))
    assert grouped.time_steps_with_work == count + 2 * stages - 1
    assert grouped.emitted == count + 2 * stages
    assert interleaved.time_steps_with_work == 2 * count + 2 * (stages - 1)
    assert interleaved.emitted == 2 * count + 2 * stages
    assert sequential.time_steps_with_work == sequential.emitted == 2 * stages * count
    assert grouped.offsets == tuple(range(2 * stages))
    assert interleaved.offsets == tuple(range(0, 2 * stages, 2))
    assert sequential.offsets == (0,)


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["grouped", "interleaved"])
def test_time_steps_of_inference(stages, name):
    plan = find(name).plan(PlanShape(tuple(range(stages)), 3 * stages, training=False))
    assert plan.time_steps_with_work == 3 * stages + stages - 1
    assert plan.emitted == 3 * stages + stages
    assert plan.fifo_depths == ()


@pytest.mark.parametrize("stages", [2, 4, 7])
def test_fifo_depths(stages):
    shape = PlanShape(tuple(range(stages)), 2 * stages)
    depth = [find(name).plan(shape).fifo_depths for name in ("grouped", "interleaved", "sequential", "sharded")]
    assert depth[0] == tuple(2 * (stages - 1 - stage) for stage in range(stages))
    assert depth[1] == tuple(stages - 1 - stage for stage in range(stages))
    assert depth[2] == depth[3] == (0,) * stages


@pytest.mark.parametrize(
    ("name", "held"), [("grouped", [7, 5, 3, 1]), ("interleaved", [4, 3, 2, 1]), ("sequential", [1, 1, 1, 1])]
)
def test_micro_batches_held_at_any_instant(name, held):
    plan = find(name).plan(PlanShape(FOUR, 32))
    now, most = [0] * 4, [0] * 4
    for _, _, op in plan.ops():
        now[op.stage] += 1 if str(op)[0] == "F" else -1
        most[op.stage] = max(most[op.stage], now[op.stage])
    assert most == held
    assert now == [0] * 4


@pytest.mark.parametrize("name", ["grouped", "interleaved"])
def test_first_micro_batch_of_four_stages_ends_in_time_step_7(name):
    """The tutorial's figures count a forward and a backward column of a time-step apart: 11 and 8."""
    plan = find(name).plan(PlanShape(FOUR, 8))
    ends = [time_step for time_step, _, op in plan.ops() if str(op) == "B0.0"]
    assert ends == [7]
    kinds = [{str(op)[0] for at, _, op in plan.ops() if at == time_step} for time_step in range(ends[0])]
    apart = [len(columns) if name == "grouped" else 1 for columns in kinds]
    assert sum(apart) + 1 == {"grouped": 11, "interleaved": 8}[name]


@pytest.mark.parametrize(
    ("mapping", "training", "right"),
    [
        ((0, 1, 2, 0, 0, 2, 1, 0), False, (0, 2)),
        ((0, 1, 2, 3, 3, 2, 1, 0), False, (0, 2, 4, 6)),
        ((0, 1, 2, 1, 0, 1), False, (0, 1)),
        ((0, 1), True, (0, 2)),
        ((0, 1, 2), True, (0, 2, 4)),
        ((0, 1, 2), False, (0, 1, 2)),
        ((2, 2, 2), False, (0,)),
        ((0, 1, 2, 0), False, (0, 2)),
    ],
)
def test_interleaved_offsets(mapping, training, right):
    assert offsets(PlanShape(mapping, 1, training)) == right


@pytest.mark.parametrize(("name", "overlap", "count"), [("grouped", 8, 12), ("interleaved", 4, 6), ("grouped", 8, 4)])
def test_count_that_is_no_multiple(name, overlap, count):
    with pytest.raises(CountError) as caught:
        find(name).plan(PlanShape(FOUR, count))
    text = f"The number of iterations of the pipeline must be a multiple of {overlap}, but it is {count}."
    assert str(caught.value) == text + ALSO_CALLED


def test_count_of_zero():
    with pytest.raises(CountError) as caught:
        find("grouped").plan(PlanShape(FOUR, 0))
    text = "The number of iterations of the pipeline must be at least 8, but it is 0."
    assert str(caught.value) == text + ALSO_CALLED


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (-8, "gradient_accumulation_count must be >= 0."),
        (2**31, "gradient_accumulation_count must be < max int32."),
    ],
)
def test_count_out_of_range(count, text):
    with pytest.raises(CountError) as caught:
        find("sequential").plan(PlanShape(FOUR, count))
    assert str(caught.value) == text


def test_interleaved_training_refuses_repeated_ipus():
    with pytest.raises(UnsupportedProgramError) as caught:
        find("interleaved").plan(PlanShape((0, 1, 0), 6))
    assert isinstance(caught.value, NotImplementedError)
    assert str(caught.value) == (
        "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same device "
        "for training graphs. Please use a different pipeline schedule."
    )


@pytest.mark.parametrize("name", ["grouped", "interleaved", "sequential"])
def test_a_pipeline_needs_two_stages(name):
    with pytest.raises(ProgramError) as caught:
        find(name).plan(PlanShape((0,), 4))
    assert str(caught.value) == "Pipeline requires at least two computational stages."


def test_single_refuses_two_ipus():
    with pytest.raises(ProgramError, match=r"runs on one IPU, but the stages are mapped to IPUs 0, 1; use 'sharded'"):
        find("single").plan(PlanShape((0, 1), 4))


@pytest.mark.parametrize(
    ("count", "overlap", "right"), [(10, 8, (8, 16)), (3, 8, (8,)), (0, 8, (8,)), (16, 8, (16,)), (-3, 4, (4,))]
)
def test_nearest_counts(count, overlap, right):
    assert nearest_counts(count, overlap) == right
    assert all(near % overlap == 0 for near in right)


def test_unknown_schedule_names_the_near_one():
    with pytest.raises(ProgramError) as caught:
        find("interleved")
    assert str(caught.value) == (
        "expected a schedule out of grouped, interleaved, sequential, sharded, single, got 'interleved'; "
        "did you mean 'interleaved'?"
    )


def test_a_schedule_of_ones_own():
    def backwards_first(shape: PlanShape) -> Plan:
        plan = find("sequential").plan(shape)
        return Plan(
            "mine",
            shape,
            offsets=(0,),
            emitted=plan.emitted,
            fifo_depths=plan.fifo_depths,
            copy_rule=CopyRule.CROSSING,
            table=plan.table,
        )

    mine = Schedule("mine", backwards_first, lambda shape: (0,), True, "as Sequential")
    registry.register(mine)
    try:
        assert find("Mine").plan(PlanShape((0, 1), 2)).schedule == "mine"
        assert registry.names()[-1] == "mine"
        with pytest.raises(ProgramError, match="a schedule named 'mine' exists already"):
            registry.register(mine)
    finally:
        registry.unregister("mine")
    assert "mine" not in registry.names()


@pytest.mark.parametrize(
    ("name", "mode", "used"),
    [
        ("grouped", "Auto", "RecomputeThenBackpropagate"),
        ("grouped", "RecomputeAndBackpropagateInterleaved", "RecomputeAndBackpropagateInterleaved"),
        ("interleaved", "Auto", "RecomputeThenBackpropagate"),
        ("sequential", "Auto", "RecomputeAndBackpropagateInterleaved"),
        ("sharded", "Auto", "RecomputeAndBackpropagateInterleaved"),
    ],
)
def test_recomputation_modes(name, mode, used):
    assert recomputation(mode, find(name).recomputation_modes, name) == used


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        (
            "sequential",
            PlanShape((0, 1), 4, recompute=True),
            "Pipeline schedule Sequential does not support 'Recompute_then_backpropagate' recomputation mode.",
        ),
        (
            "interleaved",
            PlanShape((0, 1), 4, recompute_inline=True),
            "Pipeline schedule Interleaved does not support 'Recompute_and_backpropagate_interleaved' recomputation "
            "mode.",
        ),
    ],
)
def test_recomputation_modes_that_a_schedule_has_not(name, shape, text):
    with pytest.raises(UnsupportedProgramError) as caught:
        find(name).plan(shape)
    assert str(caught.value) == text


def test_recomputation_inside_the_backward_pass_adds_no_operation():
    plain, inline = (find("grouped").plan(PlanShape(FOUR, 8, recompute_inline=again)) for again in (False, True))
    assert (plain.table == inline.table).all()
    text = format_grid(inline)
    assert "training with recomputation inside backward" in text
    assert parse_grid(text) == inline
