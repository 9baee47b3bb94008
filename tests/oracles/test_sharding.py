"""Variables and updates that replicas have parts of: the same training, memory, and collectives counted by hand."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from ipusim.analysis.fits import Fits
from ipusim.app.explain.memory_moves import memory_moves
from ipusim.app.fidelity.throughput_rows import PUBLISHED, read_throughputs
from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.machine.cross_replica import Shards, replicas_of
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


POPART = LAYERS.replace(
    "minimum_remote_tensor_size: 1 B}", "minimum_sharded_elements: 8, host: {framework: popart}}"
).replace("schedule: grouped,", "replicated_optimizer_state_sharding: true,")
#: Elements of the variables of each IPU; those of at least eight are updated in parts.
VARIABLES = {0: (6 * 9, 9), 1: (9 * 7, 7, 7 * 3, 3)}
REPLICAS = 4
ITEMSIZE = 8
BUFFERS = "system.maximum_cross_replica_sum_buffer_size"
OFF_CHIP = "pipeline.offload_weight_update_variables=true"
WHOLE = "pipeline.replicated_optimizer_state_sharding=false"


def sharded(elements):
    return [size for size in elements if size >= 8]


#: The fastest for few elements, in rounds of a collective; an all-reduce takes twice as many.
FASTEST, ROUNDS = "meet in the middle", REPLICAS // 2


def in_turn(job, operation, sizes, itemsize=ITEMSIZE, ipu=0):
    """Return what collectives of so many elements take on an IPU of each replica, one after the other."""
    system, group = job.system, range(ipu, 8, 2)
    plans = [ALGORITHMS[operation][FASTEST](system, group, size, itemsize) for size in sizes]
    return sum(collective_cost(system, plan).total_cycles for plan in plans)


def test_hosts_sum_whole_gradients_of_updates_in_parts(load):
    """Scatters among the replicas of a host would leave parts that the hosts cannot sum by themselves."""
    hosts = "system.host.count=2", "system.auto_select_ipus=4", "system.maximum_cross_replica_sum_buffer_size=1"
    whole, parts = (load(POPART, *hosts, *more) for more in ((WHOLE,), ()))
    assert parts.program.offload.sharded_update
    assert not whole.program.offload.sharded_update
    assert parts.costs.gradient_sum == whole.costs.gradient_sum is not None


def test_a_replica_holds_its_part_of_gradients_and_state_alone(load):
    """Between the sum of gradients and the all-gather the rest of each array is not a number."""
    job = load(POPART)
    executors = [NumpyExecutor(job.program.shape, job.workload(0), replica, REPLICAS) for replica in range(REPLICAS)]
    for number, executor in enumerate(executors):
        for ipu in (0, 1):
            for gradient in executor.accumulators(ipu):
                gradient[...] = number + 1
    together = replicas_of(executors, job.plan, job.program, job.system, job.costs)
    before = {name: array.copy() for name, array in executors[0].weights().items()}
    together.reduce()
    for number, executor in enumerate(executors):
        for ipu, sizes in VARIABLES.items():
            for size, gradient in zip(sizes, executor.accumulators(ipu), strict=True):
                part = ceil(size / REPLICAS)
                kept = np.flatnonzero(~np.isnan(gradient))
                expected = range(number * part, min(size, (number + 1) * part)) if size >= 8 else range(size)
                assert kept.tolist() == list(expected)
                assert set(gradient.ravel()[kept]) <= {2.5}  # the mean of 1, 2, 3 and 4
            state = [array for stage in executor.stages(ipu).values() for array in stage.state.values() if array.ndim]
            stored = sum(np.count_nonzero(~np.isnan(array)) for array in state)
            assert stored <= 2 * sum(ceil(size / REPLICAS) if size >= 8 else size for size in sizes)
    for ipu in (0, 1):
        together.gather(ipu, None, "ring")
    for name, array in before.items():
        each = [executor.weights()[name] for executor in executors]
        assert not np.isnan(each).any()
        assert all(np.array_equal(other, each[0]) for other in each)
        # The first step of Adam takes the learning rate along each gradient; small variables have not had it yet.
        np.testing.assert_allclose(each[0], array - 0.05, atol=1e-7)


def test_each_variable_is_scattered_or_reduced_and_gathered_by_itself(load):
    """One by one, as PopART's default is: collectives, their rounds, the bytes of each, and the time of all."""
    job = load(POPART)
    found, gathers = job.costs.gradient_sum, job.costs.update_gathers
    every = [size for sizes in VARIABLES.values() for size in sizes]
    parts = sharded(every)
    assert found.algorithm == FASTEST
    assert len(found.cost.rounds) == ROUNDS * (len(parts) + 2 * (len(every) - len(parts)))
    for gather in gathers.values():
        assert gather.algorithm == FASTEST
        assert len(gather.cost.rounds) == ROUNDS * len(parts)
    scattered = reduced = gathered = 0
    for ipu, sizes in VARIABLES.items():
        few = [size for size in sizes if size < 8]
        scattered += in_turn(job, "reduce_scatter", sharded(sizes), ipu=ipu)
        reduced += in_turn(job, "all_reduce", few, ipu=ipu)
        gathered += in_turn(job, "all_gather", sharded(sizes), ipu=ipu)
    assert found.cost.total_cycles == scattered + reduced
    assert {gather.cost.total_cycles for gather in gathers.values()} == {gathered}
    assert {ipu: gather.bytes for ipu, gather in gathers.items()} == {
        ipu: ITEMSIZE * sum(sharded(sizes)) for ipu, sizes in VARIABLES.items()
    }
    # Each round sends the longest part of a variable.
    sent = sorted({load.bytes for round_of in found.cost.rounds for load in round_of.links})
    assert sent[-1] % (ITEMSIZE * ceil(9 * 7 / REPLICAS)) == 0


