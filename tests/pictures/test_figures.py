import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ipusim.app.render import figures
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import to_pdf, to_png, to_svg
from ipusim.app.render.picture import Picture
from ipusim.app.render.window import phase_window
from ipusim.base.errors import OutputError
from tests.drawn_pictures import assert_legible, drawn_texts, words
from tests.effort import rarest, sampled

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


def test_short_phases_still_have_their_names(lock_step):
    found = words(PICTURES["short ramps"](lock_step))
    assert {"ramp-up", "main", "ramp-down"} <= set(found)


def test_no_text_overlaps_another_in_a_narrow_figure(lock_step):
    figure = execution_trace(lock_step("grouped", **FOUR, count=8), picture=Picture(size="3.2x4in"))
    assert_legible(figure, drawn_texts(figure))


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


def test_svg_is_well_formed_and_holds_no_date(lock_step):
    svg = to_svg(PICTURES["grouped"](lock_step))
    assert svg.count(b"font-family") == 1, "texts inherit the fonts"
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<dc:date>" not in svg


def test_a_dense_run_stays_small_as_svg(lock_step):
    assert len(to_svg(PICTURES["64 IPUs"](lock_step))) < 1_000_000


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
