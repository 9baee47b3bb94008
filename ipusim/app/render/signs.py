"""Draw signs in a sweep's chart for points without a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D, ScaledTranslation

#: Signs and their meanings.
SIGNS: Final = {"×": "did not run", "?": "ran, has no finite value"}
#: Height of a row of signs in points.
_ROW: Final = 8.0


def draw_signs(panel: Axes, signs: Sequence[tuple[float, str]], colour: str, row: int = 0) -> None:
    """Draw signs above the axis, in ``row`` counted from 0."""
    figure = panel.get_figure()
    assert figure is not None
    lift = ScaledTranslation(0, (row + 0.7) * _ROW / 72, figure.dpi_scale_trans)
    for sign in SIGNS:
        if places := [x for x, mark in signs if mark == sign]:
            panel.plot(
                places, [0] * len(places), transform=panel.get_xaxis_transform() + lift, **sign_style(sign, colour)
            )
            panel.update_datalim([(x, 0) for x in places], updatey=False)


def sign_style(sign: str, colour: str) -> dict[str, Any]:
    """Return matplotlib's line properties for points drawn as this character."""
    outline = TextPath((0, 0), sign, prop=FontProperties(family="DejaVu Sans", size=10, weight="bold"))
    box = outline.get_extents()
    glyph = outline.transformed(Affine2D().translate(-(box.x0 + box.x1) / 2, -(box.y0 + box.y1) / 2))
    return {"linestyle": "", "marker": glyph, "markersize": 7, "markeredgewidth": 0, "color": colour}
