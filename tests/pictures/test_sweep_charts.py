"""Charts of sweeps: points without a value, legends within the picture and off the lines, units and ceilings."""

import numpy as np
import pytest

from ipusim.app.render.sweep import Panel, sweep_chart
from ipusim.app.render.sweep_panel import ChartAxis, Limit
from ipusim.app.scenario.load import load_request
from ipusim.app.sweep.ceiling import ceilings
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.measures import THROUGHPUT, measure_of, on_chart
from ipusim.app.sweep.report import chart_of, verdict
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from tests.scenarios import SCENARIOS

COUNT = "pipeline.gradient_accumulation_count"
FOUR = load_request(SCENARIOS / "schedules_four_ipus.yaml")
COUNTS = ChartAxis("count", (8, 12, 16), True)


def lines_of(names, counts=COUNTS.values):
    """The axes and points of a line for each name."""
    axes = [ChartAxis("count", tuple(counts), True), ChartAxis("schedule", tuple(names), False)]
    return axes, [(count, name) for name in names for count in counts]


def swept(varied):
    return sweep(FOUR, axes_of(varied), crew=Crew(workers=1))


def chart(axes, points, values, ran=None, **options):
    """Draw one panel of points; ``ran`` is by default where there is a value."""
    ran = ran or [value is not None for value in values]
    return sweep_chart(axes, points, [Panel("loss", values)], fits=ran, has_run=ran, **options)


def legend_of(panel):
    return [text.get_text() for text in panel.get_legend().get_texts()]


def signs_of(panel):
    """The lines that are signs: their markers are outlines of characters."""
    return [line for line in panel.get_lines() if not isinstance(line.get_marker(), str) and len(line.get_xdata())]


def test_a_refused_point_breaks_its_own_line_and_has_its_colour():
    found = swept({"pipeline.schedule": ["grouped", "1f1b"], COUNT: [8, 12, 16]})
    for panel in chart_of(found, ceilings(found), THROUGHPUT).get_axes():
        grouped, other = (line for line in panel.get_lines() if str(line.get_label()).startswith("schedule"))
        assert [*np.isnan(grouped.get_ydata())] == [False, True, False]
        assert not np.isnan(other.get_ydata()).any()
        (sign,) = signs_of(panel)
        assert ([*sign.get_xdata()], sign.get_color()) == ([12], grouped.get_color())
        left, right = panel.get_xlim()
        assert left < 8
        assert right > 16


def test_signs_of_several_lines_at_one_point_are_beside_each_other():
    axes, points = lines_of("ab")
    (panel,) = chart(axes, points, [1, None, 2, 3, None, 4]).get_axes()
    low, high = (line.get_transform().transform((12, 0)) for line in signs_of(panel))
    assert high[1] - low[1] == pytest.approx(8 / 72 * panel.get_figure().dpi)


@pytest.mark.parametrize(
    ("axes", "points"),
    [
        ([COUNTS], [(8,), (12,), (16,)]),
        ([ChartAxis("name", ("a", "b", "c"), False)], [("a",), ("b",), ("c",)]),
    ],
)
def test_what_ran_without_a_finite_value_is_told_from_what_did_not_run(axes, points):
    (panel,) = chart(axes, points, [1.0, None, None], ran=[True, True, False]).get_axes()
    assert legend_of(panel) == ["did not run", "ran, has no finite value"]
    refused, not_finite = signs_of(panel)
    assert (len(refused.get_xdata()), len(not_finite.get_xdata())) == (1, 1)
    assert len(refused.get_marker().vertices) != len(not_finite.get_marker().vertices)


def test_a_heat_map_tells_them_apart_too():
    axes = [COUNTS, ChartAxis("size", (1, 2, 4), True)]
    points = [(count, size) for count in (8, 12, 16) for size in (1, 2, 4)]
    panel, _ = chart(axes, points, [1.0] * 7 + [None] * 2, ran=[True] * 8 + [False]).get_axes()
    assert panel.get_title("right") == "×: did not run; ?: ran, has no finite value"
    assert [text.get_text() for text in panel.texts][-2:] == ["?", "×"]


@pytest.mark.parametrize(("columns", "are_written"), [(8, True), (41, False)])
def test_a_heat_map_has_numbers_if_they_fit_into_its_cells(columns, are_written):
    axes = [ChartAxis("count", tuple(range(columns)), True), ChartAxis("size", (1, 2, 4), True)]
    points = [(count, size) for count in range(columns) for size in (1, 2, 4)]
    panel, _ = chart(axes, points, [123_456.0 + count for count, _ in points]).get_axes()
    assert len(panel.texts) == (len(points) if are_written else 0)
    cell = panel.bbox.width / columns
    assert all(text.get_window_extent().width < cell for text in panel.texts)


