"""What a sweep costs beside its points, each tried alone."""

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
