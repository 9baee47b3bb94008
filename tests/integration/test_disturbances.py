"""Disturbances of a request wherever it goes: in runs with arithmetic, sweeps, suggestions, and written scenarios."""

import json
from pathlib import Path

import numpy as np
import pytest
from yaml import safe_load

from ipusim.app.render.verdict import verdict_table
from ipusim.app.scenario.load import load_request
from ipusim.app.scenario.write import scenario_text
from ipusim.app.suggest.suggestion import suggest
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.journal import file_hash, key_of
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.base.errors import OptionError, ProgramError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.programs import configure, hosted_names, run
from tests.scenarios import SCENARIOS

PLAIN = load_request(SCENARIOS / "schedules_four_ipus.yaml")
DISTURBED = [{"ipu": 2, "slower": 2}, {"link": [0, 1], "delay": "1 us"}, {"jitter": "5 %", "seed": 7}]
SLOW = PLAIN.replace({"disturbances": DISTURBED})


@pytest.mark.parametrize("workers", [1, 2])
def test_points_of_a_sweep_are_as_disturbed_as_its_request(workers):
    """In this process as in others: each comes to what a run of it comes to, and no journal takes one for another."""
    varied = {"pipeline.schedule": ["grouped", "1f1b"]}
    found = sweep(SLOW, axes_of(varied), crew=Crew(workers=workers))
    for (schedule,), outcome in found.finished_points:
        runs = [execute(assemble(of.replace({"pipeline.schedule": schedule}))) for of in (SLOW, PLAIN)]
        assert outcome.makespan_cycles == runs[0].summary.makespan_cycles > runs[1].summary.makespan_cycles
    assert key_of(SLOW, file_hash) != key_of(PLAIN, file_hash)


def test_a_written_scenario_says_them_and_none_is_suggested_for():
    text = scenario_text(SLOW, Path())
    assert text is not None
    assert safe_load(text)["disturbances"] == [*DISTURBED[:2], {"jitter": 0.05, "seed": 7}]
    with pytest.raises(OptionError, match="expected a system without disturbances, got 3"):
        suggest(SLOW)


def test_graphcores_door_takes_the_same_items():
    with hosted_names() as names:
        tf, ipu = names.tf, names.ipu

        def pipelined(*disturbances):
            """Run a pipeline of two stages on a disturbed device."""
            tf.reset_default_graph()
            configure(names, 2, disturbances=disturbances)
            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            given = {"repeat_count": 3, "inputs": [tf.ones(4)], "outfeed_queue": outfeed}
            return run(names, lambda: ipu.pipelining_ops.pipeline([tf.tanh, tf.tanh], 4, **given), outfeed)

        plain, slow = pipelined(), pipelined({"ipu": 1, "slower": 2}, {"link": [0, 1], "delay": 1000})
        assert slow.timeline.makespan_cycles > plain.timeline.makespan_cycles
        np.testing.assert_array_equal(plain.sent, slow.sent)
        for item, text in (
            ({"ipu": 5, "slower": 2}, r"IPUConfig\.disturbances\.0\.ipu: expected an IPU from 0 to 1 of m2000, got 5"),
            ({"ipu": 1}, r"IPUConfig\.disturbances\.0: .* expected a disturbance, which has a key out of"),
            ({"ipu": 1, "slowr": 2}, r"IPUConfig\.disturbances\.0\.slower: expected times from 1 .*, got nothing"),
        ):
            with pytest.raises(ProgramError, match=text):
                pipelined(item)


def request_of(*disturbances, ipus=4, machine="free", **pipeline):
    """Equal stages on a machine of which they take four IPUs."""
    stages = [{"name": f"s{number}", "forward": 1000, "backward": 2000} for number in range(4)]
    pipeline = {"schedule": "grouped", "gradient_accumulation_count": 16, "stages": stages, **pipeline}
    system = {"name": machine, "clock": "1 GHz", "auto_select_ipus": ipus}
    return Request.from_dict({"system": system, "pipeline": pipeline, "disturbances": disturbances})


def test_the_verdict_says_what_they_cost_who_waits_and_until_when():
    summary = execute(assemble(request_of({"ipu": 2, "slower": 2, "from": 10_000, "until": 20_000}))).summary
    words = dict(verdict_table(summary).rows)["disturbances"]
    cost = summary.disturbances
    assert cost.plain_cycles == (16 + 3) * 3000
    assert (cost.cycles, cost.recovery, cost.passes) == (cost.plain_cycles + 5000, 0, True)
    # The excess of 5,000 cycles for three IPUs, and where IPUs are last together, of which one is named, now IPU 2.
    assert sum(cost.waits.values()) >= 3 * 5000
    assert set(cost.waits) == {(0, 2), (1, 2), (3, 2)}
    assert words == (
        "S is 1.088: the run takes 62 us, without them 57 us (8.8% more, 8.1% of the longer run); "
        "added up, IPUs 0, 1 and 3 wait 20 us longer for IPU 2; "
        "after the end of the disturbances the run continues as before at once"
    )
    assert summary.to_dict()["disturbances"]["slowdown"] == cost.slowdown == 62_000 / 57_000


def test_what_never_ends_is_never_as_before_and_what_nothing_disturbs_has_no_cost():
    always = execute(assemble(request_of({"ipu": 2, "slower": 1.5}))).summary.disturbances
    assert (always.passes, always.recovery) == (False, None)
    plain = execute(assemble(request_of())).summary
    assert plain.disturbances is None
    assert "disturbances" not in plain.to_dict()


@pytest.mark.parametrize(
    "nothing",
    [
        {"ipu": 2, "slower": 1},
        {"ipu": 2, "slower": 3, "from": 7, "until": 7},
        {"jitter": 0},
        {"link": [0, 1], "slower": 1},
        {"link": [0, 1], "delay": 0},
        {"link": [0, 1], "delay": 100, "from": 50, "until": 50},
        {"link": [0, 1], "dead": False},
        {"host": "infeed", "stall": 0, "at": 3},
    ],
)
def test_a_disturbance_that_changes_nothing_changes_no_span_and_no_byte_of_the_summary(nothing):
    plain, same = (execute(assemble(request_of(*of, machine="bow_pod16"))) for of in ((), (nothing,)))
    assert same.timeline == plain.timeline
    assert json.dumps(same.summary.to_dict()) == json.dumps(plain.summary.to_dict())
    assert verdict_table(same.summary) == verdict_table(plain.summary)


def test_slack_that_is_used_up_does_not_come_back():
    """Equal stages of eager 1F1B are never ahead again of where the slow one has put them."""
    passing = {"ipu": 1, "slower": 3, "from": 15_000, "until": 30_000}
    request = request_of(passing, schedule="eager_1f1b", sync="point_to_point", gradient_accumulation_count=24)
    cost = execute(assemble(request)).summary.disturbances
    assert (cost.passes, cost.recovery) == (True, None)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ([0, 1, 2, 4], "IPU 2 is lost: its stages continue on the physical IPU of IPU 3, a spare IPU."),
        (
            [0, 1, 2, 3],
            "IPU 2 is lost: its stages continue on the same IPU, repaired, because no other IPU is without a stage.",
        ),
    ],
)
def test_a_spare_ipu_is_one_without_a_stage(mapping, words):
    lost = {"ipu": 2, "lost": 10_000, "spare": True}
    ipus = 8 if 4 in mapping else 4
    assert assemble(request_of(lost, ipus=ipus, device_mapping=mapping)).notes == (words,)
    assert assemble(request_of(lost | {"spare": False}, ipus=ipus, device_mapping=mapping)).notes == ()
