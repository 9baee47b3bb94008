import gzip
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from ipusim.analysis.memory import memory_curves
from ipusim.app.render.packets import fill
from ipusim.app.render.trace_clock import to_nanoseconds
from ipusim.app.render.verdict import waterfall_words
from ipusim.app.run_folder.report import trace_file
from ipusim.app.scenario import load_job
from ipusim.pipeline.ops import Op, Pass
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.trace_files import perfetto_file as written

HOSTED = {"infeed": 30, "host_wait": 8, "outfeed": 15}


@pytest.fixture(scope="module")
def timeline(lock_step):
    return lock_step(
        "grouped", mapping=(0, 1, 2, 3), count=8, recompute=True, executions=2, ipus=(0, 1, 3, 2), **HOSTED
    )


@pytest.fixture(scope="module")
def trace(timeline, read_perfetto):
    return read_perfetto(written(timeline))


def test_tracks_are_nested_and_stand_in_the_order_of_logical_ipus(trace):
    run = "grouped by hand: grouped in lock-step on by_hand"
    assert trace.tracks == [
        (run,),
        (run, "phases"),
        (run, "IPU 0, stage 0"),
        (run, "IPU 1, stage 1"),
        (run, "IPU 2, stage 2"),
        (run, "IPU 3, stage 3"),
        (run, "busy IPUs"),
        (run, "micro-batches in flight"),
        (run, "bytes per merged copy"),
        (run, "IPU-Links"),
        (run, "IPU-Links", "0→1 rung"),
        (run, "IPU-Links", "1→0 rung"),
        (run, "host"),
        (run, "host", "infeed"),
        (run, "host", "outfeed"),
    ]
    groups = {(run,), (run, "IPU-Links"), (run, "host")}
    assert {each.track for each in trace.slices} | trace.units.keys() == set(trace.tracks) - groups
    ranks = [each.sibling_order_rank for each in trace.descriptors.values()]
    assert ranks == sorted(ranks)
    assert {each.child_ordering for each in trace.descriptors.values()} == {3}  # EXPLICIT
    said = [each.description for each in trace.descriptors.values() if each.name.startswith("IPU ")]
    assert said == [f"on physical IPU {physical}" for physical in (0, 1, 3, 2)]
    # Without processes and threads no viewer calls any of them a main thread.
    assert not any(each.HasField("process") or each.HasField("thread") for each in trace.descriptors.values())


@pytest.mark.parametrize(
    ("track", "change"), [("network", "system.host.count=2"), ("variables", "pipeline.variables_on_host=true")]
)
def test_what_is_of_a_host_is_of_none_of_its_replicas(track, change, read_perfetto):
    changes = ["numerics=off", "steps=1", "system.auto_select_ipus=8", "pipeline.repeat_count=1", change]
    found = read_perfetto(written(execute(load_job("scenarios/data_parallel_4x4.yaml", changes)).timeline)).tracks
    names = f"infeed of replica 0, outfeed of replica 0, {track}, infeed of replica 1, outfeed of replica 1"
    assert ", ".join(path[2] for path in found if path[1:2] == ("host",) and len(path) == 3) == names


def test_links_stand_in_the_order_of_their_ipus_not_of_their_names(lock_step, read_perfetto):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    info = type(timeline.info)(**{**vars(timeline.info), "links": ("10→8 rail", "2→0 rail")})
    found = read_perfetto(written(type(timeline)(info, timeline._table))).tracks
    assert [path[2] for path in found if len(path) == 3] == ["2→0 rail", "10→8 rail"]


def test_every_tensor_that_crosses_has_a_flow_from_its_maker_to_its_taker(trace):
    makers = {number: each for each in trace.slices for number in each.leaving}
    takers = {number: each for each in trace.slices for number in each.arriving}
    assert makers.keys() == takers.keys()
    found = Counter()
    for number, maker in makers.items():
        taker = takers[number]
        source, target = Op.parse(maker.name[:-1]), Op.parse(taker.name[:-1])
        assert (source.kind, source.micro_batch) == (target.kind, target.micro_batch)
        assert target.stage - source.stage == (1 if source.kind is Pass.FORWARD else -1)
        assert maker.end_ns <= taker.start_ns
        assert maker.track != taker.track
        assert maker.args["execution"] == taker.args["execution"]
        found[source] += 1
    assert set(found.values()) == {2}  # once in each execution
    assert len(found) == 8 * 2 * 3


