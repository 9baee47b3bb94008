"""Recolour pictures for a theme: dark paper, or greys for print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from ipusim.app.render.page.fills import colours as page_colours
from ipusim.app.render.style import DPI, luminance

#: Paper of the dark theme, as on the page of runs.
_DARK: Final = "#181b21"
#: Minimum contrast of text (WCAG 2.1).
_TEXT_CONTRAST: Final = 4.5
#: Minimum contrast of lines (WCAG 2.1).
_LINE_CONTRAST: Final = 3.0
#: Share of a text's background that must contrast with its ink; lines may cross the remainder.
_VISIBLE_SHARE: Final = 0.9
_INKS: Final = ("#ffffff", "#000000")

#: Greys for print of colours whose luminance is not used. Input gradients and their hatching would look like forward
#: passes. The black text of weight updates would be hard to read.
_GREYS: Final = {"#f2a35e": "#c8c8c8", "#fac99e": "#f6f6f6", "#b8669a": "#b0b0b0"}

#: Function from a colour ``#rrggbb`` and whether it fills an area, to the theme's colour.
Theme = Callable[[str, bool], str]


def contrast(ink: str, ground: str) -> float:
    """Return the contrast of two colours ``#rrggbb``, 1 to 21 (WCAG 2.1)."""
    light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def in_dark(colour: str, is_face: bool) -> str:
    """Return a colour on dark paper, for an area or a line."""
    if is_face:
        with suppress(KeyError):  # no look has this fill colour
            return page_colours(colour, "dark")["fill"]
    red, green, blue = (int(colour[digit : digit + 2], 16) for digit in (1, 3, 5))
    if max(red, green, blue) - min(red, green, blue) <= 16:  # grey: white becomes paper, black becomes white
        paper = [int(_DARK[digit : digit + 2], 16) for digit in (1, 3, 5)]
        share = (red + green + blue) / 765
        return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in paper)
    parts = [red, green, blue]
    while contrast(_hex(parts), _DARK) < _LINE_CONTRAST:
        parts = [round(part + (255 - part) * 0.1) + 1 for part in parts]
    return _hex(parts)


def in_grey(colour: str, is_face: bool) -> str:  # noqa: ARG001 - the signature of every theme
    """Return the grey of a colour's luminance, or a more distinct grey."""
    if colour in _GREYS:
        return _GREYS[colour]
    light = luminance(colour)
    part = 12.92 * light if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055
    return _hex([round(255 * part)] * 3)


def _hex(parts: Sequence[int]) -> str:
    return "#" + "".join(f"{min(part, 255):02x}" for part in parts)


#: Themes by name; None keeps the colours of a chart.
_THEMES: Final[dict[str, Theme | None]] = {"light": None, "dark": in_dark, "print": in_grey}


def apply_theme(figure: Figure, name: str) -> None:
    """Recolour a figure for a theme. Unreadable text becomes black or white."""
    theme = _THEMES[name]
    if theme is None:
        return
    figure.draw_without_rendering()  # creates the tick labels
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    grounds = [text.get_bbox_patch() for text in texts]
    for artist in (*figure.findobj(), *filter(None, grounds)):
        _recolour(artist, theme)
    for text in texts:
        text.set_color(_with_theme(theme, text.get_color()))
    _ensure_contrast(figure, texts)


def _with_theme(theme: Theme, colour: Any, is_face: bool = False) -> Any:
    """Return the RGBA colour in a theme, with unchanged opacity; ``none`` stays."""
    red, green, blue, opaque = to_rgba(colour)
    return (*to_rgba(theme(to_hex((red, green, blue)), is_face))[:3], opaque) if opaque else "none"


def _recolour(artist: Artist, theme: Theme) -> None:
    """Recolour a patch, line or collection.

    Hatches take the edge's colour. They keep it on dark paper, since fills hardly change.
    """
    if isinstance(artist, Patch):
        face, edge = artist.get_facecolor(), artist.get_edgecolor()
        artist.set_facecolor(_with_theme(theme, face, True))
        if theme is in_grey or not artist.get_hatch():
            artist.set_edgecolor(_with_theme(theme, edge))
    elif isinstance(artist, Line2D):
        line, face, edge = artist.get_color(), artist.get_markerfacecolor(), artist.get_markeredgecolor()
        artist.set_color(_with_theme(theme, line))
        artist.set_markerfacecolor(_with_theme(theme, face))
        artist.set_markeredgecolor(_with_theme(theme, edge))
    elif isinstance(artist, ScalarMappable) and artist.get_array() is not None:  # a heat map or its colour bar
        artist.set_cmap("gray" if theme is in_grey else artist.get_cmap())
    elif isinstance(artist, Collection):
        faces, edges = artist.get_facecolor(), artist.get_edgecolor()
        artist.set_facecolor([_with_theme(theme, face, True) for face in faces])
        if theme is in_grey or not artist.get_hatch():
            artist.set_edgecolor([_with_theme(theme, edge) for edge in edges])


def _ensure_contrast(figure: Figure, texts: Sequence[Text]) -> None:
    """Give black or white ink to each text with too little contrast."""
    for text in texts:
        text.set_visible(False)
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    ground = np.asarray(canvas.buffer_rgba())[::-1, :, :3]  # type: ignore[no-untyped-call]
    for text in texts:
        text.set_visible(True)
    for text in texts:
        left, low, right, high = (max(round(side), 0) for side in text.get_window_extent().extents)
        colours, counts = np.unique(ground[low:high, left:right].reshape(-1, 3), axis=0, return_counts=True)
        pixels = [_hex(pixel) for pixel in colours.tolist()]
        inks = (to_hex(text.get_color()), *_INKS)
        contrasting = {ink: sum(counts[[contrast(ink, pixel) >= _TEXT_CONTRAST for pixel in pixels]]) for ink in inks}
        text.set_color(
            next(
                (ink for ink in inks if contrasting[ink] >= _VISIBLE_SHARE * sum(counts)),
                max(contrasting, key=contrasting.__getitem__),
            )
        )
