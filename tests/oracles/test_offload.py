"""Variables in Streaming Memory or on the host: what moving and updating them takes, and what memory it frees."""

import gzip
from fractions import Fraction
from math import ceil

import pytest

from ipusim.analysis.critical_path import critical_path_of
from ipusim.app.run_folder.report import trace_file
from ipusim.app.scenario.problems import ScenarioError
from ipusim.pipeline.holders import Holder
from ipusim.runs.execute import execute
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import ALL_IPUS

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


INFEED, FILL, OUTFEED, DRAIN = 3_300_000_000, 7_060_000_000, 3_760_000_000, 2_930_000_000
ON_HOST = "pipeline.variables_on_host=true"


@pytest.fixture
def on_m2000(load):
    return lambda text, *changes: load(text, "system={name: m2000}", *changes)


def copying(size, rate):
    return ceil(size * CLOCK / rate)


def test_gradients_go_to_the_host_which_updates_and_weights_come_back(on_m2000):
    """The largest copy of an IPU counts, as all copy at once: 3 MB of gradients, and 3 MB of weights."""
    job = on_m2000(TIMED, ON_HOST)
    cost = job.costs.host_update
    assert (cost.gradients, cost.weights) == (4_000_000, 4_000_000)
    assert (cost.write, cost.read) == (copying(3_000_000, OUTFEED), copying(3_000_000, INFEED))
    assert cost.apply == copying(3_000_000, DRAIN) + copying(3_000_000, FILL)
    assert job.costs.updates == {0: 0, 1: 0}
    assert "are ignored" in job.notes[-1]
    timeline = execute(job).timeline
    out, back = timeline.rows(SpanKind.HOST_UPDATE)
    assert set(timeline.ipu[[out, back]]) == {ALL_IPUS}
    assert timeline.end[out] - timeline.start[out] == cost.write
    assert timeline.start[back] - timeline.end[out] == cost.apply
    assert timeline.end[back] - timeline.start[back] == cost.read
    assert timeline.end[back] == timeline.end.max()
    assert not len(timeline.rows(SpanKind.WEIGHT_UPDATE))
    (wait,) = timeline.rows(SpanKind.HOST_WAIT)
    assert (timeline.start[wait], timeline.end[wait]) == (timeline.end[out], timeline.start[back])


def test_ipus_hold_no_state_of_the_optimizer_and_the_host_no_streaming_memory(on_m2000):
    held = {}
    for name, more in (("host", [ON_HOST]), ("ipu", [])):
        footprint = on_m2000(LAYERS, *more).memory.footprint
        held[name] = [dict(ipu.resident) for ipu in footprint.ipus]
        assert not any(ipu.remote_bytes for ipu in footprint.ipus)
    for ours, plain in zip(held["host"], held["ipu"], strict=True):
        assert ours[Holder.STATE] == 0 < plain[Holder.STATE]
        assert ours[Holder.PARAMETERS] == plain[Holder.PARAMETERS]
        assert ours[Holder.ACCUMULATORS] == plain[Holder.ACCUMULATORS]


def test_hosts_sum_up_what_they_have_from_ipus_before_they_update(on_m2000):
    """Over the network gradients stay on the hosts; over links they go to the hosts behind the sum."""
    hosts = ON_HOST, "system.host.count=2"
    over_network, over_links = (
        on_m2000(TIMED, *hosts, f"system.host.sum_over={way}").costs for way in ("network", "links")
    )
    assert over_network.host_sum.read == over_network.host_update.write == 0 < over_network.host_sum.write
    assert over_links.host_update.write == copying(3_000_000, OUTFEED)
    summed = execute(on_m2000(TIMED, *hosts)).timeline
    (there,) = summed.rows(SpanKind.HOST_SUM)  # and nothing comes back but weights
    assert summed.end[there] - summed.start[there] == over_network.host_sum.write
    assert len(summed.rows(SpanKind.HOST_UPDATE)) == 1
    assert summed.end.max() > execute(on_m2000(TIMED, ON_HOST)).timeline.end.max()


@pytest.mark.parametrize(
    "option",
    ["offload_weight_update_variables", "replicated_optimizer_state_sharding", "replicated_weight_sharding"],
)
def test_ipus_have_no_part_of_the_update(on_m2000, option):
    remote = ON_HOST, "system.enable_remote_buffers=true", "system.auto_select_ipus=4"
    with pytest.raises(ScenarioError, match=f"{option}: expected false or absent with variables_on_host"):
        on_m2000(TIMED, *remote, f"pipeline.{option}=true")
    assert not on_m2000(TIMED, *remote).program.offload.weight_update_variables


def test_a_host_that_has_no_weights_to_send_ends_the_run(on_m2000):
    """Its work is the end of the critical path: what IPUs do last is to wait for it."""
    timeline = execute(
        on_m2000(
            TIMED.replace("parameter_bytes: 3 MB", "accumulator_bytes: 3 MB").replace("parameter_bytes: 1 MB, ", ""),
            ON_HOST,
        )
    ).timeline
    (wait,) = timeline.rows(SpanKind.HOST_WAIT)
    work, sent, *_ = critical_path_of(timeline).rows[::-1]
    assert timeline.end[wait] == timeline.end[work] == timeline.makespan_cycles
    assert (timeline.kind[work], timeline.link[work]) == (SpanKind.HOST, HostTrack.VARIABLES)
    assert timeline.kind[sent] == SpanKind.HOST_UPDATE
    assert timeline.cause[wait] == timeline.cause[work] == sent


def test_gradients_in_streaming_memory_come_to_the_ipu_before_they_go_to_any_host(on_m2000):
    asked = "system.enable_remote_buffers=true", "pipeline.offload_gradient_accumulation_buffers=true"
    job = on_m2000(TIMED, ON_HOST, *asked, "system.host.count=2", "system.auto_select_ipus=4")
    (_, ending), *_ = [line.rsplit("; load", 1) for line in job.plan.listing().splitlines()]
    assert [each.strip() for each in ending.split(";")][1:] == ["all-reduce", "host-sum", "host-update", "end"]
    timeline = execute(job).timeline
    loads = timeline.rows(SpanKind.REMOTE_LOAD)[-4:]
    (there,) = timeline.rows(SpanKind.HOST_SUM)
    assert set(timeline.ipu[loads]) == {0, 1, 2, 3}
    assert timeline.end[loads].max() <= timeline.start[timeline.rows(SpanKind.ALL_REDUCE)] < timeline.start[there]


def test_inference_has_no_update(on_m2000):
    job = on_m2000(LAYERS, ON_HOST, "optimizer=none")
    assert job.notes == ("variables_on_host will have no effect since this pipeline is in inference.",)
    assert job.costs.host_update is None


def test_the_trace_shows_the_hosts_work(on_m2000, read_perfetto):
    trace = read_perfetto(gzip.decompress(trace_file(execute(on_m2000(TIMED, ON_HOST)))))
    assert "variables" in {track[-1] for track in trace.tracks}
    assert sum(each.name == "weight update on the host" for each in trace.slices) >= 2
