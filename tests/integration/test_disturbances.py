"""Disturbances of a request wherever it goes: in runs with arithmetic, sweeps, suggestions, and written scenarios."""

from __future__ import annotations

from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest
from yaml import safe_load

from ipusim.app.scenario.load import load_request
from ipusim.app.scenario.write import scenario_text
from ipusim.app.suggest.suggestion import suggest
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.journal import Keys
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.base.errors import OptionError, ProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import pipeline
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from tests.places import SCENARIOS

PLAIN = load_request(SCENARIOS / "schedules_four_ipus.yaml")
DISTURBED = [{"ipu": 2, "slower": 2}, {"link": [0, 1], "delay": "1 us"}, {"jitter": "5 %", "seed": 7}]
SLOW = PLAIN.replace({"disturbances": DISTURBED})


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_arithmetic_is_the_same_to_the_bit_and_time_is_not(sync):
    request = load_request(SCENARIOS / "digits_training.yaml", ["steps=2", f"pipeline.sync={sync}"])
    plain, slow = (execute(assemble(request.replace({"disturbances": of}))) for of in ([], DISTURBED))
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


def test_a_written_scenario_says_them_and_none_is_suggested_for():
    text = scenario_text(SLOW, Path())
    assert text is not None
    assert safe_load(text)["disturbances"] == [*DISTURBED[:2], {"jitter": 0.05, "seed": 7}]
    with pytest.raises(OptionError, match="expected a system without disturbances, got 3"):
        suggest(SLOW)


def pipelined(disturbances):
    """A pipeline of two stages in Graphcore's names, on a disturbed device."""
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.disturbances = disturbances
    stages = [anp.tanh, anp.tanh]
    queue = IPUOutfeedQueue()
    run = pipeline(stages, 4, inputs=[anp.ones(4)], outfeed_queue=queue, repeat_count=3, config=config)
    return run.timeline.makespan_cycles, queue.dequeue()


def test_graphcores_door_takes_the_same_items():
    plain, slow = pipelined([]), pipelined([{"ipu": 1, "slower": 2}, {"link": [0, 1], "delay": 1000}])
    assert slow[0] > plain[0]
    np.testing.assert_array_equal(plain[1], slow[1])
    for item, text in (
        ({"ipu": 5, "slower": 2}, r"IPUConfig\.disturbances\.0\.ipu: expected an IPU from 0 to 1 of m2000, got 5"),
        ({"ipu": 1, "slowr": 2}, r"IPUConfig\.disturbances\.0: .* expected a disturbance, which has a key out of"),
    ):
        with pytest.raises(ProgramError, match=text):
            pipelined([item])