def test_the_circle_is_in_the_legend_where_one_is_drawn():
    axes, points = lines_of("ab")
    for near, entries in ((None, ["ceiling"]), ((12, 4.0), ["ceiling", "95 % of it"])):
        limits = [Limit(("a",), 5.0, None), Limit(("b",), 6.0, near)]
        (panel,) = chart(axes, points, [1, 2, 3, 3, 4, 5], limits=limits).get_axes()
        assert legend_of(panel)[2:] == entries


@pytest.mark.parametrize(("level", "words"), [(0.00833, "0.00833"), (0.667, "0.667"), (443_333.3, "443,333")])
def test_a_ceiling_has_the_digits_of_the_text(level, words):
    values = [level / 2, level / 1.5, level / 1.1]
    (panel,) = chart([COUNTS], [(8,), (12,), (16,)], values, limits=[Limit((), level, None)]).get_axes()
    assert [text.get_text() for text in panel.texts] == [f"ceiling: {words}"]


def test_the_legend_of_bars_is_within_the_picture_and_above_the_bars():
    syncs = [
        f"sync {sync}, system.name {name}" for sync in ("lock_step", "point_to_point") for name in ("a", "b" * 200)
    ]
    axes = [ChartAxis("schedule", tuple("abcde"), False), ChartAxis("with", tuple(syncs), False)]
    points = [(schedule, sync) for schedule in "abcde" for sync in syncs]
    (panel,) = chart(axes, points, [1.0] * len(points)).get_axes()
    box = panel.get_legend().get_window_extent()
    assert panel.bbox.x0 < box.x0 < box.x1 < panel.bbox.x1
    assert box.y0 > panel.transData.transform((0, 1.0))[1]


def crossing(panel):
    box = panel.get_legend().get_window_extent()
    paths = [line.get_transform().transform_path(line.get_path()) for line in panel.get_lines()]
    return any(path.intersects_bbox(box, filled=False) for path in paths)


def test_lines_keep_off_the_legend_or_are_covered_by_it():
    names = tuple("abcdefg")
    axes, points = lines_of(names)
    heights = [3.9, 3.0, 3.8, 4.0, 1.05, 4.2, 4.3]
    values = [height * part for height in heights for part in (0.8, 0.9, 1.0)]
    limits = [Limit((name,), height * 1.05, None) for name, height in zip(names, heights, strict=True)]
    (panel,) = chart(axes, points, values, limits=limits).get_axes()
    assert not crossing(panel)
    assert not panel.get_legend().get_frame_on()
    axes, everywhere = lines_of([name * 40 for name in names], range(101, 131))
    (panel,) = chart(axes, everywhere, [5.0 * (count % 2) for count, _ in everywhere]).get_axes()
    assert crossing(panel)
    assert panel.get_legend().get_frame_on()
    assert panel.get_legend().get_frame().get_alpha() == 1


def test_words_at_a_level_have_a_white_ground():
    panels = [Panel("fullest IPU, MiB", [5.0, 6.0], (4.0, "an IPU has 4 MiB"))]
    names = ChartAxis("name", ("a", "b"), False)
    (panel,) = sweep_chart([names], [("a",), ("b",)], panels, fits=[False] * 2, has_run=[True] * 2).get_axes()
    (words,) = panel.texts
    assert words.get_bbox_patch().get_facecolor() == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("most", "scale", "unit"), [(8070.0, 1, "s"), (0.2, 1e3, "ms"), (1.5e-6, 1e6, "µs"), (2.5e-7, 1e9, "ns")]
)
def test_times_are_in_the_unit_of_the_largest(most, scale, unit):
    for name, words in (("time", "time per weight update"), ("makespan", "makespan")):
        factor, label = on_chart(measure_of(name), most)
        assert factor == pytest.approx(scale)
        assert label == f"{words}, {unit}"


def test_options_of_one_key_have_names_of_their_own():
    first, second, _ = FOUR.options.pipeline.stages[:3]
    paths = [f"pipeline.stages.{stage.name}.forward" for stage in (first, second)]
    found = swept({path: [1000, 2000] for path in paths})
    names = [f"{stage.name}.forward" for stage in (first, second)]
    assert found.words((1000, 2000)) == f"{names[0]} 1000, {names[1]} 2000"
    (panel,) = chart_of(found, (), THROUGHPUT).get_axes()
    assert panel.get_xlabel() == names[0]
    assert legend_of(panel) == [f"{names[1]} {value}" for value in (1000, 2000)]


def test_one_point_is_one():
    found = swept({COUNT: [8]})
    assert verdict(found, (), THROUGHPUT)[0].startswith("Best of 1 point by throughput: ")
    assert verdict(found, (), measure_of("loss", losses=True))[0] == "The only point has no value of loss."