def test_merged_they_are_one_of_each_kind(load):
    job = load(POPART, f"{BUFFERS}=all")
    # reduce-scatters of all IPUs at once, then all-reduces
    assert len(job.costs.gradient_sum.cost.rounds) == 3 * ROUNDS
    assert {len(gather.cost.rounds) for gather in job.costs.update_gathers.values()} == {ROUNDS}
    apart = load(POPART)
    assert job.costs.gradient_sum.cost.total_cycles < apart.costs.gradient_sum.cost.total_cycles
    assert job.costs.update_gathers[0].cost.total_cycles < apart.costs.update_gathers[0].cost.total_cycles


def test_both_norms_of_each_sharded_variable_are_reduced_for_lamb(load):
    job = load(POPART, "optimizer={type: lamb, learning_rate: 0.05, weight_decay: 0.01}")
    plain = load(POPART)
    parts = [size for sizes in VARIABLES.values() for size in sharded(sizes)]
    more = job.costs.update_gathers[0].cost.total_cycles - plain.costs.update_gathers[0].cost.total_cycles
    norms = sum(in_turn(job, "all_reduce", [1] * len(sharded(sizes)), 4, ipu) for ipu, sizes in VARIABLES.items())
    assert more == 2 * norms
    assert len(job.costs.update_gathers[0].cost.rounds) == ROUNDS * (2 * 2 + 1) * len(parts)


@pytest.mark.parametrize("where", [(), (OFF_CHIP,)], ids=["on chip", "off chip"])
def test_each_replica_stores_its_part(load, where):
    """Two slots of Adam: the longest part of large variables, and small ones whole."""
    job = load(POPART, "system.minimum_remote_tensor_size=1 B", *where)
    for at in job.memory.footprint.ipus:
        own = VARIABLES[at.ipu]
        expected = 2 * ITEMSIZE * sum(ceil(size / REPLICAS) if size >= 8 else size for size in own)
        assert (dict(at.resident)[Holder.STATE], at.remote_bytes) == ((0, expected) if where else (expected, 0))
    stream = job.costs.update_streams.get(0)
    assert stream is None if not where else stream.load == stream.store > 0


def test_weights_are_gathered_behind_an_update_of_a_part(load):
    job = load(POPART)
    timeline = execute(job).timeline
    updates = {int(timeline.ipu[row]): row for row in timeline.rows(SpanKind.WEIGHT_UPDATE)[::-1]}
    gathers = {int(timeline.ipu[row]): row for row in timeline.rows(SpanKind.ALL_GATHER)[::-1]}
    assert set(updates) == set(gathers) == set(range(8))
    for ipu, row in gathers.items():
        assert timeline.start[row] >= timeline.end[updates[ipu]]
    large = load(POPART, "model.layers.a.units=40000"), load(POPART, "model.layers.a.units=40000", WHOLE)
    part, whole = (int(each.costs.updates[0]) for each in large)
    assert whole / REPLICAS < part < whole


