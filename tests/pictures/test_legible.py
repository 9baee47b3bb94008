"""All pictures of the gallery, as a README shows them: what is written can be read, and lines keep off it."""

import itertools
from functools import cache

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text

from ipusim.app.render.lettering import text_width
from ipusim.app.render.style import DPI, TEXT_SIZE, luminance
from tests.drawn_pictures import (
    PICTURES,
    assert_same_picture,
    contrast,
    drawn_of,
    figure,
    figure_pixels,
    overlaps,
    panels,
    pixels,
    png,
)
from tests.effort import sampled, slowest

#: Pixels of the width that GitHub gives a picture in a README.
README_WIDTH = 850
#: Part of the height of a text's extent, above and below, that none of its letters but those with tails reach.
_WITHOUT_TAILS = 0.2

drawn_pictures = pytest.mark.parametrize("name", drawn_of(PICTURES))


@cache
def texts(name):
    """All texts that a picture draws, each with its extent in pixels, (x0, y0, x1, y1)."""
    drawn = figure(name)
    FigureCanvasAgg(drawn)
    found = [text for text in drawn.findobj(Text) if text.get_visible() and text.get_text().strip()]
    shown = [text for text in found if text.axes is None or text.axes.axison or text in text.axes.texts]
    return [(text, extent_of(text)) for text in shown]


@cache
def extent_of(text):
    return text.get_window_extent().extents


def letters(text, extent):
    """The extent without what is left for tails of letters."""
    x0, y0, x1, y1 = extent
    if text.get_rotation():
        return np.array([x0 + _WITHOUT_TAILS * (x1 - x0), y0, x1 - _WITHOUT_TAILS * (x1 - x0), y1])
    return np.array([x0, y0 + _WITHOUT_TAILS * (y1 - y0), x1, y1 - _WITHOUT_TAILS * (y1 - y0)])


@sampled(2)
@pytest.mark.parametrize("name", drawn_of(PICTURES, slowest))
def test_a_picture_is_as_its_scenario_runs_now(name):
    assert_same_picture(png(name), f"{name}.png")


@sampled(2)
@drawn_pictures
def test_no_text_lies_over_another(name):
    assert overlaps([(text.get_text(), letters(text, extent)) for text, extent in texts(name)]) == []


@drawn_pictures
def test_numbers_of_neighbouring_boxes_do_not_run_together(name):
    """Two pixels of a README's picture lie between them at least."""
    drawn = figure(name)
    gap = 2 * drawn.bbox.width / README_WIDTH
    for axes in panels(drawn):
        rows = {}
        for text in axes.texts:
            if text.get_text()[0].isdigit():
                x0, _, x1, _ = extent_of(text)
                # Of an upright number the extent has room for tails, which digits have not.
                middle, half = (x0 + x1) / 2, (x1 - x0) / 2
                if text.get_rotation():
                    half = 0.73 * text.get_fontsize() * DPI / 72 / 2
                rows.setdefault(text.get_position()[1], []).append((middle - half, middle + half, text.get_text()))
        for row in rows.values():
            for (_, end, one), (start, _, other) in itertools.pairwise(sorted(row)):
                assert start - end >= gap, (one, other)


@drawn_pictures
def test_text_is_large_enough_at_a_readmes_width(name):
    drawn = figure(name)
    scale = README_WIDTH / (72 * drawn.get_size_inches()[0])
    assert min(text.get_fontsize() for text, _ in texts(name)) * scale >= 8


@sampled(2)
@drawn_pictures
def test_text_stands_out_from_what_it_stands_on(name):
    """Of every text, its colour against each pixel that its letters cover, in the picture without them."""
    drawn, found = figure(name), texts(name)
    written = figure_pixels(name).astype(float)
    for text, _ in found:
        text.set_visible(False)
    ground = pixels(drawn).astype(float)
    for text, _ in found:
        text.set_visible(True)
    for text, extent in found:
        x0, y0, x1, y1 = (round(each) for each in extent)
        part = np.s_[max(len(ground) - y1, 0) : len(ground) - y0, max(x0, 0) : x1]
        inked = np.abs(written[part] - ground[part]).max(axis=-1) > 96
        below = {tuple(pixel) for pixel in ground[part][inked].round().astype(int).tolist()}
        ink = luminance(to_hex(text.get_color()))
        worst = min((contrast(ink, luminance("#{:02x}{:02x}{:02x}".format(*pixel))) for pixel in below), default=21)
        assert worst >= 4.5, (text.get_text(), worst)


@drawn_pictures
def test_no_line_at_a_phase_or_sync_crosses_a_number(name):
    drawn = figure(name)
    checked = 0
    for axes in panels(drawn):
        boxes = np.array([letters(text, extent_of(text)) for text in axes.texts]).reshape(-1, 4)
        lines = [patch for patch in (*axes.artists, *axes.patches) if patch.get_zorder() == 3]
        for line in lines:
            ends = axes.transData.transform(line.get_path().vertices).reshape(-1, 2, 2)
            x, high, low = ends[:, 0, 0], ends[:, :, 1].max(axis=1), ends[:, :, 1].min(axis=1)
            crossed = (boxes[:, :1] < x) & (x < boxes[:, 2:3]) & (boxes[:, 1:2] < high) & (low < boxes[:, 3:])
            assert [axes.texts[text].get_text() for text in np.flatnonzero(crossed.any(axis=1))] == []
            checked += len(ends)
    assert checked or name == "memory_by_schedule" or PICTURES[name].orders


@drawn_pictures
def test_leaders_take_the_shortest_way_and_do_not_cross(name):
    drawn = figure(name)
    for axes in drawn.axes:
        if axes.axison or not axes.texts or PICTURES[name].orders:
            continue  # no names of phases
        leaders = [(*line.get_xdata(), text) for line, text in zip(axes.lines[1:], axes.texts, strict=True)]
        for at_bracket, at_name, text in leaders:
            half = text_width(text.get_text(), TEXT_SIZE) / 2
            middle = text.get_position()[0]
            assert at_name == pytest.approx(min(max(at_bracket, middle - half), middle + half)), text.get_text()
        for (low, high, one), (other_low, other_high, other) in itertools.combinations(leaders, 2):
            assert low < other_low, (one, other)
            assert high < other_high, (one, other)


@drawn_pictures
def test_a_picture_is_no_higher_than_a_screen(name):
    width, height = figure(name).get_size_inches()
    assert height / width * README_WIDTH <= 1020


@drawn_pictures
def test_a_title_says_in_words_what_is_shown(name):
    title = figure(name).texts[0].get_text()
    assert "_" not in title
    assert not title.startswith(f"{name}:")
    assert len(title.split()) >= 4, title


def test_the_first_picture_of_the_readme_is_filled_with_what_it_shows():
    white = (figure_pixels("schedules_four_ipus") >= 250).all(axis=-1).mean()
    assert white <= 0.7  # around bars and titles, as most of what is drawn is
