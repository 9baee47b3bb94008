"""Pictures as their readers see them: words and where they stand, and each picture of the gallery drawn once."""

import io
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from unittest import mock

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ipusim.app.render.figures import default_style_settings, to_png
from ipusim.app.render.style import DPI
from reports.gallery import GALLERY
from tests.effort import rarest
from tests.scenarios import ROOT


def words(figure: Figure) -> list[str]:
    """Return every text of ``figure``, drawn or not."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_text().strip()]


def panels(figure: Figure) -> list[Axes]:
    """Return the axes with a row for each IPU, from the top down; others have points, seconds or bytes upwards."""
    return [axes for axes in figure.axes if axes.get_ylim()[1] == 0]


def drawn_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return every text that is really drawn, with its extent in pixels; the pixels themselves are not made."""
    canvas = FigureCanvasAgg(figure)
    drawn = []
    draw = Text.draw

    def record(self: Text, renderer: object) -> None:
        if self.get_visible() and self.get_text().strip():
            drawn.append(self)
        draw(self, renderer)

    with mock.patch.object(Text, "draw", record):
        figure.draw_without_rendering()
    return [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in drawn]


def assert_legible(figure: Figure, drawn: Sequence[tuple[str, Bbox]]) -> None:
    """Hold that of the texts of a figure, with their extents, none is cut off and none lies over another."""
    for text, box in drawn:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    assert overlaps([(text, box.extents) for text, box in drawn]) == []


def overlaps(texts: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return the texts that lie over each other, of texts with their extents (x0, y0, x1, y1) in pixels."""
    x0, y0, x1, y1 = np.array([extent for _, extent in texts]).T
    over = (x0[:, None] < x1) & (x0 < x1[:, None]) & (y0[:, None] < y1) & (y0 < y1[:, None])
    return [(texts[one][0], texts[two][0]) for one, two in np.argwhere(np.triu(over, 1))]


def contrast(one: float, other: float) -> float:
    """Return the contrast of two relative luminances, as WCAG 2 defines it."""
    light, dark = max(one, other), min(one, other)
    return (light + 0.05) / (dark + 0.05)


PICTURES = {picture.scenario: picture for picture in GALLERY}
#: Scenarios whose pictures show every look, every file, and one row to sixteen: others with ``--every``.
_DRAWN = (
    "tutorial_step1_single_ipu",
    "schedules_four_ipus",
    "zero_bubble",
    "selection_orders",
    "small_superstep",
    "memory_by_schedule",
    "optimizer_state_offload",
    "concurrent_stages",
    "variables_on_host",
    "data_parallel_4x4",
    "inference",
    "bert_large",
)


def drawn_of(names: Iterable[str], others: pytest.MarkDecorator = rarest) -> list[Any]:
    """Return names of scenarios as parameters of a test that draws each of their pictures.

    Args:
        names: of the scenarios.
        others: mark of those whose pictures show nothing more.
    """
    return [name if name in _DRAWN else pytest.param(name, marks=others) for name in names]


@cache
def figure(name: str) -> Figure:
    """Return the picture of a scenario: who changes it puts back what was there."""
    drawn = PICTURES[name].figure()
    drawn.set_dpi(DPI)
    return drawn


@cache
def png(name: str) -> bytes:
    """Return the file of a scenario's picture."""
    return to_png(figure(name))


@cache
def figure_pixels(name: str) -> npt.NDArray[np.uint8]:
    """Return red, green and blue of every pixel in the file of a scenario's picture, from 0 to 255."""
    shown = matplotlib.image.imread(io.BytesIO(png(name)))[..., :3]
    return np.rint(shown * 255).astype(np.uint8)


def pixels(drawn: Figure) -> npt.NDArray[np.uint8]:
    """Return red, green and blue of every pixel of a figure, as its file would have them, from 0 to 255."""
    drawn.set_dpi(DPI)
    canvas = FigureCanvasAgg(drawn)
    with default_style_settings():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def assert_same_picture(made: bytes, name: str) -> None:
    """Hold that a picture is that of ``reports/``, but for how the fonts of this machine are smoothed."""
    there = (ROOT / "reports" / name).read_bytes()
    if made == there:
        return  # the same on a machine like the one that drew it: nothing to decode
    new, old = (matplotlib.image.imread(io.BytesIO(content)) for content in (made, there))
    assert new.shape == old.shape
    assert np.abs(new - old).mean() < 0.005