def test_stages_known_by_their_cost_have_one_variable_each(load):
    text = """
system: {name: pod16, auto_select_ipus: 8, host: {framework: pytorch}}
pipeline:
  gradient_accumulation_count: 4
  replicated_optimizer_state_sharding: true
  stages:
    - {name: a, forward: 100, backward: 200, update: 50, parameter_bytes: 4001, state_bytes: 8003, output_bytes: 64}
    - {name: b, forward: 100, backward: 200, parameter_bytes: 16, gradient_bytes: 64}
"""
    job = load(text)
    gradients = 4 * ceil(ceil(4001 / 4) / 4)
    found = in_turn(job, "reduce_scatter", [gradients], 4) + in_turn(job, "all_reduce", [4], 4, 1)
    assert job.costs.gradient_sum.cost.total_cycles == found
    assert list(job.costs.update_gathers) == [0]
    assert job.costs.update_gathers[0].cost.total_cycles == in_turn(job, "all_gather", [4 * ceil(4001 / 4)], 1)
    assert dict(job.memory.footprint.ipus[0].resident)[Holder.STATE] == ceil(8003 / 4)
    assert job.costs.updates[0] == 50


@pytest.mark.parametrize("framework", ["popart", "pytorch", "tensorflow1", "tensorflow2", "null"])
def test_popart_alone_merges_no_sums_and_keeps_the_state_on_its_ipus_by_default(load, framework):
    changes = (f"system.host.framework={framework}", WHOLE)
    job = load(POPART, *changes)
    own = framework in ("popart", "pytorch")
    assert job.program.sum_buffer_bytes == (0 if own else None)
    assert job.program.offload.weight_update_variables == (not own)
    assert load(POPART, *changes, f"{BUFFERS}=all").program.sum_buffer_bytes is None
    assert load(POPART, *changes, f"{BUFFERS}=100").program.sum_buffer_bytes == 100
    on_chip = "pipeline.replicated_optimizer_state_sharding=true", "pipeline.offload_weight_update_variables=false"
    if own:
        assert load(POPART, *changes, *on_chip).program.offload.sharded_update
        return
    with pytest.raises(ScenarioError, match="To use replicated_optimizer_state_sharding, optimizer state must be"):
        load(POPART, *changes, *on_chip)
    assert not load(POPART, *changes, on_chip[0]).program.offload.sharded_update


def test_parts_of_weights_and_state_on_the_ipus_are_refused_together(load):
    with pytest.raises(ScenarioError, match="sharding beside replicated_weight_sharding, optimizer state must"):
        load(POPART, "pipeline.replicated_weight_sharding=true")
    assert load(POPART, "pipeline.replicated_weight_sharding=true", OFF_CHIP).program.offload.weights


def test_a_default_that_does_not_fit_is_named(load):
    text = """
system: {name: m2000, auto_select_ipus: 1, enable_remote_buffers: true, host: {framework: pytorch}}
code_bytes: 0
pipeline:
  schedule: single
  gradient_accumulation_count: 1
  stages: [{name: a, forward: 1, backward: 1, parameter_bytes: 100 MiB, state_bytes: 400 MiB, stash_bytes: 350 MiB}]
"""
    with pytest.raises(ScenarioError) as caught:
        load(text)
    assert (
        "pytorch keeps the optimizer's state on the IPUs by default, and the state fits in Streaming Memory: set "
        in str(caught.value)
    )
    assert "pipeline.offload_weight_update_variables to true" in str(caught.value)
    for change in ("pipeline.offload_weight_update_variables=false", "system.enable_remote_buffers=false"):
        with pytest.raises(ScenarioError) as caught:
            load(text, change)
        assert "by default" not in str(caught.value)


def test_explain_names_parts_of_state_on_the_ipus_where_popart_compiles(load):
    """As a move with what it frees, and as a means that a program has already."""
    words = "optimizer state sharded over replicas"
    changes = "memory=report", "numerics=off", "model.layers.a.units=40000", WHOLE
    moves = {move.words: move for move in memory_moves(load(POPART, *changes)).moves}
    state = dict(load(POPART, *changes).memory.footprint.ipus[0].resident)[Holder.STATE]
    assert moves[words].freed_bytes == pytest.approx(state * (1 - 1 / REPLICAS), rel=1e-3)
    sharded_already = memory_moves(load(POPART, *changes[:-1]))
    assert words in sharded_already.already
    assert words not in {move.words for move in sharded_already.moves}
    others = memory_moves(load(POPART, *changes, "system.host.framework=tensorflow1"))
    assert words not in {move.words for move in others.moves}


@pytest.mark.parametrize("ipus", [16, 64])
def test_bert_of_mlperf_fits_with_the_state_on_its_ipus_as_published(ipus):
    """MLPerf v2.0, closed: ``optimizer_state_offchip: false`` and ``replicated_tensor_sharding: true``."""
    (row,) = (row for row in read_throughputs(PUBLISHED) if f"v2.0 8437fbb7; ipu-pod{ipus}-POPART" in row.source)
    job = load_job(row.scenario, [*row.overrides, "memory=report"])
    assert job.program.offload.sharded_update
    assert not job.program.offload.weight_update_variables
    assert job.memory.fits is Fits.YES
