"""Traces and comparisons: names, numbers in boxes, and what a file has; bytes are the same under any settings."""

import re
import xml.etree.ElementTree as ET
from collections import defaultdict

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ipusim.app.render import figures
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import to_pdf, to_png, to_svg
from ipusim.app.render.picture import Picture
from ipusim.app.render.window import Window, execution_window, phase_window
from ipusim.app.scenario import load_job
from ipusim.base.errors import OutputError
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.drawn_pictures import assert_legible, drawn_texts, words
from tests.effort import rarest, sampled, slowest
from tests.scenarios import SCENARIOS

FOUR = {"mapping": (0, 1, 2, 3)}
HOST = {"infeed": 30, "host_wait": 8, "outfeed": 15}


PICTURES = {
    "two IPUs": lambda build: execution_trace(build("grouped", mapping=(0, 1), count=16, **HOST)),
    "grouped": lambda build: execution_trace(build("grouped", **FOUR, count=16, ipus=(0, 1, 3, 2))),
    "interleaved": lambda build: execution_trace(build("interleaved", **FOUR, count=8, recompute=True)),
    "sequential": lambda build: execution_trace(build("sequential", **FOUR, count=4)),
    "one IPU": lambda build: execution_trace(build("single", mapping=(0, 0), count=8)),
    "an idle IPU": lambda build: execution_trace(build("grouped", mapping=(0, 1, 0), count=6, ipus=(0, 1, 2, 3))),
    "short ramps": lambda build: execution_trace(build("grouped", mapping=(0, 1), count=128, update=1)),
    "ten executions": lambda build: execution_trace(build("grouped", mapping=(0, 1), count=16, executions=10)),
    "very many executions": lambda build: execution_trace(build("grouped", mapping=(0, 1), count=4, executions=70)),
    "64 IPUs": lambda build: execution_trace(build("grouped", mapping=tuple(range(64)), count=128)),
    "comparison": lambda build: comparison(
        [TracedRun(build(name, **FOUR, count=8)) for name in ("grouped", "interleaved", "sequential")]
    ),
    "two clocks": lambda build: comparison(
        [TracedRun(build(**FOUR, count=8, clock_hz=clock), f"at {clock} Hz") for clock in (10**9, 1_600_000_000)]
    ),
    "axes of their own": lambda build: comparison(
        [
            TracedRun(
                build(name, **FOUR, count=count), remark="a remark of some length, so that the line is broken " * 2
            )
            for name, count in (("grouped", 8), ("sequential", 256), ("sharded", 256), ("sequential", 2000))
        ]
    ),
    "a comparison of 64 IPUs": lambda build: comparison(
        [
            TracedRun(build(name, mapping=tuple(range(64)), count=count))
            for name, count in (("grouped", 128), ("interleaved", 128), ("sharded", 4))
        ]
    ),
}


@sampled(2)
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_overlaps_another_or_is_cut_off(lock_step, name):
    figure = PICTURES[name](lock_step)
    found = drawn_texts(figure)
    assert len(found) > 5
    assert_legible(figure, found)


@pytest.mark.parametrize("name", ["two IPUs", "one IPU", "an idle IPU", "interleaved"])
def test_numbers_lie_within_their_boxes(lock_step, name):
    figure = PICTURES[name](lock_step)
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    axes = max(figure.axes, key=lambda axes: len(axes.texts))
    numbers = [text for text in axes.texts if re.fullmatch(r"[\d.]+", text.get_text())]
    assert len(numbers) > 20
    rectangles = [
        (*axes.transData.transform(polygon).min(axis=0), *axes.transData.transform(polygon).max(axis=0))
        for patch in axes.findobj(PathPatch)
        if patch.get_facecolor()[3]
        for polygon in patch.get_path().to_polygons()
    ]
    for number in numbers:
        box = number.get_window_extent(canvas.get_renderer())
        assert any(x0 <= box.x0 and box.x1 <= x1 and y0 <= box.y0 and box.y1 <= y1 for x0, y0, x1, y1 in rectangles)


