"""What trace files and pictures show of point-to-point: sends beside IPUs, arrows to who takes them, waits, halves."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.analysis.phases import phases_of
from ipusim.app.render.content import content
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.legend import legend_entries
from ipusim.app.render.style import LOOK_OF_KIND
from ipusim.app.render.tables import ipu_table, summary_table
from ipusim.app.render.trace_tracks import lanes
from ipusim.app.render.window import execution_window
from ipusim.pipeline.ops import Op, Pass
from ipusim.timeline.kinds import SpanKind
from tests.drawn_pictures import words
from tests.scenarios import run, timeline
from tests.trace_files import perfetto_file

#: Passes far shorter than the way of what they make, so that many sends of an IPU overlap.
CROWDED = {"system": "m2000", "forward": 1000, "backward": 2000, "moved": 200_000}
RUNS = {
    "crowded": ("gpipe", CROWDED),
    "halves": ("zero_bubble_h1", {**CROWDED, "executions": 2}),
    "blocking": ("1f1b", {**CROWDED, "overlap_copies": False}),
    "several stages": ("interleaved_1f1b", {**CROWDED, "mapping": (0, 1, 0, 1), "count": 4}),
    "Graphcore's order": ("grouped", {**CROWDED, "sync": "point_to_point"}),
}


def written(found):
    """The Perfetto trace of a run, with links that say what they carry."""
    system = found.job.system
    return perfetto_file(
        found.timeline, (), lambda source, target: [link.label for link in system.route(source, target)]
    )


@pytest.fixture(params=RUNS)
def found(request):
    schedule, changes = RUNS[request.param]
    return run(schedule, **changes)


def most_at_once(start, end):
    """The most intervals that are open at any time, by going from border to border."""
    borders = sorted([(at, 1) for at in start] + [(at, -1) for at in end], key=lambda border: (border[0], border[1]))
    level = most = 0
    for _, change in borders:
        level += change
        most = max(most, level)
    return most


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 2)), max_size=40))
def test_lanes_are_as_many_as_overlap_at_most(intervals):
    start, length, group = np.array(sorted(intervals), dtype=np.int64).reshape(-1, 3).T
    lane = lanes(start, start + length, group)
    for each in np.unique(group):
        own = group == each
        assert set(lane[own]) == set(range(most_at_once(start[own].tolist(), (start + length)[own].tolist())))
        for number in np.unique(lane[own]):
            inside = own & (lane == number)
            assert ((start + length)[inside][:-1] <= start[inside][1:]).all()


def test_sends_that_overlap_are_many_in_the_crowded_run(read_perfetto):
    names = [track[-1] for track in read_perfetto(written(run("gpipe", **CROWDED))).tracks]
    assert {"sends", "sends 2", "sends 3"} <= set(names)


def test_arrows_go_from_a_send_to_the_pass_that_takes_it(found, read_perfetto):
    trace = read_perfetto(written(found))
    leaving = {number: each for each in trace.slices for number in each.leaving}
    arriving = {number: each for each in trace.slices for number in each.arriving}
    assert leaving.keys() == arriving.keys()
    shape = found.job.program.shape
    crossing = sum(one != other for one, other in pairwise(shape.mapping))
    assert len(leaving) == 2 * crossing * shape.micro_batches * found.job.executions
    for number, send in leaving.items():
        word, made = send.name.split(" ")
        taken = Op.parse(arriving[number].name[:-1])
        made = Op.parse(made)
        assert word == "send"
        assert made.micro_batch == taken.micro_batch
        assert taken.stage - made.stage == (1 if made.kind is Pass.FORWARD else -1)
        assert (made.kind is Pass.FORWARD) == (taken.kind is Pass.FORWARD)
        assert send.end_ns <= arriving[number].start_ns
        assert send.args["bytes"] == 200_000
        assert send.args["execution"] == arriving[number].args["execution"]
        assert "time_step" not in send.args


def test_links_say_what_they_carry(found, read_perfetto):
    carried = defaultdict(Counter)
    for each in read_perfetto(written(found)).slices:
        if "IPU-Links" in each.track:
            names = each.name.split(", ")
            carried[each.track[-1]].update(names)
            assert each.args["bytes"] == 200_000 * len(names)
    system, mapping = found.job.system, found.job.program.shape.mapping
    for source, (one, other) in enumerate(pairwise(mapping)):
        for here, there, kinds, stage in ((one, other, "F", source), (other, one, "BI", source + 1)):
            for link in system.route(here, there) if here != there else ():
                names = [name for name in carried[link.label] if name.split(" ")[1][0] in kinds]
                mine = [name for name in names if Op.parse(name.split(" ")[1]).stage == stage]
                assert len(mine) == found.job.program.shape.micro_batches
                assert {carried[link.label][name] for name in mine} == {found.job.executions}


def test_what_costs_nothing_to_send_leaves_from_its_pass(read_perfetto):
    free = run("1f1b")
    trace = read_perfetto(written(free))
    leaving = [each.name for each in trace.slices for _ in each.leaving]
    assert len(leaving) == 2 * 3 * 8
    assert {name[0] for name in leaving} == set("FB")
    assert not [track for track in trace.tracks if "sends" in track[-1]]


def test_the_trace_names_the_mode_and_counts_bytes_on_their_way(read_perfetto):
    trace = read_perfetto(written(run("1f1b", **CROWDED)))
    assert trace.tracks[0] == ("drawn: 1f1b in point-to-point on m2000",)
    bands = [each for each in trace.slices if each.category == "execution"]
    assert bands[0].args["sync"] == "point_to_point"
    (series,) = [values for track, values in trace.counters.items() if track[-1] == "bytes on their way"]
    levels = [value for _, value in series]
    assert levels[-1] == 0
    spans = run("1f1b", **CROWDED).timeline
    own = spans.kind == SpanKind.SEND
    area = sum(value * (after - at) for (at, value), (after, _) in pairwise(series))
    exact = int(((spans.end - spans.start) * spans.bytes)[own].sum())
    assert area == pytest.approx(float(Fraction(exact * 10**9, spans.info.clock_hz)), rel=1e-3)


def test_a_picture_shows_halves_waits_and_sends_with_their_numbers():
    spans = timeline("zero_bubble_h1", system="m2000", forward=100_000, backward=200_000, moved=1 << 20)
    shown = content(spans, execution_window(spans), 9.0)
    assert [entry.text for entry in legend_entries([shown])] == [
        *("forward", "gradient of the input", "gradients of the weights", "weight update"),
        *("wait for a tensor", "sync wait", "end of a phase"),
    ]
    found = words(execution_trace(spans))
    assert "drawn: zero_bubble_h1 in point-to-point, 4 IPUs, 4 stages, 8 micro-batches" in found
    assert Counter(found)["5"] == 4 * 3
    blocked = timeline("1f1b", system="m2000", forward=100_000, backward=200_000, moved=1 << 20, overlap_copies=False)
    assert "send" in [entry.text for entry in legend_entries([content(blocked, execution_window(blocked), 9.0)])]


def test_the_line_at_the_end_of_a_phase_is_interrupted_over_a_number():
    # The main phase ends at 2700, in the middle of a backward pass of IPU 1.
    assert [phase.end for phase in phases_of(timeline("1f1b")) if phase.name == "main"] == [2700]
    assert stretches(execution_trace(timeline("1f1b")), 2700) == [(0.0, 1.08), (1.92, 4.0)]
    shown = execution_trace(timeline("1f1b", sync="lock_step"))
    ends = [phase.end for phase in phases_of(timeline("1f1b", sync="lock_step"))][:-1]
    assert [stretches(shown, end) for end in ends] == [[(0.0, 4.0)]] * len(ends)


def stretches(figure, cycle):
    """From where to where a solid line is drawn over the rows at a cycle, in rows from the top."""
    lines = [patch for patch in figure.axes[-1].artists + figure.axes[-1].patches if patch.get_zorder() == 3]
    (solid,) = (line.get_path().vertices for line in lines if line.get_linestyle() == "solid")
    ends = [round(float(y), 9) for x, y in solid if x == cycle]
    return list(zip(ends[::2], ends[1::2], strict=True))


def test_no_bin_shows_an_ipu_at_work_long_before_it_is():
    """Where the busiest stage waits, its turns are far apart."""
    spans = timeline("1f1b", mapping=tuple(range(64)), count=200)
    shown = content(spans, execution_window(spans), 8.0)
    assert shown.shares
    for kind in (SpanKind.FORWARD, SpanKind.BACKWARD):
        for ipu in (0, 20, 63):
            drawn = shown.boxes.start[(shown.boxes.look == LOOK_OF_KIND[kind]) & (shown.boxes.ipu == ipu)].min()
            first = spans.start[(spans.kind == kind) & (spans.ipu == ipu)].min()
            assert first - spans.makespan_cycles / 100 < drawn <= first


def test_bins_of_gpipe_lie_in_both_of_its_halves():
    spans = timeline("gpipe", count=800)
    shown = content(spans, execution_window(spans), 8.0)
    backward = LOOK_OF_KIND[SpanKind.BACKWARD]
    assert shown.shares
    starts, ends = shown.boxes.start[shown.boxes.look == backward], shown.boxes.end[shown.boxes.look == backward]
    assert starts.min() == pytest.approx(80_300, rel=0.02), "where the last IPU begins with backward passes"
    assert (ends - starts).max() > 100_000


def test_tables_have_no_columns_of_what_the_mode_has_not():
    header = ipu_table(run("1f1b").summary).header
    waits = ("host wait", "sync wait", "wait for a tensor")
    assert header == ("IPU", "stages", "compute", "host I/O", *waits, "weight update")
    lock_step = ipu_table(run("1f1b", sync="lock_step").summary).header
    copies = ("exchange", "pre- and post-copy", "sync")
    assert lock_step == ("IPU", "stages", "compute", *copies, "host I/O", "host wait", "sync wait")
    assert "send" in ipu_table(run("1f1b", **CROWDED, overlap_copies=False).summary).header
    assert summary_table(run("1f1b").summary).rows[0] == ("schedule", "1f1b in point-to-point")
