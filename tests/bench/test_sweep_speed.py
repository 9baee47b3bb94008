"""What a sweep costs beside its points, each tried alone."""

import resource
import subprocess
import sys

import pytest

from ipusim.app.scenario import load_request
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.outcome import outcome_of
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from tests.scenarios import SCENARIOS

COUNT = "pipeline.gradient_accumulation_count"


@pytest.mark.stable
def test_a_sweep_costs_little_beside_its_points(ratio):
    """100 counts of the four-IPU scenario by one worker, against as many trials alone: 0.8 of their time here.

    A second worker is not measured: its start takes longer than all of these points.
    """
    request, axes = load_request(SCENARIOS / "schedules_four_ipus.yaml"), axes_of({COUNT: "40..4000+40"})
    points = []
    found = ratio(
        "a sweep of 100 counts against its points",
        lambda: points.append(sweep(request, axes, crew=Crew(workers=1)).finished_points),
        lambda: [outcome_of(request, {COUNT: count}) for count in range(40, 4001, 40)],
        rounds=2,
    )
    assert len(points[-1]) == 100
    assert found <= 1.5


def test_a_thousand_seeds_cost_a_few_commands(tmp_path):
    """1,000 seeds of 16 IPUs and 256 micro-batches, against ``ipusim run`` of one: 1.7 times its time here."""
    path = tmp_path / "jitter.yaml"
    stages = "".join(
        f"    - {{name: s{stage}, forward: 20000, backward: 40000, output_bytes: 20000}}\n" for stage in range(16)
    )
    path.write_text(
        "system: {name: bow_pod64}\ndisturbances: [{jitter: 5 %}]\npipeline:\n  schedule: 1f1b\n"
        f"  gradient_accumulation_count: 256\n  stages:\n{stages}"
    )

    def processor_time(*words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "ipusim", *map(str, words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    run = processor_time("run", path, "--out", tmp_path / "run")
    seeds = processor_time("sweep", path, "--seeds", 1000, "--out", tmp_path / "seeds")
    print(f"\n1,000 seeds against one run: {seeds:.2f} s against {run:.2f} s: {seeds / run:.2f} x")
    assert seeds <= 5 * run
