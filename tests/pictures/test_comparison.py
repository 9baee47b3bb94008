import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ipusim.analysis.fit import fit
from ipusim.analysis.fullest_memory import fullest
from ipusim.analysis.memory import MemoryCurve, memory_curves, moment
from ipusim.app.compare.compare import compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import comparison_chart
from ipusim.app.compare.comparison_words import comparison_table
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.content import content
from ipusim.app.render.execution_trace import execution_trace, trace_with_path
from ipusim.app.render.figures import to_svg
from ipusim.app.render.fold import first_replica, fold_rows, replicas_alike, rows_of
from ipusim.app.render.layout import most_rows
from ipusim.app.render.memory_layers import most_in_bins
from ipusim.app.render.memory_strip import memory_strip
from ipusim.app.render.window import Window, execution_window
from ipusim.app.scenario.load import load_request
from ipusim.base.units import format_bytes
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Timeline
from tests.drawn_pictures import words
from tests.effort import rarest, sampled, seeds
from tests.scenarios import SCENARIOS, job_of

FOUR = {"mapping": (0, 1, 2, 3)}


def drawn(timelines, **how):
    return comparison([TracedRun(timeline) for timeline in timelines], **how)


def cycles(figure):
    """The cycles that each trace shows, from the top down."""
    return [axes.get_xlim() for axes in figure.axes if axes.get_ylim()[1] == 0]


@pytest.mark.parametrize("ipus", [8, 64, pytest.param(256, marks=rarest)])
def test_the_file_of_a_comparison_is_bounded_however_many_ipus_it_has(lock_step, ipus):
    mapping = tuple(range(ipus))
    runs = [
        lock_step("grouped", mapping=mapping, count=2 * ipus),
        lock_step("interleaved", mapping=mapping, count=2 * ipus),
        lock_step("sequential", mapping=mapping, count=4),
        lock_step("sharded", mapping=mapping, count=4),
    ]
    assert len(to_svg(drawn(runs))) <= 2_500_000


def test_a_comparison_of_many_runs_shows_the_first_eight_and_says_so(lock_step):
    runs = [lock_step("grouped", mapping=(0, 1), count=4 * (1 + number % 4)) for number in range(20)]
    figure = drawn(runs, title="many")
    assert "many (the first 8 of 20 runs)" in words(figure)
    assert sum("cycles, " in word for word in words(figure)) == 8
    assert to_svg(figure) == to_svg(drawn(runs[:8], title="many (the first 8 of 20 runs)"))


@pytest.mark.parametrize(
    ("runs", "whole", "cut"),
    [
        ([("grouped", 8), ("sequential", 8)], 1, ()),
        ([("grouped", 16), ("interleaved", 16), ("sequential", 160)], 1, (2,)),
        ([("grouped", 16), ("grouped", 64), ("grouped", 64)], 1, ()),
        ([("grouped", 16), ("grouped", 16), ("grouped", 64)], 0, (2,)),
    ],
    ids=["similar", "one that is many times slower", "two longer ones", "a third of the figure would be empty"],
)
def test_a_run_that_would_squeeze_the_others_or_leave_room_empty_is_cut(lock_step, runs, whole, cut):
    runs = [lock_step(name, **FOUR, count=count) for name, count in runs]
    figure, end = drawn(runs), runs[whole].makespan_cycles
    assert {*cycles(figure)} == {(0, end)}
    heads = [word for word in words(figure) if "cycles, " in word]
    for number, (run, head) in enumerate(zip(runs, heads, strict=True)):
        assert head.endswith(f"; cut: {end / run.makespan_cycles:.1%} of the trace is shown") == (number in cut)