def test_stages_of_one_ipu_hand_over_without_a_flow(lock_step, read_perfetto):
    one = read_perfetto(written(lock_step("single", mapping=(0, 0), count=4)))
    assert not [each for each in one.slices if each.leaving or each.arriving]
    two = read_perfetto(written(lock_step("grouped", mapping=(0, 0, 1), count=6)))
    crossing = Counter((each.name[:3], len(each.leaving)) for each in two.slices if each.leaving)
    assert crossing == {("F1.", 1): 6, ("B2.", 1): 6}


def test_slices_say_the_layers_of_stages_that_have_any(lock_step, read_perfetto):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    trace = read_perfetto(written(timeline.with_info(replace(timeline.info, layers=("dense, relu", "")))))
    said = {(each.args["stage"], each.args.get("layers")) for each in trace.slices if "stage" in each.args}
    assert said == {(0, "dense, relu"), (1, None)}


def test_each_copy_names_the_tensors_that_it_moves(trace):
    sent, received = Counter(), Counter()
    for each in trace.slices:
        if each.name == "inter-IPU copy":
            sent.update(each.args.get("sends", "").split(", "))
            received.update(each.args.get("receives", "").split(", "))
    made = {f"activations F{stage}.{number}" for stage in range(3) for number in range(8)}
    made |= {f"gradients B{stage}.{number}" for stage in range(1, 4) for number in range(8)}
    assert sent.keys() - {""} == received.keys() - {""} == made
    assert {sent[name] for name in made} == {received[name] for name in made} == {2}
    copies = (each for each in trace.slices if each.name == "inter-IPU copy")
    first = next(each for each in copies if each.track[1].startswith("IPU 0"))
    assert first.args["sends"] == "activations F0.0"
    assert "receives" not in first.args


def test_links_name_what_they_carry_on_their_way(read_perfetto):
    """IPUs 0 and 2 are not neighbours: what goes from 1 to 2 crosses a rung first."""
    result = execute(load_job("scenarios/recomputation.yaml", ["system.selection_order=ZIGZAG", "numerics=off"]))
    system = result.job.system
    links = {link.label for link in system.route(1, 2)}
    assert len(links) == 2
    routed = result.timeline, (), lambda source, target: [link.label for link in system.route(source, target)]
    shares = [each for each in read_perfetto(written(*routed)).slices if each.track[1] == "IPU-Links"]
    assert {each.track[2] for each in shares if "activations F1.0" in each.name.split(", ")} == links
    carried = result.timeline.bytes[result.timeline.rows(SpanKind.LINK)].sum()
    assert sum(each.args["bytes"] for each in shares) == carried


@pytest.fixture(scope="module")
def sixteen(read_perfetto):
    """A run of 16 IPUs, and what is read of its trace."""
    result = execute(load_job("scenarios/data_parallel_4x4.yaml", ["steps=1", "numerics=off"]))
    return result, read_perfetto(gzip.decompress(trace_file(result)))


def test_memory_of_every_ipu_is_a_counter_in_bytes(sixteen):
    result, trace = sixteen
    memory = {path: values for path, values in trace.counters.items() if path[-1] == "memory"}
    assert len(memory) == 16
    assert {trace.units[path] for path in memory} == {"UNIT_SIZE_BYTES"}
    assert trace.units[trace.tracks[0][0], "busy IPUs"] == "IPUs"
    curves = {curve.ipu: curve for curve in memory_curves(result.timeline, result.memory.footprint, replica=2)}
    for ipu, curve in curves.items():
        (path,) = (path for path in memory if re.match(rf"replica 2, IPU {ipu}\b", path[1]))
        assert max(value for _, value in memory[path]) == curve.allocated_bytes.max()
        assert "stage" in path[1]


def test_parts_of_the_time_are_counters_with_the_shares_of_the_verdict(sixteen):
    result, trace = sixteen
    parts = {path[-1]: values for path, values in trace.counters.items() if path[-1].startswith("time goes into ")}
    assert sum(cycles for ((_, cycles),) in parts.values()) == result.summary.waterfall.run_cycles
    told = waterfall_words(result.summary.waterfall)
    shares = [name.removeprefix("time goes into ").replace(", ", " ") for name in parts]
    assert [share for share in shares if share in told] == [share for share in shares if not share.endswith(" 0.0%")]