def test_a_trace_names_its_phases_ipus_and_what_it_shows(lock_step):
    found = words(execution_trace(lock_step("grouped", **FOUR, count=16, ipus=(0, 1, 3, 2), **HOST)))
    for text in ("ramp-up", "main", "ramp-down", "weight update", "IPU 0", "IPU 2", "µs", "forward"):
        assert text in found
    assert "grouped by hand: grouped in lock-step, 4 IPUs, 4 stages, 16 micro-batches" in found
    assert "recomputation" not in found
    assert found.count("15") == 8  # forward and backward on four IPUs


def test_stages_that_share_an_ipu_are_told_apart(lock_step):
    found = words(execution_trace(lock_step("grouped", mapping=(0, 1, 0), count=6)))
    assert {"0.3", "2.3", "1.3", "stage0, stage2"} <= set(found)


def test_short_phases_still_have_their_names(lock_step):
    found = words(PICTURES["short ramps"](lock_step))
    assert {"ramp-up", "main", "ramp-down"} <= set(found)


def test_where_names_have_no_room_they_are_short_then_executions(lock_step, monkeypatch):
    with monkeypatch.context() as unchecked:  # the words below the axes have no room
        unchecked.setattr(figures, "_check_legible", lambda *_: None)
        narrow = Picture(size="2.6x4in")
        short = words(execution_trace(lock_step("grouped", **FOUR, count=8), title="", picture=narrow))
    assert {"up", "down", "update"} <= set(short)
    assert "execution 9" in words(PICTURES["ten executions"](lock_step))


def test_zoom_shows_only_the_window(lock_step):
    timeline = lock_step("grouped", **FOUR, count=64)
    shown = phase_window(timeline, "ramp-down")
    figure = execution_trace(timeline, shown.start, shown.end)
    found = words(figure)
    assert "ramp-down" in found
    assert "ramp-up" not in found
    assert "0" not in [text for text in found if text.isdigit()]
    assert figure.axes[-1].get_xlim() == (shown.start, shown.end)


def test_comparison_refuses_nothing_to_compare():
    with pytest.raises(OutputError, match="expected at least one run to compare, got none"):
        comparison([])


