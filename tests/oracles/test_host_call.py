"""What the host does between session runs: how long, how often, and that it is part of no execution."""

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
rates: {session_run: 30 us, optimizer_value: 0 s, pytorch_optimizer_value: 0 s, offchip_state: 200 ns,
  pytorch_offchip_state: 1 us, offchip_stream: 100 ns}
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


@pytest.mark.parametrize(("sharded", "state"), [("false", 44_000), ("true", 22_000)])
def test_state_off_chip_takes_as_long_as_a_machine_streams_of_it(load, sharded, state):
    """110,000 bytes of momentum, in and out at 100 ns a kilobyte: of two replicas on a machine whole, or half each."""
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


@pytest.mark.parametrize(("replica", "machines"), [(1, 0.25), (2, 0.5), (4, 1), (8, 2)])
def test_machines_stream_state_beside_each_other_and_replicas_on_one_after_each_other(load, replica, machines):
    """Layers of one size on a POD16, each replica of so many IPUs with as much on each: 100 x 100 x 4 bytes a layer."""
    layers = [f"{{name: l{number}, type: dense, units: 100, use_bias: false}}" for number in range(8)]
    cuts = [f"l{number}" for number in range(0, 8, 8 // replica)][1:]
    job = load(
        OFFCHIP,
        "system.name=pod16",
        "system.auto_select_ipus=16",
        "system.host.framework=tensorflow2",
        "rates.offchip_state=0 ns",
        f"model.layers=[{', '.join(layers)}, {{name: loss, type: softmax_cross_entropy}}]",
        "data.classes=100",
        f"pipeline.splits=[{', '.join(cuts)}]",
        f"pipeline.schedule={'grouped' if cuts else 'single'}",
        f"pipeline.gradient_accumulation_count={2 * replica if cuts else 1}",
    )
    assert job.system.replicas == 16 // replica
    assert job.costs.host.state == 2 * 8 * 40_000 / machines * 100 / 1000


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ({"framework": "popart", "updates_optimizer": "every session run"}, 130_000),
        ({"framework": "popart", "updates_optimizer": "every 4 session runs"}, 55_000),
        ({"framework": "popart", "updates_optimizer": "never"}, 30_000),
        ({"framework": "popart"}, 130_000),
        ({"framework": "pytorch"}, 90_000),
        ({"framework": "pytorch", "optimizer_values": 5}, 130_000),
        ({"framework": "pytorch", "optimizer_values": 5, "updates_optimizer": "every 4 session runs"}, 55_000),
        ({"framework": "pytorch", "optimizer_values": 0}, 30_000),
        ({"framework": "popart", "optimizer_values": 5}, 130_000),
        ({"framework": "tensorflow1"}, 130_000),
        ({"framework": "tensorflow2"}, 130_000),
        ({"updates_optimizer": "every session run"}, 0),
    ],
)
def test_an_optimizer_that_is_sent_anew_takes_its_time_for_each_variable(load, said, call):
    """Two variables without biases, 50 us each, in PyTorch 10 us for each value, beside 30 us of a session run."""
    settings = [f"system.host.{key}={value}" for key, value in said.items()]
    job = load(OFFCHIP, "rates.optimizer_value=50 us", "rates.pytorch_optimizer_value=10 us", *settings)
    assert job.costs.host.call == call
    timeline = execute(job).timeline
    rows = timeline.rows(SpanKind.HOST_CALL)
    longest = (timeline.end[rows] - timeline.start[rows]).max(initial=0)
    assert longest == call + job.costs.host.state


@pytest.mark.parametrize("said", ["every 0 session runs", "every", "true", "always", "-4"])
def test_another_interval_of_the_optimizer_is_refused(load, said):
    expected = "expected never, every session run, or every N session runs"
    with pytest.raises(ScenarioError, match=f"system.host.updates_optimizer: {expected}, got"):
        load(OFFCHIP, f"system.host.updates_optimizer={said}")


def test_another_framework_and_the_free_system_are_refused(load):
    with pytest.raises(
        ScenarioError, match=r"system.host.framework: expected popart, tensorflow1, tensorflow2 or pytorch, got 'jax'"
    ):
        load(TEXT, "system.host.framework=jax")
    with pytest.raises(ScenarioError, match=r"rates.session_run: expected no cost on the free system"):
        load(TEXT, "system={name: free}")
