"""`ipusim check --profile`: measured stages beside what the model is priced at, and what is wrong with a file."""

import re

import pytest

from ipusim.app.fidelity.profile import MeasuredPass, compare_profile, profile_table, words
from ipusim.app.scenario import load_job, load_request
from ipusim.base.errors import OptionError
from ipusim.pipeline.ops import Pass
from tests.cli.commands import answer, ipusim, refusal
from tests.scenarios import SCENARIOS

TUTORIAL = SCENARIOS / "tutorial_step3_pipelining.yaml"


OWN = "profile.csv"


def profile_of(job, times=1):
    """Return as CSV what a job's passes cost, so many times."""
    rows = [
        [job.costs.passes[Pass.FORWARD, stage], job.costs.passes[Pass.BACKWARD, stage], job.costs.updates[ipu]]
        for stage, ipu in enumerate(job.program.shape.mapping)
    ]
    lines = [f"{stage},{','.join(str(cycles * times) for cycles in row)}\n" for stage, row in enumerate(rows)]
    return "stage,forward,backward,update\n" + "".join(lines)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tutorial_step3_pipelining", ()),
        ("digits_training", ()),
        ("zero_bubble", ("pipeline.cycles=null",)),
        ("tutorial_step4_configurable_stages", ()),
    ],
)
def test_what_was_measured_as_it_is_simulated_differs_by_nothing(own, name, changes):
    path = SCENARIOS / f"{name}.yaml"
    job = load_job(path, changes)
    for times, difference in ((1, 0), (2, -0.5), (4, -0.75)):
        passes = compare_profile(load_request(path), own(profile_of(job, times)))
        assert len(passes) == 3 * len(job.program.stages)
        assert [each.stage for each in passes[::3]] == [stage.name for stage in job.program.stages]
        assert [each.name for each in passes[:3]] == ["forward", "backward", "weight update"]
        assert {each.difference for each in passes} == {difference}


def test_halves_are_compared_where_they_were_measured_and_an_inference_by_its_forward_passes(own):
    path = SCENARIOS / "zero_bubble.yaml"
    job = load_job(path, ("pipeline.cycles=null",))
    first, second = (
        [job.costs.passes[kind, stage] for stage in range(4)] for kind in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
    )
    rows = "".join(f"{stage},1,{first[stage]},{second[stage]}\n" for stage in range(4))
    passes = compare_profile(load_request(path), own(f"stage,forward,backward_input,backward_weights\n{rows}"))
    halves = [each for each in passes if each.name != "forward"]
    assert [each.name for each in halves] == ["backward, input", "backward, weights"] * 4
    assert [each.measured for each in halves] == [each.simulated for each in halves]
    assert any(first)
    assert any(second)
    request = load_request(SCENARIOS / "inference.yaml")
    stages = len(load_job(SCENARIOS / "inference.yaml").program.stages)
    measured = own("stage,forward,backward,update\n" + "".join(f"{stage},1,2,3\n" for stage in range(stages)))
    assert [each.name for each in compare_profile(request, measured)] == ["forward"] * stages


def test_on_the_free_machine_an_update_counted_from_layers_costs_nothing(own):
    request = load_request(TUTORIAL, ("system.name=free",))
    passes = compare_profile(request, own("stage,forward,update\n0,1,1\n1,1,1\n"))
    assert [each.simulated for each in passes if each.name == "weight update"] == [0, 0]


def test_the_verdict_is_the_mean_and_the_worst_whatever_the_sign():
    passes = (
        MeasuredPass("a", "forward", 100, 110),
        MeasuredPass("a", "backward", 200, 100),
        MeasuredPass("b", "forward", 1000, 1000),
        MeasuredPass("b", "weight update", 0, 7),
    )
    assert words(passes) == (
        "Simulated passes are 20.0% off the measured ones on average, and 50.0% at worst: backward of a."
    )
    assert words(passes[3:]) == "No measured pass takes any time."
    assert profile_table(passes).rows == (
        ("a", "forward", "100", "110", "+10.0%"),
        ("", "backward", "200", "100", "-50.0%"),
        ("b", "forward", "1,000", "1,000", "+0.0%"),
        ("", "weight update", "0", "7", "-"),
    )


def test_it_prints_the_verdict_and_the_source_then_the_table(own):
    job = load_job(TUTORIAL)
    path = own("stage,forward [us],backward,source\nstage0,2,3 us,PopVision of 3 May\nlast,1,,\n")
    done = answer("check", TUTORIAL, "--profile", path, columns="")
    first, memory, second, *rest = done.splitlines()
    assert first.startswith(f"{TUTORIAL}: 2 stages, ")
    assert memory == (
        "Memory: every IPU fits; the fullest is IPU 0 with 24.88 MiB of 897 MiB; 15.92 MiB of the 24.88 MiB "
        "is code (estimated)."
    )
    assert re.fullmatch(
        r"Simulated passes are \d+\.\d% off .* at worst: (for|back)ward of stage.+\. Source: PopVision of 3 May\.",
        second,
    )
    forward, backward = (job.costs.passes[kind, 0] for kind in (Pass.FORWARD, Pass.BACKWARD))
    # 2 us and 3 us at 1.33 GHz
    for what, measured, simulated in (("forward", 2660, forward), ("backward", 3990, backward)):
        row = rf"{what} +{measured:,} +{simulated:,} +{re.escape(f'{simulated / measured - 1:+.1%}')}"
        assert re.search(row, "\n".join(rest)), row
    assert re.search(
        r"^ stage0 +forward .*\n +backward .*\n stage1 \(last\) +forward +1,330 ", "\n".join(rest), re.MULTILINE
    )


def test_cycles_that_the_scenario_gives_are_left_out_of_what_is_simulated(own):
    path = own(profile_of(load_job(TUTORIAL)))
    for cycles in (path, "[{forward: 7}, {forward: 7}]"):
        done = ipusim("check", TUTORIAL, "--set", f"pipeline.cycles={cycles}", "--profile", path)
        assert "Simulated passes are 0.0% off the measured ones on average, and 0.0% at worst" in done.stdout


def test_a_file_that_is_not_there_and_a_scenario_without_layers_are_refused(own, tmp_path):
    assert (
        refusal("check", TUTORIAL, "--profile", "none.csv", cwd=tmp_path)
        == "none.csv: expected a file, got no such file\n"
    )
    timed = SCENARIOS / "schedules_four_ipus.yaml"
    path = own("stage,forward\n0,1\n")
    done = ipusim("check", timed, "--profile", path)
    text = "expected a scenario with a model, for simulated times of passes, got stages with only costs"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"--profile: {text}\n")
    with pytest.raises(OptionError, match=text):
        compare_profile(load_request(timed), path)
