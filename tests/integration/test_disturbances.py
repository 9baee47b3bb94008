"""Disturbances of a request wherever it goes: in runs with arithmetic, sweeps, suggestions, and written scenarios."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.scenario.load import load_request
from ipusim.app.scenario.write import scenario_text
from ipusim.app.suggest.suggestion import suggest
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.journal import Keys
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.base.errors import OptionError
from ipusim.hardware.disturbances import Slower
from ipusim.hardware.resources import Resource
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from tests.places import SCENARIOS

PLAIN = load_request(SCENARIOS / "schedules_four_ipus.yaml")
SLOW = replace(PLAIN, disturbances=(Slower(Resource("IPU", 2), Fraction(1, 2)),))


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_arithmetic_is_the_same_to_the_bit_and_time_is_not(sync):
    request = load_request(SCENARIOS / "digits_training.yaml", ["steps=2", f"pipeline.sync={sync}"])
    plain, slow = (execute(assemble(replace(request, disturbances=of))) for of in ((), SLOW.disturbances))
    assert slow.timeline.makespan_cycles > plain.timeline.makespan_cycles
    assert slow.learning.losses == plain.learning.losses
    for name, array in plain.learning.weights.items():
        np.testing.assert_array_equal(slow.learning.weights[name], array)


@pytest.mark.parametrize("workers", [1, 2])
def test_points_of_a_sweep_are_as_disturbed_as_its_request(workers):
    """In this process as in others: each comes to what a run of it comes to, and no journal takes one for another."""
    varied = {"pipeline.schedule": ["grouped", "1f1b"]}
    found = sweep(SLOW, axes_of(varied), crew=Crew(workers=workers))
    for (schedule,), outcome in found.finished:
        runs = [execute(assemble(of.replace({"pipeline.schedule": schedule}))) for of in (SLOW, PLAIN)]
        assert outcome.makespan_cycles == runs[0].summary.makespan_cycles > runs[1].summary.makespan_cycles
    assert Keys().of(SLOW) != Keys().of(PLAIN)


def test_no_scenario_says_disturbances_so_that_none_is_written_or_suggested():
    assert scenario_text(PLAIN, Path()) is not None
    assert scenario_text(SLOW, Path()) is None
    with pytest.raises(OptionError, match="expected a system without disturbances, got 1"):
        suggest(SLOW)