def test_a_run_is_shown_up_to_its_first_weight_update(lock_step):
    """Ramps of the next execution would make a short run look longer than its heading says."""
    runs = [lock_step(name, **FOUR, count=8, executions=3) for name in ("grouped", "sequential")]
    figure = drawn(runs)
    short, long = (axes for axes in figure.axes if axes.get_ylim()[1] == 0)
    end = runs[0].makespan_cycles // 3
    boxes = [patch.get_path().get_extents().x1 for patch in [*short.patches, *short.artists]]
    assert max(boxes) == end < long.get_xlim()[1]
    names = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert names.count("weight update") == 2


def test_few_boxes_stay_lines_and_many_become_an_image_with_text_beside_it(lock_step):
    few = drawn([lock_step("grouped", **FOUR, count=8)])
    assert b"<image" not in to_svg(few)
    svg = to_svg(drawn([lock_step("interleaved", mapping=tuple(range(48)), count=96)] * 2))
    assert svg.count(b"<image") == 2
    assert svg.count(b'<g id="text_') > 20


def test_coarser_content_has_wider_bins(lock_step):
    run = lock_step("grouped", mapping=tuple(range(32)), count=640)
    fine, coarse = (content(run, execution_window(run), 9.0, coarser) for coarser in (1.0, 4.0))
    assert fine.shares
    assert coarse.shares
    edges = [len(np.unique(np.concatenate([shown.boxes.start, shown.boxes.end]))) for shown in (fine, coarse)]
    assert 2 * edges[1] < edges[0]


def test_in_thin_rows_a_share_is_seen_in_all_of_them_or_in_none(lock_step):
    mapping = tuple(range(256))
    figure = execution_trace(lock_step("sequential", mapping=mapping, count=4))
    figure.set_dpi(180)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = next(axes for axes in figure.axes if axes.get_ylim()[1] == 0)
    edges = axes.transAxes.transform([(0, 1), (1, 0)])
    left, right = edges[:, 0].round().astype(int)
    bottoms = figure.bbox.height - np.linspace(*edges[:, 1], len(mapping) + 1)
    colours = np.moveaxis(np.asarray(canvas.buffer_rgba())[:, left + 5 : right - 5, :3], -1, 0)
    red, green, blue = np.ascontiguousarray(colours, dtype=np.int16)
    greener = np.minimum(green - red, green - blue)
    exchanging = [  # the exchange alone is more green than red and than blue
        greener[round(top) : round(bottom)].max() > 2 for top, bottom in itertools.pairwise(bottoms.tolist())
    ]
    assert exchanging == [True] * len(mapping)


def test_a_run_far_shorter_than_most_has_an_axis_of_its_own(lock_step):
    short, *long = (lock_step("sequential", **FOUR, count=count) for count in (4, 400, 800))
    figure = drawn([short, *long])
    ends = [run.makespan_cycles for run in (short, *long)]
    assert cycles(figure) == [(0, ends[0]), (0, ends[2]), (0, ends[2])]
    heading = next(word for word in words(figure) if "separate axis" in word)
    assert heading.endswith(f"; on a separate axis, {ends[2] / ends[0]:,.0f} times as wide")
    labels = [axes.get_xlabel() for axes in figure.axes if "tile clock" in axes.get_xlabel()]
    assert len(labels) == 2, "its own, and that of the others"


