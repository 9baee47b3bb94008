"""What a picture shows, as its reader sees it: its words, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from unittest import mock

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def words(figure: Figure) -> list[str]:
    """Return every text of ``figure``, drawn or not."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_text().strip()]


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
    for (one, here), (other, there) in combinations(drawn, 2):
        apart = here.x1 <= there.x0 or there.x1 <= here.x0 or here.y1 <= there.y0 or there.y1 <= here.y0
        assert apart, (one, other)


def contrast(one: float, other: float) -> float:
    """Return the contrast of two relative luminances, as WCAG 2 defines it."""
    light, dark = max(one, other), min(one, other)
    return (light + 0.05) / (dark + 0.05)
