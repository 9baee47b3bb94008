"""Several stages on each IPU by one key: where they run, and what is refused."""

import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.runs.execute import execute

SCENARIO = """
system: {name: free}
pipeline:
  schedule: interleaved_1f1b
  gradient_accumulation_count: 8
  stages:
"""
STAGES = "".join(f"    - {{name: s{stage}, forward: 10, backward: 20, output_bytes: 8}}\n" for stage in range(8))


@pytest.mark.parametrize(
    ("virtual", "mapping", "ramp"),
    [(1, (0, 1, 2, 3, 4, 5, 6, 7), 7), (2, (0, 1, 2, 3) * 2, 3), (4, (0, 1) * 4, 1), (8, (0,) * 8, 0)],
)
def test_stages_go_round_the_ipus(load, virtual, mapping, ramp):
    """The ramps of interleaved 1F1B are as many passes of one stage as there are further IPUs."""
    job = load(SCENARIO + STAGES, f"pipeline.virtual_stages={virtual}")
    assert (job.program.shape.mapping, execute(job).summary.makespan_cycles) == (mapping, (8 * virtual + ramp) * 30)
    assert job.system.count == max(mapping) + 1
    listed = load(SCENARIO + STAGES, f"pipeline.device_mapping={list(mapping)}")
    assert listed.plan == job.plan
    both = load(SCENARIO + STAGES, f"pipeline.virtual_stages={virtual}", f"pipeline.device_mapping={list(mapping)}")
    assert both.plan == job.plan


def test_gpipe_names_neighbouring_stages_that_run_one_after_the_other(load):
    """All micro-batches run through ``s0`` first: IPU 1 begins 8 passes later than with one stage in place of both."""
    pairs, around = (
        "pipeline.device_mapping=[0, 0, 1, 1, 2, 2, 3, 3]",
        "pipeline.device_mapping=[0, 1, 2, 3, 0, 1, 2, 3]",
    )
    (note,) = load(SCENARIO + STAGES, "pipeline.schedule=gpipe", pairs).notes
    assert note == (
        "gpipe runs all micro-batches through a stage before the next stage of the same IPU, such as s0 and s1 on IPU "
        "0: one stage in place of both would send the first micro-batch on sooner."
    )
    single = "pipeline.gradient_accumulation_count=1"
    for other in (("gpipe", around), ("gpipe", pairs, single), ("1f1b", pairs), ("breadth_first", pairs)):
        assert load(SCENARIO + STAGES, f"pipeline.schedule={other[0]}", *other[1:]).notes == ()


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (
            ["pipeline.virtual_stages=3"],
            "virtual_stages",
            "expected a number that divides the 8 stages, got 3; cut the model into 6 or 9 stages, or leave it out",
        ),
        (
            ["pipeline.virtual_stages=2", "pipeline.device_mapping=[0, 1, 2, 3, 3, 2, 1, 0]"],
            "virtual_stages",
            "expected a device_mapping of 0, 1, 2, 3, 0, 1, 2, 3 with 2 virtual stages on each IPU, got "
            "0, 1, 2, 3, 3, 2, 1, 0: leave one of the two out",
        ),
        (
            ["pipeline.virtual_stages=2", "pipeline.device_mapping=[0, [1, 2], 3, 0, 1, 2, 3, 0]"],
            "virtual_stages",
            "expected no virtual stages with concurrent stages, got both: give device_mapping",
        ),
        (
            ["pipeline.virtual_stages=2", "pipeline.stages.7=[{name: a, forward: 1}, {name: b, forward: 1}]"],
            "virtual_stages",
            "expected no virtual stages with concurrent stages, got both: give device_mapping",
        ),
        (["pipeline.virtual_stages=0"], "virtual_stages", "expected a whole number from 1 to 256, got 0"),
        (["pipeline.device_mapping=w"], "device_mapping", "expected v, got 'w'"),
        (
            ["pipeline.schedule=zbv", "pipeline.device_mapping=[0, 1, 2, 3, 0, 1, 2, 3]"],
            "device_mapping",
            "The schedule 'zbv' needs stages that go over all IPUs and back, such as 0, 1, 1, 0 (device_mapping: v); "
            "the mapping is 0, 1, 2, 3, 0, 1, 2, 3.",
        ),
    ],
)
def test_what_does_not_go_round_and_what_is_no_v_is_refused(load, overrides, key, text):
    with pytest.raises(ScenarioError) as caught:
        load(SCENARIO + STAGES, *overrides)
    assert [(each.key, each.text) for each in caught.value.problems] == [(f"pipeline.{key}", text)]


def test_a_device_holds_the_ipus_and_not_the_stages(load):
    with pytest.raises(ScenarioError, match="expected a device of 4 IPUs for 8 stages, got a device of 2"):
        load(SCENARIO + STAGES, "pipeline.virtual_stages=2", "system.auto_select_ipus=2")


def test_a_v_is_said_by_its_letter_and_is_where_its_schedule_runs(load):
    back = (0, 1, 2, 3, 3, 2, 1, 0)
    assert load(SCENARIO + STAGES, "pipeline.schedule=zbv").program.shape.mapping == back
    assert load(SCENARIO + STAGES, "pipeline.schedule=zbv", "pipeline.virtual_stages=2").program.shape.mapping == back
    assert load(SCENARIO + STAGES, "pipeline.schedule=gpipe", "pipeline.device_mapping=v").program.shape.mapping == back
    waves = load(SCENARIO + STAGES, "pipeline.schedule=gpipe", "pipeline.device_mapping=v", "pipeline.virtual_stages=4")
    assert waves.program.shape.mapping == (0, 1, 1, 0, 0, 1, 1, 0)


def test_an_odd_number_of_stages_makes_no_v(load):
    scenario = SCENARIO + "".join(STAGES.splitlines(keepends=True)[:7])
    for override in ("pipeline.schedule=zbv", "pipeline.device_mapping=v"):
        with pytest.raises(ScenarioError, match=r"an even number of stages|has 2 stages on each IPU, got 7 stages"):
            load(scenario, override)
