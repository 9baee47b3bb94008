"""Variables in Streaming Memory: what moving them takes, what memory it frees, and that nothing is learnt otherwise."""

from fractions import Fraction
from math import ceil

import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.pipeline.holders import Holder
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind

TIMED = """
system: {name: m2000, enable_remote_buffers: true, streaming_memory: {bandwidth: 20 GB/s, ipu_bandwidth: 16 GB/s}}
pipeline:
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 100, backward: 200, update: 50, parameter_bytes: 3 MB, state_bytes: 6 MB}
    - {name: b, forward: 100, backward: 200, update: 70, parameter_bytes: 1 MB, state_bytes: 2 MB}
"""
LAYERS = """
system: {name: m2000, enable_remote_buffers: true}
data: {type: synthetic, shape: [6], classes: 3, samples: 96}
model:
  layers:
    - {name: a, type: dense, units: 40, activation: tanh}
    - {name: b, type: dense, units: 30, activation: relu}
    - {name: c, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {schedule: grouped, splits: [b], micro_batch_size: 3, gradient_accumulation_count: 4, repeat_count: 3}
optimizer: {type: adam, learning_rate: 0.01}
"""
CLOCK = 1_330_000_000


def spans(timeline, kind, ipu=0):
    rows = [row for row in timeline.rows(kind) if timeline.ipu[row] == ipu]
    return [(int(timeline.start[row]), int(timeline.end[row]), int(timeline.bytes[row])) for row in rows]


def cycles(seconds):
    return ceil(seconds * CLOCK)


def test_ipus_share_the_memory_of_their_machine_and_one_alone_its_link(load):
    """6 MB and 2 MB at 20 GB/s together: 10 GB/s each for 2 MB, and then 16 GB/s for the 4 MB that are left."""
    result = execute(load(TIMED))
    timeline = result.timeline
    ((begin, end, size),) = spans(timeline, SpanKind.REMOTE_LOAD)
    ((other_begin, other_end, other_size),) = spans(timeline, SpanKind.REMOTE_LOAD, 1)
    assert (size, other_size) == (6_000_000, 2_000_000)
    assert begin == other_begin
    both = cycles(Fraction(2_000_000, 10**10))
    assert other_end - other_begin == both
    left = 6_000_000 - Fraction(both, CLOCK) * 10**10
    # b stores its state while a still loads, from both + 70 cycles on
    alone = 70
    left -= Fraction(alone, CLOCK) * 16 * 10**9
    store = cycles(Fraction(2_000_000, 10**10))
    assert spans(timeline, SpanKind.REMOTE_STORE, 1) == [
        (other_end + alone, other_end + alone + store, 2_000_000),
    ]
    left -= Fraction(store, CLOCK) * 10**10
    assert end - begin == both + alone + store + cycles(left / (16 * 10**9))
    assert result.summary.weight_update_cycles == end - begin + 50 + cycles(Fraction(6_000_000, 16 * 10**9))


def test_only_the_weight_update_becomes_longer(load):
    off, on = (execute(load(TIMED, f"pipeline.offload_weight_update_variables={word}")) for word in ("false", "true"))
    assert off.summary.makespan_cycles == on.summary.makespan_cycles
    assert off.summary.weight_update_cycles == 70
    assert not len(off.timeline.rows(SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE))
    assert on.summary.run_use[0].cycles["remote"] == sum(
        end - start
        for kind in (SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE)
        for start, end, _ in spans(on.timeline, kind, 0)
    )


@pytest.mark.parametrize(
    ("schedule", "kind"), [("sequential", SpanKind.BACKWARD), ("zero_bubble_h1", SpanKind.WEIGHT_GRADIENT)]
)
def test_accumulators_come_and_go_with_every_pass_that_adds_to_them(load, schedule, kind):
    """Where a backward pass runs in halves, that is the second one alone."""
    text = TIMED.replace("backward: 200", "backward: 200, backward_input: 120, backward_weights: 80")
    asked = "offload_gradient_accumulation_buffers=true", "offload_weight_update_variables=false"
    result = execute(load(text, f"pipeline.schedule={schedule}", *(f"pipeline.{each}" for each in asked)))
    for ipu, size in ((0, 3_000_000), (1, 1_000_000)):
        passes, loads, stores = (
            spans(result.timeline, of, ipu) for of in (kind, SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE)
        )
        assert len(passes) == 4
        assert [end for _, end, _ in loads[:4]] == [start for start, *_ in passes]
        assert [start for start, *_ in stores] == [end for _, end, _ in passes]
        assert [size for *_, size in loads] == [size] * 5  # the weight update reads them too
        if schedule == "sequential":  # where IPUs move nothing at the same time, at 16 GB/s
            moving = cycles(Fraction(size, 16 * 10**9))
            assert {end - start for start, end, _ in (*loads[:4], *stores)} == {moving}
            assert result.summary.pipeline_use[ipu].cycles["remote"] == 8 * moving


