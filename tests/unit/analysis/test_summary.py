import json

import pytest

from ipusim.analysis.run_times import run_times_of

FREE = {"sync": 0, "exchange": 0}


def test_bubble_definitions_differ_where_they_should(lock_step):
    # Two IPUs, G = 4, f = 1, b = 2 (hundreds): makespan 15, arithmetic 12 on each; IPU 0 is busy from 0 to 15
    # with the last backward, IPU 1 from 1 to 13.
    found = run_times_of(lock_step("grouped", mapping=(0, 1), count=4, **FREE)).bubble
    assert (found.ideal_cycles, found.idle_cycles, found.rank_cost_cycles) == (1200, 600, 1500)
    assert (found.idle_fraction, found.overhead, found.rank_cost_rate) == (600 / 3000, 300 / 1200, 300 / 1500)
    assert found.span_idle_fraction == 300 / 2700


def test_unequal_stages_are_measured_against_the_busiest(lock_step):
    found = run_times_of(
        lock_step("sequential", mapping=(0, 1), count=2, forward=(100, 300), backward=(50, 450), **FREE)
    )
    assert (found.makespan_cycles, found.bubble.ideal_cycles) == (2 * 900, 2 * 750)
    assert (found.bubble.overhead, found.bubble.idle_fraction) == (300 / 1500, 0.5)


def test_the_idle_ipu_stands_apart(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=6, ipus=(0, 1, 2, 3), **FREE)
    found = run_times_of(timeline)
    assert found.idle_ipus == (3,)
    assert (found.bubble.idle_fraction, found.pipeline_use[3].compute_cycles) == (pytest.approx(2 / 8), 0)


def test_throughput_counts_the_weight_update(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4, executions=5, **FREE, clock_hz=1_000_000)
    rates = run_times_of(timeline).throughput
    assert (rates.run_cycles, rates.effective_batch_size, rates.samples) == (5 * (1500 + 150), 64, 320)
    assert rates.samples_per_s == pytest.approx(320 / 8250e-6)
    assert rates.micro_batches_per_s == pytest.approx(20 / 8250e-6)
    assert rates.weight_update_period_s == pytest.approx(1650e-6)


def test_to_dict_is_json_with_seconds_beside_cycles(lock_step):
    found = run_times_of(lock_step("interleaved", mapping=(0, 1), count=4, clock_hz=1_000_000))
    data = json.loads(json.dumps(found.times_dict(), allow_nan=False))
    assert data["makespan_s"] == pytest.approx(data["makespan_cycles"] * 1e-6)
    assert data["phases"][0]["name"] == "ramp-up"
    assert sum(phase["cycles"] for phase in data["phases"]) == data["execution_cycles"]
    assert data["execution_cycles"] == data["makespan_cycles"] + data["weight_update_cycles"]
    assert data["bubble"]["idle_fraction"] == found.bubble.idle_fraction
    assert all(isinstance(use["compute_cycles"], int) for use in data["run_use"])
    assert (data["run_use"][0]["weight_update_cycles"], data["pipeline_use"][0]["weight_update_cycles"]) == (150, 0)


def test_a_pipeline_that_takes_no_time(lock_step):
    timeline = lock_step("sequential", mapping=(0, 1), count=2, forward=0, backward=0, **FREE)
    found = run_times_of(timeline)
    assert (found.makespan_cycles, found.bubble.idle_fraction, found.weight_update_cycles) == (0, 0.0, 150)