@pytest.mark.parametrize(
    ("name", "to_bytes"),
    [
        ("grouped", to_png),
        ("comparison", to_svg),
        ("one IPU", to_pdf),
        pytest.param("grouped", to_svg, marks=rarest),
        pytest.param("grouped", to_pdf, marks=rarest),
        pytest.param("comparison", to_png, marks=rarest),
        pytest.param("comparison", to_pdf, marks=rarest),
    ],
)
def test_equal_figures_are_equal_bytes_under_any_settings(lock_step, to_bytes, name):
    first = to_bytes(PICTURES[name](lock_step))
    with mpl.rc_context({"font.size": 20, "lines.linewidth": 7, "svg.fonttype": "none", "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        assert to_bytes(PICTURES[name](lock_step)) == first
        assert dict(mpl.rcParams) == before


def test_no_file_has_a_date_and_svg_is_well_formed(lock_step):
    figure = PICTURES["one IPU"](lock_step)
    svg, pdf = to_svg(figure), to_pdf(figure)
    assert svg.count(b"font-family") == 1, "texts inherit the fonts"
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<dc:date>" not in svg
    assert b"Date" not in pdf


def test_dots_of_a_hatch_are_arcs_in_svg_at_the_same_places(monkeypatch):
    """Of curves each dot takes 400 bytes, and a hatch of 600 dots most of a picture."""
    chart = figures.Chart(figsize=(2, 1))
    chart.add_artist(PathPatch(Path.unit_rectangle(), hatch="....", facecolor="white"))
    made = to_svg(chart)
    monkeypatch.setattr(figures, "_DOT", re.compile(rb"nothing"))
    curves = to_svg(chart)
    centres = [
        (float(x), (float(low) + float(high)) / 2)
        for x, low, high in re.findall(rb"M (\S+) (\S+) \n(?:C .*\n){3}C (?:\S+ ){5}(\S+) \n(?:C .*\n){4}z", curves)
    ]
    dots = re.findall(rb"M(\S+) (\S+?)a(\S+) (\S+) 0 0 0 0-(\S+?)a\3 \4 0 0 0 0 \5z", made)
    assert len(dots) > 100
    for (x, low, radius, _, way), (across, down) in zip(dots, centres, strict=True):
        assert (float(x), float(low) - float(radius)) == pytest.approx((across, down), abs=1e-6)
        assert float(way) == 2 * float(radius)
    assert len(made) < len(curves) / 4


def test_no_figure_is_left_open(lock_step):
    to_png(PICTURES["one IPU"](lock_step))
    import matplotlib._pylab_helpers as helpers  # noqa: PLC0415

    assert not helpers.Gcf.figs


PASSES = (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.RECOMPUTE)


def written(timeline, shown):
    """For each row and kind of pass, rising: the micro-batches whose numbers are drawn, and those in the window."""
    drawn, there = defaultdict(set), defaultdict(set)
    passes = timeline.rows(*PASSES)
    for row in passes[(timeline.start[passes] >= shown.start) & (timeline.end[passes] <= shown.end)]:
        there[int(timeline.ipu[row]), int(timeline.kind[row])].add(int(timeline.micro_batch[row]))
    for text in execution_trace(timeline, shown.start, shown.end).axes[-1].texts:
        if re.fullmatch(r"(\d+\.)?\d+", text.get_text()):
            (x, y), number = text.get_position(), int(text.get_text().split(".")[-1])
            same = passes[(timeline.ipu[passes] == int(y)) & (timeline.micro_batch[passes] == number)]
            row = same[np.abs((timeline.start[same] + timeline.end[same]) / 2 - x).argmin()]
            drawn[int(y), int(timeline.kind[row])].add(number)
    return {key: (sorted(drawn[key] & held), sorted(held)) for key, held in there.items()}


def is_regular(drawn, there):
    """Whether all, every second, fifth, tenth and so on, always with the first and the last, are drawn; or none."""
    strides = [factor * power for power in (1, 10, 100) for factor in (1, 2, 5)]
    ends = {there[0], there[-1]}
    choices = [sorted({number for number in there if number % stride == 0} | ends) for stride in strides]
    return not drawn or drawn in choices


ALL = ("tutorial_step3_pipelining", "recomputation", "optimizer_state_offload", "overlapped_io", "concurrent_stages")


@pytest.mark.parametrize("name", ALL)
def test_numbers_do_not_stop_at_nine(name):
    timeline = execute(load_job(SCENARIOS / f"{name}.yaml", ["steps=1", "numerics=off"])).timeline
    found = written(timeline, execution_window(timeline))
    assert any(drawn for drawn, _ in found.values())
    for key, (drawn, there) in found.items():
        assert not drawn or drawn == there, key


@sampled(2)
@pytest.mark.parametrize(
    ("schedule", "count"),
    [
        ("grouped", 8),
        ("interleaved", 16),
        ("sequential", 24),
        ("interleaved", 40),
        ("grouped", 64),
        ("grouped", 104),
        ("sequential", 160),
        ("interleaved", 240),
        *(pytest.param("grouped", count, marks=slowest) for count in (16, 24, 40, 160, 240)),
        *(pytest.param("interleaved", count, marks=slowest) for count in (8, 24, 64, 104, 160)),
        *(pytest.param("sequential", count, marks=slowest) for count in (8, 16, 40, 64, 104, 240)),
    ],
)
def test_each_row_has_all_numbers_or_a_regular_selection_or_none(lock_step, schedule, count):
    timeline = lock_step(schedule, mapping=(0, 1, 2, 3), count=count, forward=[100, 60, 200, 30], backward=170)
    for shown in (execution_window(timeline), phase_window(timeline, "main")):
        for key, (drawn, there) in written(timeline, shown).items():
            assert is_regular(drawn, there), (key, drawn, there)


def test_of_too_many_numbers_there_is_a_selection(lock_step):
    timeline = lock_step("grouped", mapping=tuple(range(32)), count=160, training=False, sync=0, exchange=0)
    found = written(timeline, Window(5_000, 10_000))
    assert all(0 < len(drawn) < len(there) for drawn, there in found.values())
    assert all(is_regular(drawn, there) for drawn, there in found.values())