@pytest.mark.parametrize("hosts", [1, 2])
def test_accumulators_come_before_they_are_summed_up(load, hosts):
    """State comes behind the sum, as the weight update alone needs it."""
    replicas = "system.auto_select_ipus=4", f"system.host.count={hosts}"
    for kept, first in (("weight_update_variables", True), ("gradient_accumulation_buffers", False)):
        offloaded = (
            "pipeline.offload_gradient_accumulation_buffers=true",
            "pipeline.offload_weight_update_variables=true",
        )
        timeline = execute(load(TIMED, *replicas, *offloaded, f"pipeline.offload_{kept}=false")).timeline
        (update, *_) = spans(timeline, SpanKind.WEIGHT_UPDATE)
        last = spans(timeline, SpanKind.REMOTE_LOAD)[-1]
        sums = timeline.rows(SpanKind.ALL_REDUCE, SpanKind.HOST_SUM)
        assert len(sums) == (1 if hosts == 1 else 3)  # over replicas, and then to the network and back
        if first:
            assert last[1] <= timeline.start[sums].min()
            assert timeline.end[sums].max() <= update[0]
        else:
            assert timeline.end[sums].max() <= last[0]
            assert last[1] <= update[0]


def test_what_leaves_the_ipu(load):
    plain, state, both = (
        execute(load(LAYERS, *changes)).memory
        for changes in (
            ("pipeline.offload_weight_update_variables=false",),
            (),
            ("pipeline.offload_gradient_accumulation_buffers=true",),
        )
    )
    weights = 4 * (6 * 40), 4 * 40  # of layer a, the first stage: W and b, each more than 128 bytes
    own = sum(weights)

    def held(fit, holder):
        return dict(fit.footprint.ipus[0].resident)[holder]

    assert [held(fit, Holder.STATE) for fit in (plain, state, both)] == [2 * own, 0, 0]
    assert [held(fit, Holder.ACCUMULATORS) for fit in (plain, state, both)] == [own, own, 0]
    assert [fit.footprint.ipus[0].remote_bytes for fit in (plain, state, both)] == [0, 2 * own, 3 * own]
    loaded = 2 * weights[0]  # the state of one variable at a time, of the largest one
    assert [fit.footprint.stages[0].update_bytes for fit in (plain, state, both)] == [0, loaded, loaded + own]
    assert both.footprint.stages[0].backward_bytes - state.footprint.stages[0].backward_bytes == own


def test_small_tensors_stay(load):
    """Layer c has 30 x 3 weights and a bias of 12 bytes, below the least size."""
    fit = execute(load(LAYERS)).memory
    last = fit.footprint.ipus[1]
    assert dict(last.resident)[Holder.STATE] == 2 * 12 + 2 * 120  # the biases of c, and of b: 120 bytes
    assert last.remote_bytes == 2 * 4 * (40 * 30 + 30 * 3)
    everything = execute(load(LAYERS, "system.minimum_remote_tensor_size=1 B")).memory.footprint.ipus[1]
    assert dict(everything.resident)[Holder.STATE] == 0


def test_memory_over_time_holds_the_state_during_the_update_only(load):
    result = execute(load(TIMED))
    told = result.summary.to_dict()["memory"]["ipus"][0]
    assert (told["peak_pass"], told["remote_bytes"]) == ("weight update", 6_000_000)
    assert told["peak_bytes"] == 2 * 3_000_000 + 6_000_000
    start = spans(result.timeline, SpanKind.REMOTE_LOAD)[0][0]
    assert told["peak_cycle"] == start


def test_figures_of_a_memory_that_is_not_used_are_refused(load):
    with pytest.raises(ScenarioError, match="expected enable_remote_buffers: true with figures of the Streaming"):
        load(TIMED, "system.enable_remote_buffers=false")


def test_inference_has_no_weight_update_to_offload_for(load):
    text = LAYERS.replace("optimizer: {type: adam, learning_rate: 0.01}\n", "")
    asked = load(text, "pipeline.offload_weight_update_variables=true")
    assert asked.notes == ("offload_weight_update_variables will have no effect since this pipeline is in inference.",)
    others = ("offload_gradient_accumulation_buffers", "allow_recompute")
    assert load(text, *(f"pipeline.{name}=true" for name in others)).notes == tuple(
        f"{name} will have no effect since this pipeline is in inference." for name in others
    )
    assert load(text).notes == ()
    result = execute(asked)
    assert result.memory.footprint.ipus[0].remote_bytes == 0
    assert not len(result.timeline.rows(SpanKind.REMOTE_LOAD))


def test_options_that_stages_known_by_their_cost_or_no_host_take_up_are_named(load):
    (note,) = load(TIMED, "pipeline.gradient_accumulation_dtype=float32").notes
    assert note.startswith("gradient_accumulation_dtype will have no effect since stages with only costs")
    (note,) = load(TIMED, "system.host.updates_optimizer=every session run").notes
    assert note.startswith("updates_optimizer will have no effect since no framework's host is simulated")
    assert load(TIMED, "system.host.updates_optimizer=never", "system.host.framework=popart").notes == ()
    (note,) = load(TIMED, "system.host.optimizer_values=4", "system.host.framework=popart").notes
    assert note.startswith("optimizer_values will have no effect since the framework is not pytorch")
    for option in ("segments=4", "overlapped=max", "overlap_copies=false"):
        (note,) = load(TIMED, f"pipeline.{option}").notes
        assert note.startswith(f"{option.partition('=')[0]} will have no effect since ")
