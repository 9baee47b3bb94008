"""Concurrent stages: where they run, what moves, what it takes, and that they learn what branches in turn learn."""

import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.pipeline.check import violations
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import SpanKind
from tests.plans import order_violations, parse_grid

#: Graphcore's layout of three stages on IPUs 0, all, 1 (Interleaved, training, count 6): F1 as its parts run.
ALL = ". F1.0 . F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 F1.4 B1.3 F1.5 B1.4 . B1.5 . . ."
IPU_0 = "F0.0 . F0.1 . F0.2 B0.0 F0.3 B0.1 F0.4 B0.2 F0.5 B0.3 . B0.4 . B0.5 . ."
IPU_1 = ". . F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3 F2.4 B2.4 F2.5 B2.5 . . . ."

LAYERS = """
system: {name: m2000, auto_select_ipus: 4}
data: {type: synthetic, shape: [6], classes: 3, samples: 96, hold_out: 16}
model:
  layers:
    - {name: a, type: dense, units: 7, activation: tanh}
    - name: heads
      type: parallel
      branches:
        - [{name: left, type: dense, units: 5, activation: tanh}, {name: drop, type: dropout, rate: 0.2}]
        - [{name: right, type: dense, units: 3}]
        - [{name: gate, type: dense, units: 2, activation: sigmoid}, {name: more, type: dense, units: 4}]
    - {name: b, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  schedule: grouped
  splits: [heads, b]
  device_mapping: [0, [1, 2, 0], 3]
  micro_batch_size: 4
  gradient_accumulation_count: 12
  repeat_count: 2
optimizer: {type: momentum, learning_rate: 0.1, momentum: 0.5}
precision: float64
steps: 2
"""
TIMED = """
system: {name: free, auto_select_ipus: 4}
pipeline:
  gradient_accumulation_count: 8
  device_mapping: [0, [1, 2], 3]
  stages:
    - {name: a, forward: 1000, backward: 2000, output_bytes: 1000 B, stash_bytes: 10 B}
    - - {name: b, forward: 700, backward: 1500, output_bytes: 300 B, gradient_bytes: 1000 B, stash_bytes: 10 B}
      - {name: c, forward: 1000, backward: 2000, output_bytes: 100 B, gradient_bytes: 1000 B, stash_bytes: 10 B}
    - {name: d, forward: 1000, backward: 2000, gradient_bytes: 400 B, stash_bytes: 10 B}
"""


def test_the_compilers_own_layout():
    shape = PlanShape(mapping=(0, 2, 3, 1), micro_batches=6, sizes=(1, 2, 1))
    plan = plan_of(find("interleaved"), shape)
    assert plan.offsets == (0, 2, 4)
    assert plan.emitted == 18
    cells = plan.cells()
    for stage, (ipu, row) in enumerate(((0, IPU_0), (2, ALL), (3, ALL), (1, IPU_1))):
        for time_step, text in enumerate(row.split()):
            expected = [] if text == "." else [Op.parse(text)._replace(stage=stage)]
            assert cells.get((time_step, ipu), []) == expected, (ipu, time_step)


@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential", "sharded"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("mapping", "sizes"), [((0, 1, 2, 3), (1, 2, 1)), ((0, 0, 1, 2, 3, 1), (1, 4, 1))])
def test_plans_keep_every_rule_and_are_read_back(schedule, training, mapping, sizes):
    if schedule == "interleaved" and training and mapping[0] == mapping[1]:
        mapping = (0, 1, 2, 3, 4, 5)  # it has no two stages on one IPU
    recompute = training and schedule in ("grouped", "interleaved")
    plan = plan_of(
        find(schedule),
        PlanShape(mapping=mapping, micro_batches=12, training=training, recompute=recompute, sizes=sizes),
    )
    assert not violations(plan)
    assert not order_violations(plan)
    assert parse_grid(format_grid(plan)) == plan
    forward = [op for *_, op in plan.ops() if op.kind == Pass.FORWARD]
    assert len(forward) == 12 * len(mapping)


def test_fifos_are_as_deep_as_the_places_behind_them():
    for schedule, factor in (("grouped", 2), ("interleaved", 1)):
        plan = plan_of(find(schedule), PlanShape(mapping=(0, 1, 2, 3, 4), micro_batches=12, sizes=(1, 3, 1)))
        assert plan.fifo_depths == (2 * factor, factor, factor, factor, 0)


def test_time_is_that_of_a_pipeline_with_as_many_places(load):
    """Three places of 1,000 and 2,000 cycles: (G + N - 1)(f + b) under Grouped; the shorter branch waits."""
    together = execute(load(TIMED, "pipeline.gradient_accumulation_count=24")).summary
    assert together.makespan_cycles == (24 + 3 - 1) * 3000
    in_turn = TIMED.replace("    - - {name: b", "    - {name: b").replace("      - {name: c", "    - {name: c")
    longer = execute(load(in_turn, "pipeline.device_mapping=[0, 1, 2, 3]", "pipeline.gradient_accumulation_count=24"))
    assert longer.summary.makespan_cycles == (24 + 4 - 1) * 3000


