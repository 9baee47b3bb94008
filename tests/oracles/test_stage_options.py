"""availableMemoryProportion: in how many parts an operation runs, what that takes, and what memory it needs."""

from __future__ import annotations

import math

import pytest

from ipusim.hardware.generations import GC200
from ipusim.pipeline.footprint import footprint
from ipusim.runs.execute import execute
from ipusim.scenario import load_job
from ipusim.scenario.problems import ScenarioError
from ipusim.timeline.kinds import SpanKind

SRAM = 1472 * 624 * 1024
SCENARIO = """
system: {name: m2000}
data: {type: synthetic, shape: [6, 6, 1], classes: 3, samples: 96}
model:
  layers:
    - {name: conv, type: conv2d, filters: 8, kernel_size: [3, 3]}
    - {name: flatten, type: flatten}
    - {name: dense, type: dense, units: 40, activation: tanh}
    - {name: logits, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [dense], micro_batch_size: 8, gradient_accumulation_count: 4}
optimizer: {type: sgd, learning_rate: 0.01}
"""


@pytest.fixture
def load(tmp_path):
    def of(*overrides, text=SCENARIO):
        path = tmp_path / "options.yaml"
        path.write_text(text)
        return load_job(path, overrides)

    return of


def options(kind, share):
    return f"{{{kind}_options: {{availableMemoryProportion: {share}}}}}"


def both(name, first, second):
    return f"pipeline.{name}_propagation_stages_poplar_options=[{first}, {second}]"


def lengths(experiment, kind):
    timeline = execute(experiment).timeline
    found = []
    for stage in range(2):
        rows = (timeline.kind == kind) & (timeline.stage == stage)
        found += set((timeline.end[rows] - timeline.start[rows]).tolist())
    return found


@pytest.mark.parametrize("share", [1e-6, 3e-6, 0.6])
def test_an_operation_is_split_until_its_parts_fit(load, share):
    """dense receives 8 samples of 4 x 4 x 8 float32, logits 8 of 40; each further part is one more sync."""
    limited = load(both("forward", "{}", options("matmul", share)))
    plain = load()
    received = [8 * 128 * 4, 8 * 40 * 4]
    parts = [math.ceil(size / (share * SRAM)) for size in received]
    before, after = (lengths(experiment, SpanKind.FORWARD) for experiment in (plain, limited))
    assert after[0] == before[0]
    assert after[1] - before[1] == 150 * (sum(parts) - 2)
    assert GC200.internal_sync_cycles == 150
    temporary = max(-(-size // count) for size, count in zip(received, parts, strict=True))
    held = [execute(experiment).memory.footprint.stages[1].forward for experiment in (plain, limited)]
    assert held[1] - held[0] == temporary
    assert (sum(parts) > 2) == (share < 0.1)


def test_less_memory_takes_more_cycles(load):
    found = []
    for share in (0.6, 3e-6, 1e-6, 5e-7):
        experiment = load(both("forward", "{}", options("matmul", share)))
        stage = execute(experiment).memory.footprint.stages[1]
        found.append((stage.forward, lengths(experiment, SpanKind.FORWARD)[1]))
    assert sorted(found, reverse=True) == found
    assert [cycles for _, cycles in found] == sorted({cycles for _, cycles in found})


def test_each_pass_has_its_own_options(load):
    plain = load()
    forward = load(both("forward", options("convolution", 1e-6), "{}"))
    backward = load(both("backward", options("convolution", 1e-6), "{}"))
    for experiment, changed in ((forward, SpanKind.FORWARD), (backward, SpanKind.BACKWARD)):
        for kind in (SpanKind.FORWARD, SpanKind.BACKWARD):
            before, after = lengths(plain, kind), lengths(experiment, kind)
            assert (after[0] > before[0]) is (kind == changed)
            assert after[1] == before[1]
    assert forward.program.stages[0].forward_temporary_bytes > 0 == forward.program.stages[0].backward_temporary_bytes


def test_options_of_one_kind_leave_the_other_alone(load):
    experiment = load(both("forward", options("matmul", 1e-7), options("convolution", 1e-7)))
    assert lengths(experiment, SpanKind.FORWARD) == lengths(load(), SpanKind.FORWARD)


def test_options_of_the_system_hold_where_a_stage_gives_none(load):
    general = "system.matmuls.poplar_options.availableMemoryProportion=1e-6"
    conv = "system.convolutions.poplar_options.availableMemoryProportion=1e-6"
    by_stage = load(
        both("forward", options("convolution", 1e-6), options("matmul", 1e-6)),
        both("backward", options("convolution", 1e-6), options("matmul", 1e-6)),
    )
    assert load(general, conv).program.stages == by_stage.program.stages
    own = load(general, both("forward", "{}", options("matmul", 0.6))).program.stages[1]
    assert own.forward == load().program.stages[1].forward
    assert own.backward == by_stage.program.stages[1].backward


def test_a_weight_update_without_products_is_left_as_it_is(load):
    change = f"pipeline.weight_update_poplar_options={options('matmul', 1e-7)}"
    assert load(change).program.stages == load().program.stages


def test_without_options_nothing_is_counted(load):
    program = load().program
    for profile in program.stages:
        assert not profile.forward_temporary_bytes
        assert not profile.backward_temporary_bytes
    assert footprint(execute(load()).job.plan, program).stages[1].forward == 0  # the loss leaves by the stream


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_list_of_another_length(load, name):
    key = f"{name}_propagation_stages_poplar_options"
    with pytest.raises(ScenarioError) as caught:
        load(f"pipeline.{key}=[{{}}]")
    (problem,) = caught.value.problems
    assert problem.key == f"pipeline.{key}"
    assert problem.text == (
        f"{key} must be a list or a tuple of PipelineStageOptions objects of length 2 (same number as the number of "
        "computational stages) but is 1."
    )


def test_options_of_given_cycles_are_refused(load):
    cycles = "pipeline.cycles=[{forward: 10}, {forward: 10}]"
    with pytest.raises(ScenarioError) as caught:
        load(cycles, both("forward", "{}", "{}"))
    (problem,) = caught.value.problems
    assert (
        problem.text == "expected no options of operations in stages whose cycles are given, got some: leave them out"
    )
