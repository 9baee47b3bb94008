"""Why a run takes as long as it does, as the command line says it."""

import json
import re
import shutil

import pytest

from ipusim.runs.yaml_text import dump
from tests.cli.commands import answer, ipusim, refusal
from tests.scenarios import SCENARIOS, timed

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
TUTORIAL = SCENARIOS / "tutorial_step3_pipelining.yaml"


@pytest.mark.parametrize(
    ("disturbances", "title", "first_cells"),
    [
        ([], "Time of each IPU, the same in replicas 0 and 1; 100% is ", ["0 s0", "1 s1"]),
        ([{"ipu": 2, "slower": 2}], "Time of each IPU; 100% is ", ["0 0 s0", "1 0 and 1 s1", "0 1 s0"]),
    ],
    ids=["equal", "one_is_slow"],
)
def test_equal_ipus_of_replicas_are_one_row_in_words_and_all_rows_in_files(tmp_path, disturbances, title, first_cells):
    changes = {"system": {"name": "m2000", "auto_select_ipus": 4}, "disturbances": disturbances}
    (tmp_path / "four.yaml").write_text(dump(timed(2) | changes))
    words = ["explain", "four.yaml", "--out", "out"]
    told = ipusim(*words, cwd=tmp_path, pictures=False).stdout
    table = told.partition(title)[2].partition("Critical path")[0]
    rows = [" ".join(line.split()) for line in table.splitlines() if "%" in line]
    assert [re.match("[^%]*?(?= [0-9.]+%)", row)[0] for row in rows] == first_cells
    assert [row["ipu"] for row in json.loads((tmp_path / "out/explanation.json").read_text())["ipus"]] == [0, 1, 2, 3]
    assert ipusim(*words, "--csv", cwd=tmp_path, pictures=False).stdout.count("\n") == 5


def test_explain_names_the_growth_of_the_run_with_each_pass(tmp_path):
    data = timed(4) | {"system": {"name": "free"}}
    data["pipeline"] |= {"schedule": "1f1b", "gradient_accumulation_count": 16}
    (tmp_path / "four.yaml").write_text(dump(data))
    told = ipusim("explain", "four.yaml", "--out", "four", cwd=tmp_path, pictures=False).stdout
    assert (
        "Cycles by which the run grows if all passes of a stage and kind take one cycle more (+1), or shrinks if one "
        "cycle less (-1)" in told
    )
    said = json.loads((tmp_path / "four/explanation.json").read_text())
    assert said["sensitivities"]["grows"] == {kind: [13, 14, 15, 16] for kind in ("forward", "backward")}
    whole = (16 + 3) * 3_000
    assert [sum(ipu["cycles"].values()) for ipu in said["ipus"]] == [said["window_cycles"]] * 4 == [whole] * 4
    assert sum(said["waterfall"]["cycles"].values()) == whole
    assert sum(part["cycles"] for part in said["critical_path"]["parts"]) == said["critical_path"]["cycles"] == whole


def test_explain_says_why_the_growth_is_not_known(tmp_path):
    told = ipusim("explain", SCENARIOS / "host_embedding.yaml", "--out", tmp_path, pictures=False).stdout
    reason = "it has tables on the host, whose look-ups are served in order of arrival"
    assert f"The sensitivity of the run to a cycle of each pass is not known: {reason}." in told
    assert json.loads((tmp_path / "explanation.json").read_text())["sensitivities"]["unknown"] == reason


