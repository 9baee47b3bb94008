"""What the host does between session runs: how long, how often, and that it is part of no execution."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.analysis.executions import executions_of
from ipusim.app.scenario.problems import ScenarioError
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind

TEXT = """
system: {name: m2000, clock: 1 GHz, host: {framework: popart}}
rates: {session_run: 30 us}
steps: 3
pipeline:
  gradient_accumulation_count: 8
  repeat_count: 2
  stages:
    - {name: a, forward: 1000, backward: 2000, update: 500}
    - {name: b, forward: 1500, backward: 2500, update: 700}
"""
NONE = "system.host={}"


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_it_follows_each_session_run_on_every_ipu(load, sync):
    run, plain = (execute(load(TEXT, f"pipeline.sync={sync}", *changes)) for changes in ((), (NONE, "rates={}")))
    timeline = run.timeline
    rows = timeline.rows(SpanKind.HOST_CALL)
    assert sorted(timeline.ipu[rows].tolist()) == [0] * 3 + [1] * 3
    assert set((timeline.end[rows] - timeline.start[rows]).tolist()) == {30_000}
    with_calls, without = executions_of(timeline), executions_of(plain.timeline)
    assert [each.execution_cycles for each in with_calls] == [each.execution_cycles for each in without]
    for number, (mine, other) in enumerate(zip(with_calls, without, strict=True)):
        assert mine.start - other.start == 30_000 * (number // 2)
    assert sorted(set(timeline.start[rows].tolist())) == [each.end for each in with_calls[1::2]]
    whole, quick = run.summary.throughput, plain.summary.throughput
    assert whole.run_cycles == quick.run_cycles + 3 * 30_000
    assert whole.samples_per_s == pytest.approx(whole.samples / (whole.run_cycles / 1e9))
    assert [use.cycles["host_call"] for use in run.summary.run_use] == [90_000] * len(run.summary.run_use)
    assert not any(use.cycles["host_call"] for use in run.summary.pipeline_use)
    assert run.summary.phases == plain.summary.phases


OFFCHIP = """
system: {name: m2000, clock: 1 GHz, enable_remote_buffers: true}
numerics: off
data: {type: synthetic, shape: [100], classes: 10, samples: 1000}
model:
  layers:
    - {name: wide, type: dense, units: 250, use_bias: false}
    - {name: last, type: dense, units: 10, use_bias: false}
    - {name: loss, type: softmax_cross_entropy}
pipeline: {splits: [last], gradient_accumulation_count: 8, repeat_count: 3}
optimizer: {type: momentum, learning_rate: 0.1, momentum: 0.9}
steps: 2
rates: {session_run: 30 us, offchip_state: 200 ns, pytorch_offchip_state: 1 us, offchip_stream: 100 ns}
"""


@pytest.mark.parametrize(("framework", "state"), [("popart", 44_000), ("tensorflow2", 44_000), ("pytorch", 132_000)])
def test_an_update_with_its_state_off_chip_takes_as_long_as_that_is_large(load, framework, state):
    """110,000 bytes of weights, (100 x 250 + 250 x 10) x 4, and of momentum, in and out, behind each of six updates."""
    offloaded = "pipeline.offload_weight_update_variables=true"
    run = execute(load(OFFCHIP, f"system.host.framework={framework}", offloaded))
    timeline = run.timeline
    rows = timeline.rows(SpanKind.HOST_CALL)
    found = sorted((timeline.end[rows] - timeline.start[rows]).tolist())
    assert found == [state] * 8 + [state + 30_000] * 4
    for on_chip in ("system.enable_remote_buffers=false", "pipeline.offload_weight_update_variables=false"):
        assert load(OFFCHIP, f"system.host.framework={framework}", on_chip).costs.host.state == 0
    assert load(OFFCHIP).costs.host.state == 0


@pytest.mark.parametrize(("sharded", "state"), [("false", 22_000), ("true", 11_000)])
def test_state_off_chip_takes_as_long_as_a_replica_streams_of_it(load, sharded, state):
    """110,000 bytes of momentum, in and out at 100 ns a kilobyte: by each of two replicas whole, or half of it."""
    settings = (
        "system.host.framework=popart",
        "system.auto_select_ipus=4",
        "system.minimum_sharded_elements=1",
        "pipeline.offload_weight_update_variables=true",
        "rates.offchip_state=0 ns",
        f"pipeline.replicated_optimizer_state_sharding={sharded}",
    )
    assert load(OFFCHIP, *settings).costs.host.state == state
    assert load(OFFCHIP, *settings, "pipeline.offload_weight_update_variables=false").costs.host.state == 0


def test_an_optimizer_that_is_sent_anew_takes_its_time_behind_each_session_run_for_each_variable(load):
    """Two variables without biases, 50 us each, beside 30 us of a session run; not where no framework counts."""
    sent = ("rates.optimizer_value=50 us", "system.host.updates_optimizer=true")
    call = {
        framework: load(OFFCHIP, *sent, f"system.host.framework={framework}").costs.host.call
        for framework in ("popart", "null")
    }
    assert call == {"popart": 130_000, "null": 0}
    assert load(OFFCHIP, *sent[:1], "system.host.framework=popart").costs.host.call == 30_000


def test_without_a_framework_the_host_takes_no_time(load):
    job = load(TEXT, NONE, "rates={}")
    assert job.costs.host.call == 0
    assert not np.isin(execute(job).timeline.kind, SpanKind.HOST_CALL).any()


def test_another_framework_and_the_free_system_are_refused(load):
    with pytest.raises(
        ScenarioError, match=r"system.host.framework: expected popart, tensorflow1, tensorflow2 or pytorch, got 'jax'"
    ):
        load(TEXT, "system.host.framework=jax")
    with pytest.raises(ScenarioError, match=r"rates.session_run: expected nothing on the free system"):
        load(TEXT, "system={name: free}")
