import io
import json
import math
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from ipusim.app.render.chrome_trace import write_chrome_trace
from ipusim.app.render.trace_clock import to_microseconds, to_nanoseconds
from ipusim.app.render.trace_content import TraceContent
from ipusim.pipeline.ops import Op, Pass

HOSTED = {"infeed": 30, "host_wait": 8, "outfeed": 15}


def written(timeline):
    file = io.BytesIO()
    write_chrome_trace(TraceContent(timeline), file.write)
    return file.getvalue()


def trace(timeline):
    return json.loads(written(timeline))["traceEvents"]


def threads(events):
    return {e["args"]["name"]: (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}


def times(event):
    """Start and end in nanoseconds."""
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


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


def test_slices_say_the_layers_of_stages_that_have_any(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    found = slices(trace(timeline.about(replace(timeline.info, layers=("dense, relu", "")))))
    said = {each["args"].get("layers") for each in found if each["args"].get("stage") == 0}
    assert (said, {"layers" in each["args"] for each in found if each["args"].get("stage") == 1}) == (
        {"dense, relu"},
        {False},
    )


def test_tracks_have_names_and_an_order(events):
    assert list(threads(events)) == [
        "phases",
        "IPU 0, stage 0",
        "IPU 1, stage 1",
        "IPU 2, stage 2",
        "IPU 3, stage 3",
        "0→1 rung",
        "1→0 rung",
        "infeed",
        "outfeed",
    ]
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["grouped by hand: grouped in lock-step on by_hand", "IPU-Links", "host"]
    order = [e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"]
    assert order == sorted(set(order))
    assert {(e["pid"], e["tid"]) for e in slices(events)} == set(threads(events).values())


def test_no_thread_is_taken_for_a_main_thread(events):
    """Perfetto calls a thread so that has the number of its process."""
    assert all(pid != tid for pid, tid in threads(events).values())


@pytest.mark.parametrize("whole", [round, math.floor])
@pytest.mark.parametrize("clock_hz", [1_600_000_000, 1_330_000_000, 1_850_000_000, 7])
def test_slices_of_a_track_never_overlap_in_whole_nanoseconds(lock_step, clock_hz, whole):
    tracks = defaultdict(list)
    events = trace(lock_step("interleaved", mapping=(0, 1), count=16, clock_hz=clock_hz, **HOSTED))
    for event in slices(events):
        if event["cat"] not in ("execution", "phase"):
            start, length = whole(event["ts"] * 1000), whole(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + length))
    assert len(tracks) == 6
    for track in tracks.values():
        track.sort()
        for (_, end), (following, _) in pairwise(track):
            assert end <= following


def test_phases_lie_in_their_executions(timeline, events):
    bands = [event for event in slices(events) if event["cat"] in ("execution", "phase")]
    assert [event["name"] for event in bands[:5]] == ["execution 0", "ramp-up", "main", "ramp-down", "weight update"]
    (start, end), *inside = map(times, bands[:5])
    assert [start, *(end for _, end in inside)] == [*(start for start, _ in inside), end]


def test_every_tensor_that_crosses_has_a_flow_from_its_maker_to_its_taker(timeline, events):
    owners = defaultdict(list)
    for event in slices(events):
        owners[event["pid"], event["tid"]].append(event)

    def around(flow):
        time = round(flow["ts"] * 1000)
        return next(
            event
            for event in owners[flow["pid"], flow["tid"]]
            if times(event)[0] <= time < times(event)[1] and event["cat"] == "pass"
        )

    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    found = Counter()
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["cat"], end["bp"]) == (end["name"], end["cat"], "e")
        assert start["ts"] <= end["ts"]
        source, target = Op.parse(around(start)["name"][:-1]), Op.parse(around(end)["name"][:-1])
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
    assert written(lock_step("interleaved", count=4)) == written(lock_step("interleaved", count=4))


def test_a_run_that_takes_no_time_keeps_its_passes(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    table = timeline._table.copy()
    table[:, 1] = table[:, 0] = 0
    found = slices(trace(type(timeline)(timeline.info, table)))
    assert Counter(event["cat"] for event in found)["pass"] == 16
    assert {event["dur"] for event in found} == {0}


def test_an_empty_timeline_is_a_file_of_names(lock_step):
    timeline = lock_step()
    assert {event["ph"] for event in trace(type(timeline)(timeline.info, timeline._table[:0]))} == {"M"}


def test_nanoseconds_are_exact_where_a_product_would_overflow():
    cycles = [0, 1, 2, 10**15 + 1, 2**59]
    for clock in (1_330_000_000, 1_850_000_000):
        exact = [Fraction(each * 10**9, clock) for each in cycles]
        found = to_nanoseconds(np.array(cycles), clock).tolist()
        assert all(abs(each - right) <= Fraction(1, 2) for each, right in zip(found, exact, strict=True))


def test_microseconds_give_back_their_nanoseconds_rounded_and_truncated():
    nanoseconds = np.concatenate([np.arange(100_000), np.random.default_rng(1).integers(0, 2**50, 100_000)])
    microseconds = np.array(to_microseconds(nanoseconds))
    nearest = nanoseconds / 1000
    assert (np.floor(nearest * 1000) < nanoseconds).any()  # the nearest number loses a nanosecond here and there
    np.testing.assert_array_equal(np.floor(microseconds * 1000), nanoseconds)
    np.testing.assert_array_equal(np.rint(microseconds * 1000), nanoseconds)
    for each, right in zip(microseconds[::997].tolist(), nanoseconds[::997].tolist(), strict=True):
        assert math.floor(Decimal(repr(each)) * 1000) == right


def test_neither_trace_files_nor_tables_load_matplotlib():
    modules = "ipusim.app.render.chrome_trace, ipusim.app.render.perfetto_trace, ipusim.app.render.tables"
    program = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
