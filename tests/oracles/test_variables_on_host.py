"""The weight update on the host: what it moves and takes, the memory that it frees, and that all learn alike."""

import gzip
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
from tests.oracles.test_offload import CLOCK, LAYERS, TIMED

INFEED, FILL, OUTFEED, DRAIN = 3_300_000_000, 7_060_000_000, 3_760_000_000, 2_930_000_000
ON_HOST = "pipeline.variables_on_host=true"


@pytest.fixture
def load(load):
    return lambda text, *changes: load(text, "system={name: m2000}", *changes)


def cycles(size, rate):
    return ceil(size * CLOCK / rate)


def test_gradients_go_to_the_host_which_updates_and_weights_come_back(load):
    """The largest copy of an IPU counts, as all copy at once: 3 MB of gradients, and 3 MB of weights."""
    job = load(TIMED, ON_HOST)
    cost = job.costs.host_update
    assert (cost.gradients, cost.weights) == (4_000_000, 4_000_000)
    assert (cost.write, cost.read) == (cycles(3_000_000, OUTFEED), cycles(3_000_000, INFEED))
    assert cost.apply == cycles(3_000_000, DRAIN) + cycles(3_000_000, FILL)
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


def test_ipus_hold_no_state_of_the_optimizer_and_the_host_no_streaming_memory(load):
    held = {}
    for name, more in (("host", [ON_HOST]), ("ipu", [])):
        footprint = load(LAYERS, *more).memory.footprint
        held[name] = [dict(ipu.resident) for ipu in footprint.ipus]
        assert not any(ipu.remote_bytes for ipu in footprint.ipus)
    for ours, plain in zip(held["host"], held["ipu"], strict=True):
        assert ours[Holder.STATE] == 0 < plain[Holder.STATE]
        assert ours[Holder.PARAMETERS] == plain[Holder.PARAMETERS]
        assert ours[Holder.ACCUMULATORS] == plain[Holder.ACCUMULATORS]


def test_hosts_sum_up_what_they_have_from_ipus_before_they_update(load):
    """Over the network gradients stay on the hosts; over links they go to the hosts behind the sum."""
    hosts = ON_HOST, "system.host.count=2"
    over_network, over_links = (
        load(TIMED, *hosts, f"system.host.sum_over={way}").costs for way in ("network", "links")
    )
    assert over_network.host_sum.read == over_network.host_update.write == 0 < over_network.host_sum.write
    assert over_links.host_update.write == cycles(3_000_000, OUTFEED)
    summed = execute(load(TIMED, *hosts)).timeline
    (there,) = summed.rows(SpanKind.HOST_SUM)  # and nothing comes back but weights
    assert summed.end[there] - summed.start[there] == over_network.host_sum.write
    assert len(summed.rows(SpanKind.HOST_UPDATE)) == 1
    assert summed.end.max() > execute(load(TIMED, ON_HOST)).timeline.end.max()


@pytest.mark.parametrize(
    "option",
    ["offload_weight_update_variables", "replicated_optimizer_state_sharding", "replicated_weight_sharding"],
)
def test_ipus_have_no_part_of_the_update(load, option):
    remote = ON_HOST, "system.enable_remote_buffers=true", "system.auto_select_ipus=4"
    with pytest.raises(ScenarioError, match=f"{option}: expected false or absent with variables_on_host"):
        load(TIMED, *remote, f"pipeline.{option}=true")
    assert not load(TIMED, *remote).program.offload.weight_update_variables


def test_a_host_that_has_no_weights_to_send_ends_the_run(load):
    """Its work is the end of the critical path: what IPUs do last is to wait for it."""
    timeline = execute(
        load(
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


def test_gradients_in_streaming_memory_come_to_the_ipu_before_they_go_to_any_host(load):
    asked = "system.enable_remote_buffers=true", "pipeline.offload_gradient_accumulation_buffers=true"
    job = load(TIMED, ON_HOST, *asked, "system.host.count=2", "system.auto_select_ipus=4")
    (_, ending), *_ = [line.rsplit("; load", 1) for line in job.plan.listing().splitlines()]
    assert [each.strip() for each in ending.split(";")][1:] == ["all-reduce", "host-sum", "host-update", "end"]
    timeline = execute(job).timeline
    loads = timeline.rows(SpanKind.REMOTE_LOAD)[-4:]
    (there,) = timeline.rows(SpanKind.HOST_SUM)
    assert set(timeline.ipu[loads]) == {0, 1, 2, 3}
    assert timeline.end[loads].max() <= timeline.start[timeline.rows(SpanKind.ALL_REDUCE)] < timeline.start[there]


def test_inference_has_no_update(load):
    job = load(LAYERS, ON_HOST, "optimizer=none")
    assert job.notes == ("variables_on_host will have no effect since this pipeline is in inference.",)
    assert job.costs.host_update is None


def test_the_trace_shows_the_hosts_work(load, read_perfetto):
    trace = read_perfetto(gzip.decompress(trace_file(execute(load(TIMED, ON_HOST)))))
    assert "variables" in {track[-1] for track in trace.tracks}
    assert sum(each.name == "weight update on the host" for each in trace.slices) >= 2
