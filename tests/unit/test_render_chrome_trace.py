import io
import json
import subprocess
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from ipusim.analysis.summary import summarise
from ipusim.pipeline.ops import Op, Pass
from ipusim.render.chrome_trace import HOST, IPUS, LINKS, write_trace
from ipusim.render.trace_clock import UNITS, to_units

HOSTED = {"infeed": 30, "host_wait": 8, "outfeed": 15}


def trace(timeline):
    file = io.BytesIO()
    write_trace(timeline, file)
    return json.loads(file.getvalue())["traceEvents"]


def slices(events):
    return [event for event in events if event["ph"] == "X"]


@pytest.fixture(scope="module")
def timeline(lock_step):
    return lock_step(
        "grouped", mapping=(0, 1, 2, 3), count=8, recompute=True, executions=2, ipus=(0, 1, 3, 2), **HOSTED
    )


@pytest.fixture(scope="module")
def events(timeline):
    return trace(timeline)


def test_tracks_have_names_and_an_order(events):
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names[IPUS, 1] == "IPU 0"
    assert names[IPUS, 3] == "IPU 2 (on 3)"
    assert names[LINKS, 1] == "0→1 rung"
    assert names[HOST, 2] == "outfeed"
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"IPUs", "IPU-Links", "host"}
    ordered = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_sort_index"}
    assert ordered == set(names)
    assert {(e["pid"], e["tid"]) for e in slices(events)} <= set(names)


def test_times_rise_through_the_file(events):
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    assert all(event["ph"] == "M" for event in events[: len(events) - len(times)])


@pytest.mark.parametrize("clock_hz", [1_600_000_000, 1_330_000_000, 1_850_000_000, 7])
def test_slices_of_a_track_never_overlap(lock_step, clock_hz):
    tracks = defaultdict(list)
    for event in slices(trace(lock_step("interleaved", mapping=(0, 1), count=16, clock_hz=clock_hz, **HOSTED))):
        tracks[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
    assert len(tracks) == 6
    for track in tracks.values():
        track.sort()
        for (start, length), (following, _) in pairwise(track):
            assert start + length <= following  # in floating point, as viewers add


def test_slices_carry_their_exact_cycles(timeline, events):
    unit = Fraction(timeline.info.clock_hz, 10**6 * UNITS)  # cycles to a unit of the file
    for event in slices(events):
        args = event["args"]
        for cycles, microseconds in (
            (args["start_cycles"], event["ts"]),
            (args["end_cycles"], event["ts"] + event["dur"]),
        ):
            assert abs(Fraction(microseconds) * UNITS * unit - cycles) <= unit / 2


def test_slices_add_up_to_the_summary(timeline, events):
    busy = Counter()
    for event in slices(events):
        kind = event["name"][0] if event["name"][0].isupper() else event["name"]
        busy[event["pid"], event["tid"], kind] += event["args"]["end_cycles"] - event["args"]["start_cycles"]
    for use in summarise(timeline).run_use:
        track = IPUS, use.ipu + 1
        assert busy[*track, "F"] == use.forward_cycles
        assert busy[*track, "B"] == use.backward_cycles
        assert busy[*track, "R"] == use.recompute_cycles
        assert busy[*track, "weight update"] == use.weight_update_cycles
        assert busy[*track, "sync"] == use.sync_cycles
        assert busy[*track, "exchange"] == use.exchange_cycles
        assert busy[*track, "infeed"] + busy[*track, "outfeed"] == use.host_transfer_cycles
        assert busy[*track, "host wait"] == use.host_wait_cycles
        assert busy[*track, "sync wait"] == use.sync_wait_cycles


def test_bytes_of_links_add_up_to_the_timelines(timeline, events):
    carried = sum(event["args"]["bytes"] for event in slices(events) if event["pid"] == LINKS)
    assert carried == timeline.bytes[timeline.rows(6)].sum()
    assert not any("bytes" in event["args"] for event in slices(events) if event["name"] == "exchange")


def test_every_tensor_that_crosses_has_a_flow_from_its_maker_to_its_taker(timeline, events):
    owners = {}
    for event in slices(events):
        owners.setdefault((event["pid"], event["tid"]), []).append(event)

    def around(flow):
        return next(
            event
            for event in owners[flow["pid"], flow["tid"]]
            if event["ts"] <= flow["ts"] and (flow["ts"] < event["ts"] + event["dur"])
        )

    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    found = Counter()
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["cat"], end["bp"]) == (end["name"], end["cat"], "e")
        assert start["ts"] <= end["ts"]
        source, target = Op.parse(around(start)["name"]), Op.parse(around(end)["name"])
        assert source.kind == target.kind
        assert source.micro_batch == target.micro_batch
        assert target.stage - source.stage == (1 if source.kind is Pass.FORWARD else -1)
        assert start["tid"] != end["tid"]
        assert around(start)["args"]["execution"] == around(end)["args"]["execution"]
        found[source] += 1
    assert set(found.values()) == {2}  # once in each execution
    assert len(found) == 8 * 2 * 3


def test_stages_of_one_ipu_hand_over_without_a_flow(lock_step):
    assert not [event for event in trace(lock_step("single", mapping=(0, 0), count=4)) if event["ph"] in "sf"]
    crossing = [event for event in trace(lock_step("grouped", mapping=(0, 0, 1), count=6)) if event["ph"] == "s"]
    assert Counter(event["name"] for event in crossing) == {"activations": 6, "gradients": 6}


def test_counters_tell_the_state_at_each_time(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4, clock_hz=1_000_000)
    series = defaultdict(list)
    for event in trace(timeline):
        if event["ph"] == "C":
            series[event["name"]].append((event["ts"], *event["args"].values()))
    assert series["busy IPUs"][:6] == [(0, 1), (100, 0), (130, 2), (230, 0), (260, 2), (360, 1)]
    assert max(value for _, value in series["micro-batches in flight"]) == 3
    assert series["bytes per merged copy"][:4] == [(110, 4096), (130, 0), (240, 4096), (260, 0)]
    assert all(values[-1][1] == 0 for values in series.values())


def test_equal_timelines_give_equal_bytes(lock_step):
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        write_trace(lock_step("interleaved", mapping=(0, 1), count=4), file)
    assert files[0].getvalue() == files[1].getvalue()


def test_a_run_that_takes_no_time_keeps_its_passes(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    table = timeline._table.copy()
    table[:, 1] = table[:, 0] = 0
    found = slices(trace(type(timeline)(timeline.info, table)))
    assert len(found) == 16
    assert {event["dur"] for event in found} == {0}


def test_an_empty_timeline_is_a_file_of_names(lock_step):
    timeline = lock_step()
    assert {event["ph"] for event in trace(type(timeline)(timeline.info, timeline._table[:0]))} == {"M"}


def test_units_are_exact_where_a_product_would_overflow():
    cycles = [0, 1, 2, 10**15 + 1, 2**59]
    for clock in (1_330_000_000, 1_850_000_000):
        exact = [Fraction(each * 1024 * 10**6, clock) for each in cycles]
        found = to_units(np.array(cycles), clock).tolist()
        assert all(abs(unit - each) <= Fraction(1, 2) for unit, each in zip(found, exact, strict=True))


def test_neither_trace_files_nor_tables_load_matplotlib():
    program = "import sys, ipusim.render.chrome_trace, ipusim.render.tables; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