def test_counters_tell_the_state_at_each_time(lock_step, read_perfetto):
    trace = read_perfetto(written(lock_step("grouped", mapping=(0, 1), count=4, clock_hz=10**9)))
    series = {path[-1]: values for path, values in trace.counters.items()}
    assert series["busy IPUs"][:6] == [(0, 1), (100, 0), (130, 2), (230, 0), (260, 2), (360, 1)]
    assert max(value for _, value in series["micro-batches in flight"]) == 3
    assert series["bytes per merged copy"][:4] == [(110, 4096), (130, 0), (240, 4096), (260, 0)]
    assert all(values[-1][1] == 0 for values in series.values())


def hue(name):
    """The hue, of 360, in which Perfetto's UI draws slices of a name: its hash in JavaScript's numbers (v52)."""
    found = 18652613
    for letter in re.sub(r"( )?\d+", "", name):
        mixed = (found ^ ord(letter)) & 0xFFFFFFFF
        signed = mixed - (1 << 32) if mixed >> 31 else mixed
        found = int(16777619.0 * float(signed)) & 0xFFFFFFFF
        found = found - (1 << 32) if found >> 31 else found
    return abs(found) % 360


def test_perfetto_draws_passes_in_colours_far_apart():
    assert (hue("F1.3"), hue("B1.3")) == (356, 336)  # the letters alone are both pink
    passes = (kind.row.name for kind in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.RECOMPUTE))
    names = [f"{letter}1.3{arrow}" for letter, arrow in passes]
    for one, other in combinations([*names, SpanKind.SYNC_WAIT.row.name], 2):
        distance = abs(hue(one) - hue(other))
        assert min(distance, 360 - distance) >= 45, (one, other)


def test_a_run_that_takes_no_time_keeps_its_passes(lock_step, read_perfetto):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    table = timeline._table.copy()
    table[:, 1] = table[:, 0] = 0
    found = read_perfetto(written(type(timeline)(timeline.info, table))).slices
    assert Counter(each.category for each in found)["pass"] == 16
    assert {each.end_ns for each in found} == {0}


def test_an_empty_timeline_is_a_file_of_tracks(lock_step, read_perfetto):
    timeline = lock_step()
    trace = read_perfetto(written(type(timeline)(timeline.info, timeline._table[:0])))
    assert not trace.slices
    assert trace.tracks


def test_nanoseconds_are_exact_where_a_product_would_overflow():
    cycles = [0, 1, 2, 10**15 + 1, 2**59]
    for clock in (1_330_000_000, 1_850_000_000):
        exact = [Fraction(each * 10**9, clock) for each in cycles]
        found = to_nanoseconds(np.array(cycles), clock).tolist()
        assert all(abs(each - right) <= Fraction(1, 2) for each, right in zip(found, exact, strict=True))


def test_neither_trace_files_nor_tables_load_matplotlib():
    program = (
        "import sys, ipusim.app.render.perfetto_trace, ipusim.app.render.tables; print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("largest", [0, 127, 128, 2**28 - 1, 2**28, 2**35, 2**62])
def test_packets_hold_their_numbers_whatever_their_size(largest):
    def message(marks):
        trace = Trace()
        packet = trace.packet.add(timestamp=marks["time"])
        packet.track_event.counter_value = marks["value"]
        packet.track_event.flow_ids.extend([marks["flow"], marks["flow"]])
        return trace.SerializeToString()

    values = np.array([0, 1, largest // 2, largest])
    flows = np.array([1, 2**33, 3, 4])
    packets = [
        Trace.FromString(each).packet[0]
        for each in fill(message, {"time": values, "value": values[::-1]}, {"flow": flows})
    ]
    assert [packet.timestamp for packet in packets] == values.tolist()
    assert [packet.track_event.counter_value for packet in packets] == values[::-1].tolist()
    assert [list(packet.track_event.flow_ids) for packet in packets] == [[flow, flow] for flow in flows.tolist()]