def test_every_part_gets_the_whole_input_and_its_part_of_the_gradient(load):
    text = TIMED.replace("free", "m2000")
    experiment = load(text, "pipeline.gradient_accumulation_count=6")
    result = execute(experiment)
    used = next(report for report in result.summary.selection_orders if report.used)
    found = {(route.source, route.target): route.bytes for route in used.routes}
    assert found == {
        (0, 1): 1000,
        (0, 2): 1000,
        (1, 3): 300,
        (2, 3): 100,
        (3, 1): 300,  # 400 bytes in the proportion of what b and c had put out
        (3, 2): 100,
        (1, 0): 1000,
        (2, 0): 1000,
    }
    exchange = result.timeline.rows(SpanKind.EXCHANGE)
    assert set(result.timeline.bytes[exchange].tolist()) == {sum(found.values())}


def test_layers_send_what_their_arrays_hold(load):
    """4 samples of float64; int32 labels go with the first branch alone."""
    profiles = load(LAYERS).program.stages
    assert [each.name for each in profiles] == ["stage0", "stage1a", "stage1b", "stage1c", "stage2"]
    labels = 4 * 4
    assert [each.output_bytes for each in profiles] == [4 * 7 * 8 + labels, 4 * 5 * 8 + labels, 4 * 3 * 8, 4 * 4 * 8, 0]
    assert [each.gradient_bytes for each in profiles] == [0, 4 * 7 * 8, 4 * 7 * 8, 4 * 7 * 8, 4 * 12 * 8]


def test_phases_count_concurrent_stages_once(load):
    phases = execute(load(TIMED, "pipeline.gradient_accumulation_count=12")).summary.phases
    assert [(phase.name, phase.first_time_step, phase.last_time_step) for phase in phases] == [
        ("ramp-up", 0, 4),
        ("main", 5, 11),
        ("ramp-down", 12, 17),
    ]


def test_auto_sees_that_they_are_on_several_ipus(load):
    system = load(TIMED.replace("free", "m2000"), "pipeline.gradient_accumulation_count=6").system
    assert system.selection_order == "ZIGZAG"
    assert system.order_reason == "AUTO takes ZIGZAG because stage 1 of the pipeline sits on several IPUs."


LISTS = "Pipeline stage list and device_id list must be the same length."
LAST = "    - {name: d, forward: 1000, backward: 2000, gradient_bytes: 400 B, stash_bytes: 10 B}\n"
TWICE = TIMED.replace(LAST, f"    - [{{name: e, forward: 1}}, {{name: f, forward: 1}}]\n{LAST}")


@pytest.mark.parametrize(
    ("text", "mapping", "place", "message"),
    [
        (
            TIMED,
            "[0, 1, 3]",
            ".1",
            "When the pipeline stage is a list of functions, the device mapping must also be a list of device IDs.",
        ),
        (TIMED, "[0, [1, 2, 3], 3]", ".1", LISTS),
        (LAYERS, "[0, [1, 2], 3]", ".1", LISTS),
        (
            TIMED,
            "[0, [1, 2], [3]]",
            ".2",
            "expected one IPU for a stage that is no single layer of type parallel, got [3]",
        ),
        (TIMED, "[0, [1, 1], 3]", "", "expected concurrent stages on an IPU each, got IPUs 1, 1"),
        (
            TIMED,
            "[0, [1, 4], 3]",
            ".1.1",
            "expected an IPU from 0 to 3 of the device's 4, got 4; use a larger device, or another IPU",
        ),
        (TIMED, "[0, [1, 2]]", "", "Each stage must be mapped to an IPU: 2 mappings != 3 stages"),
        (
            TIMED.replace(LAST, ""),
            "[0, [1, 2]]",
            "",
            "expected a single stage at either end of the pipeline, got concurrent stages",
        ),
    ],
)
def test_what_is_refused(load, text, mapping, place, message):
    assert (f"pipeline.device_mapping{place}", message) in problems_of(load, text, mapping, "grouped")


def problems_of(load, text, mapping, schedule):
    changes = f"pipeline.device_mapping={mapping}", f"pipeline.schedule={schedule}"
    with pytest.raises(ScenarioError) as caught:
        load(text, *changes, "pipeline.gradient_accumulation_count=6")
    return [(problem.key, problem.text) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "mapping"), [(TWICE, "[0, [1, 2], [1, 2], 3]"), (LAYERS, "[0, [1, 2, 0], 3]")], ids=["in a row", "apart"]
)
def test_interleaved_training_refuses_two_parts_on_an_ipu(load, text, mapping):
    """In Graphcore's compiler all parts of a stage are on one device, so that two such stages are on the same."""
    assert problems_of(load, text, mapping, "interleaved") == [
        (
            "pipeline.device_mapping",
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
            "device for training graphs. Please use a different pipeline schedule.",
        )
    ]
    inference = ("training=false", "optimizer=null", "pipeline.schedule=interleaved")
    assert not load(LAYERS, *inference).program.shape.training