def test_runs_of_different_clocks_share_seconds(lock_step):
    runs = [lock_step(**FOUR, count=8, clock_hz=clock) for clock in (1_000_000_000, 2_000_000_000)]
    figure = drawn(runs)
    end = runs[0].makespan_cycles
    assert cycles(figure) == [(0, end), (0, 2 * end)]
    assert [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()] == ["time in µs"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["µs"]


@pytest.mark.parametrize(("ipus", "runs", "together"), [(64, 1, 1), (64, 2, 1), (64, 4, 2), (16, 4, 1), (256, 8, 32)])
def test_rows_of_many_ipus_stand_for_several_each_and_say_so(lock_step, ipus, runs, together):
    schedule, count = ("grouped", 2 * ipus) if ipus <= 64 else ("sequential", 4)
    one = lock_step(schedule, mapping=tuple(range(ipus)), count=count)
    shown = fold_rows(one, most_rows(runs, 0) // runs, execution_window(one))
    assert (shown.ipus_to_a_row, rows_of(shown.timeline, shown.ipus_to_a_row)) == (together, ipus // together)
    assert shown.words == (f"{together} IPUs to a row" if together > 1 else "")
    assert shown.timeline is one
    if ipus == 64:
        figure = drawn([one] * runs)
        assert sum(f"{together} IPUs to a row" in word for word in words(figure)) == (runs if together > 1 else 0)
        rows = {axes.get_ylim()[0] for axes in figure.axes if axes.get_ylim()[1] == 0}
        assert rows == {ipus // together}


def test_a_row_of_several_ipus_has_the_area_of_all_of_them(lock_step):
    run = lock_step("grouped", mapping=tuple(range(8)), count=32)
    window = execution_window(run)

    def areas(together):
        boxes = content(run, window, 9.0, ipus_to_a_row=together).boxes
        area = (boxes.end - boxes.start) * (boxes.top - boxes.bottom)
        return np.bincount(boxes.look, area, minlength=20), set(boxes.ipu.tolist())

    spans = (run.end - run.start)[run.rows(SpanKind.FORWARD)].sum()
    two, rows = areas(2)
    assert rows == {0, 1, 2, 3}
    assert two[0] == pytest.approx(spans / 2, rel=0.01)
    np.testing.assert_allclose(two.sum(), 4 * window.cycles, rtol=0.01)


@pytest.fixture(scope="module")
def replicated():
    """A run of four equal replicas."""
    one = job_of("grouped", forward=9000, backward=20_000, held=1 << 20, system="pod16")
    return execute(assemble(one.request.replace({"system.auto_select_ipus": 16})))


def test_the_first_replica_is_a_timeline_of_its_own(replicated):
    whole, one = replicated.timeline, first_replica(replicated.timeline)
    assert (one.info.ipus, one.info.replicas) == (whole.info.ipus[:4], 1)
    own = [span for span in whole if span.replica in (0, -1) and span.ipu < 4]
    assert [span._replace(cause=-1) for span in own] == list(one)
    shown = execution_window(whole)
    assert fold_rows(whole, 64, shown).words == "4 equal replicas"
    assert fold_rows(whole, 2, shown).words == "4 equal replicas, 2 IPUs to a row"
    other = with_another_replica(whole)
    assert fold_rows(other, 64, shown).timeline is other
    assert fold_rows(other, 8, shown).words == "the first of 4 replicas"
    assert fold_rows(other, 2, shown).words == "the first of 4 replicas, 2 IPUs to a row"


def with_another_replica(timeline):
    """The same with one pass of the last replica that ends a cycle earlier."""
    table = np.array([tuple(span) for span in timeline])
    row = next(row for row, span in enumerate(timeline) if span.replica == 3 and span.kind == SpanKind.BACKWARD)
    table[row, 1] -= 1
    return Timeline(timeline.info, table)


@pytest.mark.parametrize("seed", seeds(20))
def test_replicas_are_alike_when_all_their_spans_are(replicated, seed):
    """Each replica's boxes against the first's, one by one; changed in any way at any place, each is drawn."""
    whole, shown = replicated.timeline, execution_window(replicated.timeline)
    assert replicas_alike(whole, shown)
    rng = np.random.default_rng(seed)
    table = np.array([tuple(span) for span in whole])
    on_ipu = [row for row, span in enumerate(whole) if span.ipu >= 0 and span.end > span.start]
    row, column = rng.choice(on_ipu), rng.choice([1, 2, 4, 5])  # end, kind, stage, micro-batch
    table[row, column] += 1 if table[row, column] == 0 else -1
    assert not replicas_alike(Timeline(whole.info, table), shown)
    assert replicas_alike(Timeline(whole.info, np.delete(table, row, axis=0)), Window(shown.end - 1, shown.end)) == (
        whole.end[row] < shown.end
    )
    assert not replicas_alike(Timeline(whole.info, np.delete(table, row, axis=0)), shown)


def test_of_replicas_that_are_alike_one_is_drawn_and_the_title_says_how_many(replicated):
    whole, other = replicated.timeline, with_another_replica(replicated.timeline)
    assert len(execution_trace(whole).axes[-1].get_yticks()) == 0
    assert execution_trace(whole).axes[-1].get_ylim() == (4, 0)
    assert any("4 equal replicas of 4 IPUs" in word for word in words(execution_trace(whole)))
    assert execution_trace(other).axes[-1].get_ylim() == (16, 0)
    assert any("4 replicas, 16 IPUs" in word for word in words(execution_trace(other)))


def test_the_path_of_all_replicas_lies_in_the_rows_of_the_one_that_is_drawn(replicated):
    timeline = replicated.timeline
    last = timeline.rows(SpanKind.BACKWARD)[-3:]
    assert timeline.ipu[last].max() >= 4
    chart = trace_with_path(timeline, last, Window(0, timeline.makespan_cycles))
    frames = [patch.get_path() for patch in chart.axes[-1].patches + chart.axes[-1].artists if patch.get_zorder() == 5]
    (path,) = frames
    assert np.unique(path.vertices[:, 0]).tolist() == np.unique([timeline.start[last], timeline.end[last]]).tolist()
    assert path.vertices[:, 1].max() < 4


def test_spans_of_the_path_that_follow_each_other_in_a_row_share_a_frame(lock_step):
    """A pass of IPU 0 and the meeting after it, a pass of IPU 1, and the last pass of IPU 0."""
    timeline = lock_step("grouped", mapping=(0, 1), count=8)
    first, *_, last = timeline.rows(SpanKind.FORWARD)[timeline.ipu[timeline.rows(SpanKind.FORWARD)] == 0]
    far = timeline.rows(SpanKind.BACKWARD)[0]
    after = np.flatnonzero((timeline.start == timeline.end[first]) & (timeline.end > timeline.start))
    (meeting,) = after[timeline.ipu[after] < 0]
    path = np.array([first, meeting, far, last])
    chart = trace_with_path(timeline, path, Window(0, timeline.makespan_cycles))
    (frames,) = [patch.get_path() for patch in chart.axes[-1].patches if patch.get_zorder() == 5]
    sides = [(shape[:, 0].min(), shape[:, 0].max()) for shape in frames.to_polygons(closed_only=False)]
    ends = [(first, meeting), (far, far), (last, last)]
    assert sides == [(timeline.start[begin], timeline.end[end]) for begin, end in ends]


@sampled(2)
@pytest.mark.parametrize(
    ("runs", "ipus", "memory"),
    [
        (2, 4, False),
        (8, 64, False),
        (8, 16, True),
        (8, 64, True),
        (20, 4, True),
        *(pytest.param(*case, marks=rarest) for case in [(8, 4, False), (8, 16, False), (20, 4, False)]),
        *(pytest.param(*case, marks=rarest) for case in [(2, 4, True), (8, 4, True)]),
    ],
)
def test_a_comparison_is_no_higher_than_a_screen_however_many_runs_it_has(lock_step, replicated, runs, ipus, memory):
    strip = strip_of(replicated, replicated.memory) if memory else None
    run = lock_step("interleaved", mapping=tuple(range(ipus)), count=max(16, ipus))
    figure = comparison([TracedRun(run, "a name that " + "is long " * 9, strip=strip)] * runs, title="many")
    width, height = figure.get_size_inches() * 85  # as a README shows it, 850 pixels wide
    assert (width, height <= 1020) == (850, True)
    rows = [axes.get_position().height * height / axes.get_ylim()[0] for axes in figure.axes if axes.get_ylim()[1] == 0]
    assert min(rows) >= 3, "pixels of a row"


def strip_of(run, held):
    curves = memory_curves(run.timeline, held.footprint)
    return memory_strip(run.timeline, curves, fullest(held.summary), moment(run.timeline, held.fullest))


def test_memory_over_time_lies_under_the_trace(replicated):
    strip = strip_of(replicated, replicated.memory)
    peak = replicated.memory.fullest
    assert (strip.fullest.ipu, strip.fullest.peak_bytes) == (peak.ipu, peak.bytes)
    figure = comparison([TracedRun(replicated.timeline, "named", "out of memory", strip)])
    assert "memory" in words(figure)
    assert ["; out of memory; " in word for word in words(figure) if "cycles, " in word] == [True]
    assert f"of IPU {peak.ipu}" in words(figure)
    assert "memory of the fullest IPU: live" in words(figure)
    assert not [word for word in words(figure) if word.startswith("an IPU's memory")], "out of sight"
    tops = [axes.get_ylim() for axes in figure.axes if axes.get_ylim()[1] > 1.06]
    assert tops == [(0, 1.06 * peak.bytes)]
    small = strip_of(replicated, fit(replicated.job.plan, replicated.memory.footprint, peak.bytes - 1))
    assert f"an IPU's memory, {format_bytes(peak.bytes - 1)}" in words(
        comparison([TracedRun(replicated.timeline, strip=small)])
    )


@sampled(2)
@pytest.mark.parametrize(
    "changes",
    [{}, {"pipeline.repeat_count": 3}, {"steps": 2, "pipeline.repeat_count": 2}, {"training": False}],
    ids=["one execution", "three", "two session runs", "inference"],
)
def test_a_headline_has_the_time_that_the_table_has(changes):
    """Headlines had the makespan, the weight update left out unsaid: 1.178 s over a table that said 1.183 s."""
    request = load_request(SCENARIOS / "data_parallel_4x4.yaml").replace({"numerics": "off", "steps": 1} | changes)
    found = Comparison(compare(request, ["grouped", "sequential"]))
    table = comparison_table(found)
    heads = [word.split(": ") for word in words(comparison_chart(found)) if "cycles, " in word]
    assert [name for name, _ in heads] == list(found.titles)
    for (_, head), row, cells in zip(heads, found.completed, table.rows, strict=True):
        cycles = row.times.throughput.weight_update_period_s * row.times.clock_hz
        time = f"{cells[1]} {table.header[1].removeprefix('time ')}"
        assert head.replace("µs", "us").partition("; ")[0] == f"{cycles:,.0f} cycles, {time}"


def test_memory_far_below_the_others_has_a_scale_of_its_own(replicated):
    strip = strip_of(replicated, replicated.memory)
    fullest = replace(strip.fullest, peak_bytes=20 * strip.fullest.peak_bytes)
    large = replace(strip, fullest=fullest, top_bytes=20 * strip.top_bytes)
    figure = comparison([TracedRun(replicated.timeline, strip=each) for each in (strip, large)])
    assert [word.endswith("; memory on a separate scale") for word in words(figure) if "cycles, " in word] == [
        True,
        False,
    ]


@given(st.data())
def test_bins_have_the_most_of_a_curve(data):
    steps = data.draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=12))
    time = np.cumsum([0, *(length for length, _ in steps[:-1])])
    live = np.array([level for _, level in steps])
    end = int(time[-1]) + steps[-1][0]
    curve = MemoryCurve(0, 7, time, live, np.zeros_like(live))
    edges = np.unique(data.draw(st.lists(st.integers(0, end), min_size=2, max_size=8, unique=True)))
    level = np.repeat(7 + live, [length for length, _ in steps])
    right = [level[low:high].max() for low, high in itertools.pairwise(edges.tolist())]
    assert most_in_bins(curve.time, curve.allocated_bytes, edges).tolist() == right