def test_a_run_folder_is_explained_as_its_scenario_is(tmp_path):
    fewer = ("steps=1", "pipeline.repeat_count=2", "pipeline.gradient_accumulation_count=4")
    few = [word for each in fewer for word in ("--set", each)]
    assert ipusim("run", TUTORIAL, *few, "--out", tmp_path / "run", "--quiet", pictures=False).stdout == ""
    of_folder = answer("explain", tmp_path / "run")
    of_scenario = ipusim("explain", TUTORIAL, *few, "--out", tmp_path / "other")
    assert of_folder.splitlines()[:-1] == of_scenario.stdout.splitlines()[:-1]
    for name in ("explanation.json", "idle_causes.png", "critical_path.png"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    printed = ipusim("explain", tmp_path / "run", "--json", "--execution", 1, pictures=False)
    assert printed.stdout == (tmp_path / "run" / "explanation.json").read_text()
    assert json.loads(printed.stdout)["execution"] == 1


@pytest.mark.usefixtures("without_charts")
def test_changes_of_ones_own_are_tried_alone_and_together(tmp_path):
    wanted = (
        "pipeline.gradient_accumulation_count=128",
        "pipeline.stages.stage0.forward=x0.5 steps=2",
        "pipeline.stages.stage3.backward=x2",
    )
    words = [word for each in wanted for word in ("--what", each)]
    done = answer("explain", FOUR, *words, "--out", tmp_path)
    said = json.loads((tmp_path / "explanation.json").read_text())
    assert [each["change"] for each in said["what_if"]] == [*wanted]
    assert len(said["pairs"]) == 3
    for each in (*wanted, "What if; the present run takes 3.148 us per sample", "Two changes at once"):
        assert each in done
    assert "Changes that help" not in done


@pytest.mark.usefixtures("without_charts")
def test_equal_stages_that_wait_for_the_host_instead_say_why_they_save_nothing(tmp_path):
    """IPU 0 waits longer for its data than IPU 1 computes."""
    data = timed(2) | {"infeed": {"element_bytes": 1 << 20}}
    data["pipeline"]["stages"][1] |= {"forward": 40_000, "backward": 80_000}
    (tmp_path / "fed.yaml").write_text(dump(data))
    told = answer("explain", tmp_path / "fed.yaml", "--out", tmp_path / "out")
    assert (
        "\nEqual stages alone are not faster: imbalance of stages (10.8%) is the time that they would save without "
        "copies and sync (0.1%) and host (74.5%).\n"
    ) in told


@pytest.mark.usefixtures("without_charts")
def test_the_words_for_stragglers_are_printed_with_what_they_mean(tmp_path):
    done = answer("explain", FOUR, "--set", "pipeline.stages.stage1.forward=4000", "--stragglers", "--out", tmp_path)
    said = json.loads((tmp_path / "explanation.json").read_text())["stragglers"]
    assert said["slowdown"] == pytest.approx(said["run_cycles"] / said["ideal_cycles"])
    assert said["slowest_ipus"] == [1]
    assert [*said["definitions"]] == ["T_ideal", "S", "S_t", "S_w", "M_W", "M_S"]
    assert f"S is {said['slowdown']:.3f}: the run straggles" in done
    for word in said["definitions"]:
        assert word in done


TWO_EQUAL_STAGES = """\
system: {name: free}
pipeline:
  schedule: gpipe
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 1000, backward: 2000, stash_bytes: 1 KiB}
    - {name: b, forward: 1000, backward: 2000, stash_bytes: 1 KiB}
"""


@pytest.mark.usefixtures("without_charts")
def test_changes_of_a_kind_that_save_as_much_as_its_best_are_named(tmp_path):
    """Two replicas of one IPU take 12,000 of 15,000 cycles, as both schedules of two copies of each stage do."""
    (tmp_path / "equal.yaml").write_text(TWO_EQUAL_STAGES)
    done = ipusim("explain", "equal.yaml", "--out", "out", cwd=tmp_path)
    free = "in point-to-point"
    tied = f"single {free}, 2 replicas, count 2; as fast: dualpipe {free} and chimera {free}"
    named = f"another schedule ({tied}) 20.0%, a larger count ("
    assert f"Changes that save the most time per sample: {named}" in done.stdout


@pytest.mark.usefixtures("without_charts")
def test_nothing_puts_stages_together_where_it_is_not_known_what_they_hold(tmp_path):
    """The same stages without bytes: schedules that put both on one IPU, or a copy of each on both, are left out."""
    (tmp_path / "equal.yaml").write_text(TWO_EQUAL_STAGES.replace(", stash_bytes: 1 KiB", ""))
    done = answer("explain", "equal.yaml", "--out", "out", cwd=tmp_path)
    said = json.loads((tmp_path / "out" / "explanation.json").read_text())
    assert said["fits"] == "not known"
    assert {each["fits"] for each in said["what_if"] if not each["refusal"]} == {"not known"}
    left_out = {
        each["change"] for each in said["what_if"] if each["refusal"].startswith("not tried: stages would share")
    }
    assert {"single in point-to-point", "dualpipe in point-to-point", "chimera in point-to-point"} <= left_out
    advised, _, rest = done.partition("Not tried, because stages would share an IPU, and the memory of stages")
    assert rest
    assert not any(change in advised for change in left_out)
    assert "Memory: not known: the scenario states no memory of its stages." in done
    answer("explain", "equal.yaml", "--what", "pipeline.schedule=single", "--out", "asked", cwd=tmp_path)
    (asked,) = json.loads((tmp_path / "asked" / "explanation.json").read_text())["what_if"]
    assert (asked["fits"], asked["refusal"]) == ("not known", "")


@pytest.mark.usefixtures("without_charts")
def test_a_folder_says_what_its_backward_passes_compute_again(tmp_path):
    """Of 300,000 cycles each of three stages computes activations for 100,000, whether its scenario is there or not."""
    inside = "pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved"
    ipusim("run", SCENARIOS / "recomputation.yaml", "--set", inside, "--out", tmp_path / "run")
    told = []
    for _ in range(2):
        answer("explain", tmp_path / "run", "--out", tmp_path / "out")
        told.append(json.loads((tmp_path / "out" / "explanation.json").read_text())["ipus"])
        (tmp_path / "run" / "scenario.yaml").unlink(missing_ok=True)
    assert told[0] == told[1]
    assert [ipu["cycles"]["computes"] for ipu in told[0]] == [16 * 300_000] * 4


@pytest.mark.usefixtures("without_charts")
def test_the_table_of_changes_has_those_of_the_sentence_and_counts_the_others(tmp_path):
    text = """
system: {name: m2000, auto_select_ipus: 2}
memory: off
pipeline:
  schedule: sequential
  gradient_accumulation_count: 8
  stages:
    - {name: a, forward: 100000, backward: 200000, update: 50000, output_bytes: 64 KiB, stash_bytes: 1 KiB}
    - {name: b, forward: 110000, backward: 220000, gradient_bytes: 64 KiB, stash_bytes: 1 KiB}
"""
    (tmp_path / "two.yaml").write_text(text)
    done = ipusim("explain", "two.yaml", "--out", "out", cwd=tmp_path)
    sentence, table = done.stdout.partition("Changes that save")[2].split("Changes that help", 1)
    assert "faster stages (b 10% faster)" in sentence
    rows = table.partition("Effect of other hardware")[0]
    for change in ("b 10% faster", "pipeline.gradient_accumulation_count=64", "others"):
        assert change in rows


@pytest.mark.usefixtures("without_charts")
def test_schedules_are_tried_in_the_modes_that_are_asked_for(tmp_path):
    done = ipusim("explain", FOUR, "--sync", "lock_step,point_to_point", "--out", tmp_path)
    changes = {each["change"] for each in json.loads((tmp_path / "explanation.json").read_text())["what_if"]}
    assert {"1f1b in lock-step", "1f1b in point-to-point", "grouped in point-to-point"} <= changes
    assert done.returncode == 0
    refused = refusal("explain", FOUR, "--sync", "lockstep")
    assert "--sync: expected lock_step or point_to_point, got 'lockstep'; did you mean lock_step?" in refused


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["missing.yaml"], "missing.yaml"),
        (["run", "--set", "steps=2"], "run: expected a scenario with a key 'steps=2' to change, got a run folder"),
        (["run", "--execution", "4"], "--execution: expected an execution numbered 0, got 4"),
        (
            ["run", "--what", "steps=2", "--sync", "lock_step"],
            "--sync: expected none with --what, whose changes name their own sync modes",
        ),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(four_run, tmp_path, words, text):
    shutil.copytree(four_run, tmp_path / "run")
    assert text in refusal("explain", *words, cwd=tmp_path)
    assert not (tmp_path / "run" / "explanation.json").exists()


