"""A figure to bytes that are the same on every repeat."""

from __future__ import annotations

import io
from typing import Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ipusim.render.style import DPI

#: Text in an SVG is drawn as outlines ("path"), each glyph stored once: the viewer's machine
#: may not have matplotlib's font, and another would run out of the boxes.
_SETTINGS: Final = {"svg.hashsalt": "ipusim", "svg.fonttype": "path", "svg.image_inline": True}


def to_png(figure: Figure, dpi: int = DPI) -> bytes:
    """Return ``figure`` as a PNG; equal figures give equal bytes."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": "ipusim"}) if False else None
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": "ipusim"})
    return buffer.getvalue()


def to_svg(figure: Figure) -> bytes:
    """Return ``figure`` as an SVG; equal figures give equal bytes, without a date."""
    buffer = io.BytesIO()
    with mpl.rc_context(_SETTINGS):  # restored on leaving, so that a caller's own settings stay
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "ipusim"})
    return buffer.getvalue()
