"""What a change would give, against runs of scenarios in which it has been made."""

import numpy as np
import pytest

from ipusim.analysis.run_times import run_times_of
from ipusim.app.explain.what_if import changes, what_if
from ipusim.app.scenario.load import load_job
from ipusim.machine.simulate import simulate
from ipusim.runs.session import Session
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind, kinds_with
from tests.places import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
SCHEDULES = ("grouped", "interleaved", "sequential", "gpipe", "1f1b")
UNEVEN = ("pipeline.stages.stage2.forward=1600", "pipeline.stages.stage3.backward=2900")


def run_cycles(*overrides):
    job = load_job(FOUR, overrides)
    return run_times_of(Session(job).run(job.executions)).throughput.run_cycles


def gains(*overrides):
    return {found.change: found for found in what_if(load_job(FOUR, overrides))}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_faster_stage_gives_what_the_scenario_with_it_gives(schedule):
    asked = (f"pipeline.schedule={schedule}", *UNEVEN)
    passes = {"stage1": (1000, 2000), "stage2": (1600, 2000), "stage3": (1000, 2900), "stage4": (1000, 2000)}
    found = gains(*asked)
    assert "perfect balance of the IPUs" in found
    for name, (forward, backward) in passes.items():
        faster = (
            f"pipeline.stages.{name}.forward={forward * 9 // 10}",
            f"pipeline.stages.{name}.backward={backward * 9 // 10}",
        )
        expected = run_cycles(*asked, *faster)
        each = found.get(f"{name} 10% faster")
        if each is None:  # left out, as the critical path says that it gives next to nothing
            assert expected > run_cycles(*asked) * 0.999
            continue
        assert each.after == expected
        assert each.before == run_cycles(*asked)
        assert each.path <= each.after


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_balance_and_a_free_update_give_what_the_scenario_with_them_gives(schedule):
    asked = (f"pipeline.schedule={schedule}", *UNEVEN)
    found = gains(*asked)
    even = [
        f"pipeline.stages.stage{number}.{kind}={cycles}"
        for number in range(1, 5)
        for kind, cycles in (("forward", 1150), ("backward", 2225))
    ]
    assert found["perfect balance of the IPUs"].after == run_cycles(*asked, *even)
    free = [f"pipeline.stages.stage{number}.update=0" for number in range(1, 5)]
    update = found["free arithmetic of the weight update"]
    assert update.after == run_cycles(*asked, *free)
    assert update.said_by_path == "exact"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_free_copies_and_a_free_host_give_what_a_free_system_gives(schedule):
    asked = (f"pipeline.schedule={schedule}", "system.name=m2000", *UNEVEN)
    sizes = [f"pipeline.stages.stage{number}.output_bytes=4096" for number in range(1, 4)]
    found = gains(*asked, *sizes)
    before = found["free copies between IPUs"].before
    assert before > run_cycles(f"pipeline.schedule={schedule}", *UNEVEN)
    saved = {name: before - each.after for name, each in found.items() if name.startswith("free") or "host" in name}
    free = ("free copies between IPUs", "free sync", "a host that takes no time")
    if schedule in ("grouped", "interleaved", "sequential"):
        # In lock-step all of these come behind each other, but for the clock, which the two systems have alike.
        assert before - sum(saved.get(name, 0) for name in free) == run_cycles(f"pipeline.schedule={schedule}", *UNEVEN)
    else:
        assert "free sync" not in saved


@pytest.mark.parametrize(
    ("scenario", "asked"),
    [
        ("host_embedding", ()),
        ("host_embedding", ("system.host.count=2", "pipeline.variables_on_host=true")),
        ("variables_on_host", ()),
    ],
)
def test_a_free_host_has_no_part_of_tables_variables_and_sums(scenario, asked):
    """Then nothing is left of the run that such a run on the free system does not have, but for copies and syncs."""
    job = load_job(SCENARIOS / f"{scenario}.yaml", ("pipeline.gradient_accumulation_count=8", *asked))
    (change,) = [each for each in changes(job) if each.words == "a host that takes no time"]
    timeline = simulate(job.plan, job.program, change.system, costs=change.costs)
    rows = timeline.rows(*kinds_with(lambda row: row.track is Track.HOST or row.category == "host"))
    rows = np.concatenate([rows, timeline.rows(SpanKind.HOST_SUM, SpanKind.HOST_UPDATE)])
    assert not (timeline.end[rows] - timeline.start[rows]).any()
    assert not any(change.cycles(kind, -1, 5) for kind in set(timeline.kind[rows].tolist()))
    assert timeline.end.max() < simulate(job.plan, job.program, job.system, costs=job.costs).end.max()


def test_a_run_that_takes_no_time_saves_none(load):
    stages = "{name: a, forward: 0}, {name: b, forward: 0}"
    job = load(f"system: {{name: free}}\npipeline: {{gradient_accumulation_count: 4, stages: [{stages}]}}")
    assert [(each.gain, each.bound, each.said_by_path) for each in what_if(job)] == [(0.0, 0.0, "exact")] * 2
