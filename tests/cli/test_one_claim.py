"""One claim, one value: the comparison with one IPU in the run, its page, its summary and a suggestion."""

import json

import pytest

from ipusim.api import assemble, execute
from ipusim.app.scenario.load import load_job, load_request
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import suggest
from ipusim.app.suggest.words import verdict as words_of_suggestion
from tests.cli.commands import ipusim
from tests.effort import rarest
from tests.scenarios import SCENARIOS


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    "name", ["digits_training", "data_parallel_4x4", pytest.param("gpt2", marks=rarest), "schedules_four_ipus"]
)
def test_run_its_page_its_summary_and_suggest_give_one_comparison(name, tmp_path):
    path, folder = SCENARIOS / f"{name}.yaml", tmp_path / "run"
    model_off = ("--set", "numerics=off") if name != "schedules_four_ipus" else ()
    printed = " ".join(ipusim("run", path, *model_off, "--out", folder).stdout.split())
    said = json.loads((folder / "summary.json").read_text())
    found, seconds = said["verdict"], said["verdict"]["single_ipu_cycles"] / said["clock_hz"]
    times = f"{found['speed_up']:.2f}"
    assert f"against one IPU {times} times as fast: one IPU " in printed
    assert ipusim("report", folder).returncode == 0
    page = (folder / "report.html").read_text()
    assert f'"label":"against one IPU","value":"{times} ×","note":"one IPU ' in page
    request = load_request(path)
    own = load_job(path, ["memory=report", *(["numerics=off"] if model_off else [])])
    limits = Limits(
        schedules=(own.schedule.name,),
        replicas=(own.system.replicas,),
        stages=(own.program.shape.stages,),
        ipus=(own.system.count,),
        recompute=("yes" if own.plan.shape.recompute or own.plan.shape.recompute_inline else "no",),
        offload=("no",),
    )
    suggestion = suggest(request, limits, runners_up=0)
    line = next(line for line in words_of_suggestion(suggestion) if line.startswith("Against one IPU: "))
    assert suggestion.verdict.single_ipu_cycles / own.system.clock_hz == pytest.approx(seconds, rel=1e-12)
    assert line.split(": ")[-1].removesuffix(".") in printed  # the speed-up is that of the suggested plan
    run = execute(assemble(suggestion.request.replace({} if not model_off else {"numerics": "off"}))).summary
    assert run.verdict.speed_up == suggestion.verdict.speed_up


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("other", ["interleaved", "1f1b"])
def test_a_page_of_runs_in_two_sync_modes_says_what_point_to_point_idealises(other, tmp_path):
    folders = [tmp_path / name for name in ("grouped", other)]
    for folder in folders:
        ipusim(
            "run", SCENARIOS / "schedules_four_ipus.yaml", "--set", f"pipeline.schedule={folder.name}", "--out", folder
        )
    assert ipusim("report", *folders, "--out", tmp_path / "page.html").returncode == 0
    note = (
        "Runs. Point-to-point is an idealised machine: IPUs meet only after weight updates, and each tensor is copied "
        "separately"
    )
    assert (note in (tmp_path / "page.html").read_text()) == (other == "1f1b")


@pytest.mark.usefixtures("without_charts")
def test_a_folder_of_an_older_version_is_not_compared_with_one_ipu(tmp_path):
    ipusim("run", SCENARIOS / "schedules_four_ipus.yaml", "--out", tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 3}))
    assert ipusim("report", tmp_path / "run").returncode == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"label":"against one IPU","value":"not known","note":"an older version wrote the run folder"' in page
