"""Variables that replicas store parts of: the same training, less memory, and the time of loading and all-gathers."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.machine.cross_replica import Shards
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.ops import Pass
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.machine_costs import collective_cost
from tests.oracles.test_offload import CLOCK, spans

LAYERS = """
system: {name: pod16, auto_select_ipus: 8, enable_remote_buffers: true, minimum_remote_tensor_size: 1 B}
data: {type: synthetic, shape: [6], classes: 3, samples: 96, hold_out: 16}
model:
  layers:
    - {name: a, type: dense, units: 9, activation: tanh}
    - {name: d, type: dropout, rate: 0.25}
    - {name: b, type: dense, units: 7, activation: relu}
    - {name: c, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {schedule: grouped, splits: [b], micro_batch_size: 3, gradient_accumulation_count: 4, repeat_count: 2}
optimizer: {type: adam, learning_rate: 0.05}
evaluate: {every: 1}
precision: float64
steps: 3
"""
TIMED = """
system: {name: pod16, auto_select_ipus: 4, enable_remote_buffers: true, streaming_memory: {ipu_bandwidth: 8 GB/s}}
pipeline:
  schedule: single
  gradient_accumulation_count: 2
  stages:
    - {name: a, forward: 100, backward: 200, update: 50, parameter_bytes: 3000001 B, state_bytes: 6000003 B}
"""
STATE = "pipeline.replicated_optimizer_state_sharding=true"
WEIGHTS = "pipeline.replicated_weight_sharding=true"


def moving(size):
    return ceil(Fraction(size, 8 * 10**9) * CLOCK)


def gathering(system, size):
    """Return the cycles of the fastest all-gather of ``size`` bytes over four IPUs."""
    plans = (make(system, range(4), size, 1) for make in ALGORITHMS["all_gather"].values())
    return min(collective_cost(system, plan).total_cycles for plan in plans)


@pytest.mark.parametrize(
    "place", [np.ascontiguousarray, np.asfortranarray, lambda array: np.repeat(array, 2, 1)[:, ::2]]
)
def test_parts_are_put_together_in_any_memory_layout(load, place):
    experiment = load(LAYERS, WEIGHTS)
    program = experiment.program
    executors = [NumpyExecutor(program.shape, experiment.workload(0), replica, 4) for replica in range(4)]
    for executor in executors:
        stage = executor.stages(0)[0]
        stage.own_parameters.update(
            {name: place(array) for name, array in stage.own_parameters.items() if array.ndim == 2}
        )
        stage.parameters.update(stage.own_parameters)
    whole = {name: array.copy() for name, array in executors[0].stages(0)[0].parameters.items()}
    shards = Shards(executors, (0, 1), experiment.system, program)
    assert all(np.isnan(array).any() for executor in executors for array in executor.stages(0)[0].parameters.values())
    with shards.all_gathered():
        for executor in executors:
            for name, array in executor.stages(0)[0].parameters.items():
                np.testing.assert_array_equal(array, whole[name])


def test_batch_serialization_shards_weights_by_default(load):
    changes = "pipeline.batch_serialization_iterations=2", "pipeline.schedule=sequential", "system.auto_select_ipus=2"
    sharded = load(LAYERS, *changes)
    assert sharded.program.offload.weights
    plain = execute(load(LAYERS, *changes, "pipeline.replicated_weight_sharding=false"))
    result = execute(sharded)
    assert result.learning.losses == plain.learning.losses
    for name, array in plain.learning.weights.items():
        np.testing.assert_array_equal(array, result.learning.weights[name])


def test_without_its_all_gather_a_pass_gives_no_number(load):
    experiment = load(LAYERS, WEIGHTS)
    program, workload = experiment.program, experiment.workload(0)
    executors = [NumpyExecutor(program.shape, workload, replica, 4) for replica in range(4)]
    whole = executors[0].weights()["a/W"].copy()
    shards = Shards(executors, (0, 1), experiment.system, program)
    part = executors[1].weights()["a/W"].ravel()
    quarter = -(-part.size // 4)
    assert np.isnan(part).sum() == part.size - quarter
    np.testing.assert_array_equal(part[quarter : 2 * quarter], whole.ravel()[quarter : 2 * quarter])
    executors[0].infeed(0, 0)
    executors[0].run(0, Pass.FORWARD, 0, 0)
    assert np.isnan(executors[0]._memories[0].outbox[0, 0].tensor).any()
    shards.gather(0, 0, "ring")
    np.testing.assert_array_equal(executors[1].weights()["a/W"], whole)


def test_a_sharded_update_loads_a_part_and_gathers_the_whole(load):
    """A quarter of 6,000,003 bytes, rounded up, moves each way; the ring brings the other three quarters."""
    experiment = load(TIMED, STATE)
    result = execute(experiment)
    timeline, part = result.timeline, 1_500_001
    (load_span,) = spans(timeline, SpanKind.REMOTE_LOAD)
    (gather,) = spans(timeline, SpanKind.ALL_GATHER)
    (update,) = spans(timeline, SpanKind.WEIGHT_UPDATE)
    (store,) = spans(timeline, SpanKind.REMOTE_STORE)
    assert load_span[1] - load_span[0] == store[1] - store[0] == moving(part)
    assert load_span[2] == store[2] == part
    assert gather[0] == load_span[1]
    assert gather[2] == 6_000_003
    assert gather[1] - gather[0] == gathering(experiment.system, 6_000_003)
    assert update[0] == gather[1]
    assert store[0] == update[1] == update[0] + 50
    plain = execute(load(TIMED)).timeline
    ((begin, end, _),) = spans(plain, SpanKind.REMOTE_LOAD)
    assert end - begin == moving(6_000_003)


def test_sharded_weights_come_before_every_pass(load):
    experiment = load(TIMED, WEIGHTS, "pipeline.offload_weight_update_variables=false")
    timeline, part = execute(experiment).timeline, 750_001
    loads, gathers = spans(timeline, SpanKind.REMOTE_LOAD), spans(timeline, SpanKind.ALL_GATHER)
    passes = sorted(spans(timeline, SpanKind.FORWARD) + spans(timeline, SpanKind.BACKWARD))
    passes += spans(timeline, SpanKind.WEIGHT_UPDATE)
    assert len(passes) == len(loads) == len(gathers) == 5
    for (begin, _, _), (start, end, size), gather in zip(passes, loads, gathers, strict=True):
        assert (end - start, size) == (moving(part), part)
        assert gather == (end, end + gathering(experiment.system, 3_000_001), 3_000_001)
        assert begin == gather[1]
    ((start, end, size),) = spans(timeline, SpanKind.REMOTE_STORE)
    assert (end - start, size) == (moving(part), part)


def test_what_each_replica_holds(load):
    plain, state, both = (
        execute(load(TIMED, *changes)).memory.footprint for changes in ((), (STATE,), (STATE, WEIGHTS))
    )
    held = [dict(each.ipus[0].resident) for each in (plain, state, both)]
    assert [each[Holder.PARAMETERS] for each in held] == [3_000_001, 3_000_001, 0]
    assert [each[Holder.STATE] for each in held] == [0, 0, 0]
    assert [each.ipus[0].remote_bytes for each in (plain, state, both)] == [6_000_003, 1_500_001, 1_500_001 + 750_001]
    assert [each.stages[0].update_bytes for each in (plain, state, both)] == [6_000_003, 6_000_003, 9_000_004]
    assert [each.stages[0].forward_bytes for each in (plain, state, both)] == [0, 0, 3_000_001]


def test_one_replica_stores_everything_itself(load):
    experiment = load(TIMED, STATE, WEIGHTS, "system.auto_select_ipus=1")
    assert experiment.notes == (
        "replicated_optimizer_state_sharding will have no effect since there is one replica.",
        "replicated_weight_sharding will have no effect since there is one replica.",
    )
    assert execute(experiment).memory.footprint.ipus[0].remote_bytes == 6_000_003


def test_notes_of_options_without_effect(load):
    assert load(TIMED, "pipeline.offload_weights=true").notes == (
        "offload_weights will have no effect since no weights are spread over replicas.",
    )
    inference = load(TIMED.replace("backward: 200, ", ""), STATE)
    assert inference.notes == (
        "replicated_optimizer_state_sharding will have no effect since this pipeline is in inference.",
    )


def test_small_tensors_are_not_spread(load):
    """Adam's m and v of b's bias, 7 float64, are 56 bytes; of four parts each at least 20 bytes would be needed."""
    experiment = load(LAYERS, STATE, "system.minimum_remote_tensor_size=20 B")
    profile = experiment.program.stages[1]
    assert experiment.program.offload.state_bytes(profile) == sum(size for size in profile.state_tensors if size >= 80)
