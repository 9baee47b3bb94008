"""What a sweep costs beside its simulations, and what a second worker brings."""

from __future__ import annotations

import time
from pathlib import Path

import joblib
import pytest

from ipusim.app.scenario import load_request
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.outcome import outcome_of
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.base.cache import sharing
from ipusim.machine.simulate import simulate
from ipusim.runs.assemble.assemble import assemble

SCENARIOS = Path(__file__).parents[2] / "scenarios"
COUNT = "pipeline.gradient_accumulation_count"


@pytest.mark.parametrize(
    ("name", "counts"),
    [("schedules_four_ipus", range(40, 8001, 40)), ("bert_large", range(100, 2001, 100))],
)
@sharing
def test_points_cost_little_beside_their_simulations(name, counts):
    """Every point in turn: its whole cost, and simulate's own time for the same Job, the fastest of two each."""
    request = load_request(SCENARIOS / f"{name}.yaml", ["numerics=off"])
    outcome_of(request, {COUNT: counts[0]})
    whole = alone = 0.0
    for count in counts:
        job = assemble(request.replace({COUNT: count}))
        times = [[], []]
        for _ in range(2):
            for each, run in zip(
                times,
                (
                    lambda count=count: outcome_of(request, {COUNT: count}),
                    lambda job=job: simulate(
                        job.plan, job.program, job.system, costs=job.costs, executions=job.executions
                    ),
                ),
                strict=True,
            ):
                start = time.perf_counter()
                run()
                each.append(time.perf_counter() - start)
        whole, alone = whole + min(times[0]), alone + min(times[1])
    print(f"\n{name}, {len(counts)} counts: {whole:.2f} s, of which simulate {alone:.2f} s: {whole / alone:.2f} x")
    assert whole <= 1.3 * alone


@pytest.mark.skipif(joblib.cpu_count() < 2, reason="one core")
def test_two_workers_against_one():
    """200 points of the four-IPU scenario, from the first to the last with the start of the workers."""
    request, axes = load_request(SCENARIOS / "schedules_four_ipus.yaml"), axes_of({COUNT: "40..8000+40"})
    times = {}
    for workers in (1, 2):
        start = time.perf_counter()
        found = sweep(request, axes, crew=Crew(workers=workers))
        times[workers] = time.perf_counter() - start
        assert len(found.finished) == 200
    print(f"\n200 points: {times[1]:.1f} s by one worker, {times[2]:.1f} s by two: {times[1] / times[2]:.2f} x")
    assert times[1] >= 1.7 * times[2]
