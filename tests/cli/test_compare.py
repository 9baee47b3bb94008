"""`ipusim compare` of scenarios and run folders: its words, its files, and its table in 80 columns."""

import json
import shutil
from itertools import product

import pytest

from ipusim.schedules.registry import names
from tests.cli.commands import answer, ipusim, leave_charts_out, refusal
from tests.cli.pages import ROOT
from tests.schedules import is_a_v, takes_one_chunk, takes_one_stage

SCENARIOS = ROOT / "scenarios"
SMALL, MEMORY, ORDERS = (
    SCENARIOS / f"{name}.yaml" for name in ("schedules_four_ipus", "memory_by_schedule", "selection_orders")
)
DIGITS = SCENARIOS / "digits_training.yaml"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "kept"
    with pytest.MonkeyPatch.context() as patch:
        leave_charts_out(patch)
        done = ipusim("run", MEMORY, "--set", "pipeline.schedule=interleaved", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


def rows_of(folder):
    return json.loads((folder / "comparison.json").read_text())


@pytest.mark.usefixtures("without_pixels")
def test_scenarios_and_folders_stand_side_by_side(kept, tmp_path):
    done = answer("compare", MEMORY, kept, SMALL, "--schedules", "grouped,sharded", "--out", tmp_path)
    best, why, *_ = done.splitlines()
    assert best.startswith(
        "Best of the runs that fit: schedules_four_ipus.yaml, grouped in lock-step, 317,612 samples/s; "
    )
    assert why == "Work per weight update differs, from 8 to 16 samples: throughput decides, in samples/s."
    rows = rows_of(tmp_path)
    assert [row["name"] for row in rows] == [
        "memory_by_schedule.yaml, grouped",
        "memory_by_schedule.yaml, sharded",
        "kept, interleaved",
        "schedules_four_ipus.yaml, grouped",
        "schedules_four_ipus.yaml, sharded",
    ]
    assert [row["fits"] for row in rows] == ["does not fit", "fits", "fits", "not known", "not known"]
    assert [row["memory"] is None for row in rows] == [False, False, False, True, True]
    summary = json.loads((kept / "summary.json").read_text())
    assert {key: summary[key] for key in rows[2]["summary"]} == rows[2]["summary"]
    svg = (tmp_path / "comparison.svg").read_text()
    assert "memory_by_schedule.yaml, grouped in lock-step: " in svg
    assert "; out of memory by 175 MiB" in svg
    assert ">memory<" in svg
    assert "; memory is not known" in svg


@pytest.mark.usefixtures("without_pixels")
def test_a_folder_without_memory_over_time_says_so(kept, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(kept, old)
    (old / "memory.npz").unlink()
    answer("compare", MEMORY, old, "--out", tmp_path)
    assert [row["memory"]["fits"] for row in rows_of(tmp_path)] == ["does not fit", "fits"]
    svg = (tmp_path / "comparison.svg").read_text()
    assert svg.count("; memory over time is not in its folder") == 1
    assert svg.count(">memory<") == 1


@pytest.mark.usefixtures("without_charts")
def test_several_orders_have_a_map_of_the_links(tmp_path):
    done = answer("compare", ORDERS, "--orders", "SNAKE,HOOF", "--out", tmp_path)
    files = ["comparison.json", "comparison.png", "comparison.svg", "links.png", "links.svg"]
    assert done.endswith(f": {', '.join(files)}\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == files
    done = ipusim("compare", ORDERS, "--orders", "SNAKE", "--out", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == files[:3]


@pytest.mark.usefixtures("without_charts")
def test_every_schedule_may_be_compared_and_those_that_refuse_say_why(tmp_path):
    """Two stages of each of two IPUs, which not every schedule can lay out."""
    two = ("--set", "pipeline.device_mapping=[0,1,0,1]", "--set", "system.auto_select_ipus=2")
    modes = {"lock_step": "lock-step", "point_to_point": "point-to-point"}
    done = answer("compare", SMALL, "--schedules", "all", "--sync", ",".join(modes), *two, "--out", tmp_path)
    rows = rows_of(tmp_path)
    assert [(row["schedule"], row["sync"]) for row in rows] == [*product(names(), modes)]
    refused = {row["schedule"] for row in rows if row["refusal"]}
    refusing = (takes_one_chunk, takes_one_stage, is_a_v)
    assert refused == {"single", *(name for name in names() if any(of(name) for of in refusing))}
    text = " ".join(done.split())
    for row in rows:
        assert (row["summary"] is None) == bool(row["refusal"])
        if row["refusal"]:
            assert f"{row['schedule']} in {modes[row['sync']]}: refused: {row['refusal']}" in text


@pytest.mark.usefixtures("without_charts")
def test_results_of_several_go_to_a_folder_of_their_own(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(SMALL.read_text())
    done = answer("compare", "a.yaml", "b.yaml", cwd=tmp_path)
    assert done.endswith("reports/comparison: comparison.json, comparison.png, comparison.svg\n")
    assert "Best: a (grouped in lock-step), 25.19 us per weight update; as fast as b." in done


@pytest.mark.usefixtures("without_charts")
def test_losses_are_compared_where_they_are_wanted(tmp_path):
    words = ("compare", DIGITS, "--schedules", "grouped,interleaved", "--set", "steps=1", "--out", tmp_path)
    assert ipusim(*words).returncode == 0
    timed = rows_of(tmp_path)
    assert [row["mean_loss"] for row in timed] == [None, None]
    done = ipusim(*words, "--losses")
    computed = rows_of(tmp_path)
    assert [row["summary"] for row in timed] == [row["summary"] for row in computed]
    for row in computed:
        assert f"{row['mean_loss']:.4g}" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("{kept}", "{empty}"),
            "{empty}: expected a run folder, with summary.json and timeline.npz, got none with summary.json or "
            "timeline.npz\n",
        ),
        (
            ("{kept}", "{kept}", "--set", "steps=1"),
            "--set: expected a scenario with keys to change, got run folders\n",
        ),
        (
            ("{kept}", "{kept}", "--disturbances", "[]"),
            "--disturbances: expected a scenario with keys to change, got run folders\n",
        ),
        (("{small}", "--disturbances", "x"), "--disturbances: got 'x'; expected a list of 0 to 1024 items, each a"),
        (
            ("{small}", "--sync", "lock_step,"),
            "--sync: expected entries separated by single commas, got an empty entry in 'lock_step,'\n",
        ),
        (("{small}", "{empty}/none.yaml"), "{empty}/none.yaml"),
        (
            ("{small}", "--sync", "lockstep"),
            "--sync: expected a sync mode out of lock_step, point_to_point, got 'lockstep'; "
            "did you mean 'lock_step'?\n",
        ),
    ],
)
def test_mistakes_are_one_message(kept, tmp_path, words, text):
    (tmp_path / "empty").mkdir()
    names = {"kept": kept, "small": SMALL, "empty": tmp_path / "empty"}
    done = refusal("compare", *(word.format(**names) for word in words), "--out", tmp_path / "out")
    assert done.startswith(text.format(**names))
    assert not (tmp_path / "out").exists()


def test_all_mistakes_of_all_scenarios_are_told_at_once(tmp_path):
    for name, text in (("a", "gradient_accumulation_count: 0"), ("b", "schedule: groupd")):
        (tmp_path / f"{name}.yaml").write_text(f"system: {{name: free}}\npipeline:\n  {text}\n")
    done = refusal("compare", "a.yaml", "b.yaml", cwd=tmp_path)
    assert "a.yaml:3:" in done
    assert "b.yaml:3:" in done


@pytest.mark.usefixtures("without_charts")
def test_where_no_run_is_possible_each_file_says_why_at_its_place(tmp_path):
    for name in ("a", "b"):
        text = SMALL.read_text().replace("gradient_accumulation_count: 8", "gradient_accumulation_count: 9")
        (tmp_path / f"{name}.yaml").write_text(text)
    done = refusal("compare", "a.yaml", "b.yaml", cwd=tmp_path)
    first, second = done.splitlines()
    assert first.startswith("a.yaml:9:32: pipeline.gradient_accumulation_count: ")
    assert second.startswith("b.yaml:9:32: pipeline.gradient_accumulation_count: ")
    varied = refusal("compare", "a.yaml", "--schedules", "interleaved,grouped", cwd=tmp_path)
    assert varied.startswith("a.yaml:9:32: ")