@pytest.mark.usefixtures("without_charts")
def test_a_pipeline_slower_than_one_ipu_says_so(tmp_path):
    slow = ("--set", "pipeline.schedule=sharded", "--set", "system.name=c2_server")
    big = [word for each in range(3) for word in ("--set", f"pipeline.stages.stage{each}.output_bytes=4000000")]
    done = ipusim("run", FOUR, *slow, *big, "--out", tmp_path)
    assert "against one IPU" in done.stdout
    assert "slower, 0." in " ".join(done.stdout.split())


@pytest.mark.usefixtures("without_charts")
def test_run_prints_nothing_or_everything_but_not_two_forms(tmp_path):
    assert ipusim("run", FOUR, "--out", tmp_path, "--quiet").stdout == ""
    whole = ipusim("run", FOUR, "--out", tmp_path, "--verbose")
    assert "Time of each IPU" in whole.stdout
    assert "bubble: idle / (IPUs x makespan)" in whole.stdout
    both = refusal("run", FOUR, "--out", tmp_path, "--json", "--quiet")
    assert "--json: expected one of --json and --quiet, got both" in both


def test_gaps_in_main_are_named_and_no_larger_count_is_said_to_help(tmp_path):
    """Of 4,096 micro-batches under Interleaved in lock-step the ramps are 0.1 %, and its forward passes wait."""
    changes = ("--set", "pipeline.schedule=interleaved", "--set", "pipeline.gradient_accumulation_count=4096")
    done = ipusim("explain", FOUR, *changes, "--set", "expect=null", "--out", tmp_path, pictures=False)
    lines = done.stdout.splitlines()
    assert lines[0] == "Time goes into useful compute 75.0%, gaps in main 25.0%, fill and drain 0.1%."
    assert "another schedule" in lines[1]
    assert "larger count" not in lines[1]
    assert lines[2] == "This change saves time mainly in gaps in main (now 25.0% of the time)."
    (no_help,) = (line for line in lines if line.startswith("Also tried, but not faster: "))
    assert "pipeline.gradient_accumulation_count=32768" in no_help
    said = json.loads((tmp_path / "explanation.json").read_text())
    assert said["waterfall"]["cycles"]["gaps_in_main"] == (4096 - 3) * 1_000
    assert all(ipu["cycles"]["gaps_in_main"] == (4096 - 3) * 1_000 for ipu in said["ipus"])


def test_a_folder_of_an_older_version_without_its_scenario_says_what_is_left_out_or_not_known(four_run, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(four_run, older)
    (older / "scenario.yaml").unlink()
    said = json.loads((older / "summary.json").read_text())
    for parts in (said["waterfall"]["cycles"], said["waterfall"]["shares"]):
        parts["fill_and_drain"] += parts.pop("gaps_in_main")
    (older / "summary.json").write_text(json.dumps(said | {"schema_version": 3}))
    done = answer("explain", older, pictures=False)
    assert done.splitlines()[0] == (
        "An older version of ipusim wrote the folder: summary.json, of schema version 3, says only true or false "
        "about whether a program fits, takes the speed-up from the bare arithmetic on one IPU, and counts gaps in main "
        "as fill and drain; its parts of the time are therefore left out."
    )
    assert "Time goes into" not in done
    assert "The effect of changes is not known: this run folder does not hold its scenario." in done
    assert "Changes that help" not in done
    assert json.loads((older / "explanation.json").read_text())["what_if"] is None
