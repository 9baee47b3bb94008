import itertools
import struct

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ipusim.render.comparison import comparison
from ipusim.render.content import content
from ipusim.render.figures import to_png, to_svg
from ipusim.render.style import DPI
from ipusim.render.window import execution_window

FOUR = {"mapping": (0, 1, 2, 3)}


def words(figure):
    return [text.get_text() for text in figure.texts]


def window(figure):
    """The cycles that all panels show; axes in front of them have points or seconds."""
    return {axes.get_xlim() for axes in figure.axes if axes.get_ylim()[1] == 0}


def bounds(figure):
    """Pixels of the PNG, bytes of the SVG."""
    figure.set_dpi(DPI)
    return *figure.canvas.get_width_height(), len(to_svg(figure))


def test_a_png_has_the_pixels_of_its_figure(lock_step):
    figure = comparison([lock_step("grouped", **FOUR, count=8)])
    assert struct.unpack(">II", to_png(figure)[16:24]) == bounds(figure)[:2]


@pytest.mark.parametrize("ipus", [8, 64, 256])
def test_a_comparison_is_bounded_however_many_ipus_it_has(lock_step, ipus):
    mapping = tuple(range(ipus))
    runs = [
        lock_step("grouped", mapping=mapping, count=2 * ipus),
        lock_step("interleaved", mapping=mapping, count=2 * ipus),
        lock_step("sequential", mapping=mapping, count=4),
        lock_step("sharded", mapping=mapping, count=4),
    ]
    width, height, svg = bounds(comparison(runs))
    assert width == 1800
    assert height <= 2400
    assert svg <= 2_500_000


def test_a_comparison_of_many_runs_shows_the_first_eight_and_says_so(lock_step):
    runs = [lock_step("grouped", mapping=(0, 1), count=4 * (1 + number % 4)) for number in range(20)]
    figure = comparison(runs, title="many")
    assert "many (the first 8 of 20 runs)" in words(figure)
    assert sum("cycles, " in word for word in words(figure)) == 8
    assert bounds(figure) == bounds(comparison(runs[:8], title="many (the first 8 of 20 runs)"))


def test_a_run_many_times_slower_is_cut_and_does_not_squeeze_the_others(lock_step):
    runs = [
        lock_step("grouped", **FOUR, count=16),
        lock_step("interleaved", **FOUR, count=16),
        lock_step("sequential", **FOUR, count=160),
    ]
    figure = comparison(runs)
    fast, second, slow = (run.makespan_cycles for run in runs)
    assert slow > 4 * fast
    assert window(figure) == {(0, second)}
    cut = [word for word in words(figure) if "cut" in word]
    assert cut == [next(word for word in words(figure) if word.startswith("sequential in lock-step: "))]
    assert cut[0].endswith(f"; cut: {second / slow:.1%} of it is shown")


def test_runs_of_similar_length_are_shown_whole(lock_step):
    runs = [lock_step("grouped", **FOUR, count=8), lock_step("sequential", **FOUR, count=8)]
    figure = comparison(runs, remarks=["out of memory", ""])
    assert window(figure) == {(0, runs[1].makespan_cycles)}
    assert not [word for word in words(figure) if "cut" in word]
    assert next(word for word in words(figure) if word.startswith("grouped")).endswith("; out of memory")


def test_few_boxes_stay_lines_and_many_become_an_image_with_text_beside_it(lock_step):
    few = comparison([lock_step("grouped", **FOUR, count=8)])
    assert b"<image" not in to_svg(few)
    mapping = tuple(range(64))
    many = comparison([lock_step(name, mapping=mapping, count=128) for name in ("grouped", "interleaved")])
    svg = to_svg(many)
    assert svg.count(b"<image") == 2
    assert svg.count(b'<g id="text_') > 20


def test_coarser_content_has_wider_bins_of_the_same_area(lock_step):
    run = lock_step("grouped", mapping=tuple(range(32)), count=640)
    fine, coarse = (content(run, execution_window(run), 9.0, coarser) for coarser in (1.0, 4.0))
    assert fine.shares
    assert coarse.shares
    edges = [len(np.unique(np.concatenate([shown.boxes.start, shown.boxes.end]))) for shown in (fine, coarse)]
    assert 2 * edges[1] < edges[0]
    areas = [
        ((shown.boxes.end - shown.boxes.start) * (shown.boxes.top - shown.boxes.bottom)).sum()
        for shown in (fine, coarse)
    ]
    assert areas[0] == pytest.approx(areas[1])


def test_in_thin_rows_a_share_is_seen_in_all_of_them_or_in_none(lock_step):
    mapping = tuple(range(64))
    figure = comparison([lock_step("sequential", mapping=mapping, count=4) for _ in range(4)])
    figure.set_dpi(180)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = next(axes for axes in figure.axes if axes.get_ylim()[1] == 0)
    edges = axes.transAxes.transform([(0, 1), (1, 0)])
    left, right = edges[:, 0].round().astype(int)
    bottoms = figure.bbox.height - np.linspace(*edges[:, 1], len(mapping) + 1)
    red, green, blue = np.moveaxis(np.asarray(canvas.buffer_rgba())[:, left + 5 : right - 5, :3].astype(int), -1, 0)
    exchanging = [  # the exchange alone is more green than red and than blue
        np.minimum(green - red, green - blue)[round(top) : round(bottom)].max() > 2
        for top, bottom in itertools.pairwise(bottoms.tolist())
    ]
    assert exchanging == [True] * len(mapping)
