"""A figure to bytes that are the same on every repeat, whatever the user's own matplotlib settings."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.figure import Figure

from ipusim.app.render.style import DPI


class Chart(Figure):
    """A figure that shows itself in a notebook, whatever backend matplotlib has there."""

    def _repr_png_(self) -> bytes:
        return to_png(self)


@contextmanager
def own_settings() -> Iterator[None]:
    """Put matplotlib's defaults and the project's settings of SVG and PDF in force; the caller's come back on leaving.

    Text in an SVG stays text, that can be searched, read aloud and copied. Where
    matplotlib's own font is missing, the next that it names are no wider, or hardly.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the font has not is drawn as empty boxes, of the same width everywhere.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams["text.parse_math"] = False  # a dollar sign in a file's name is one
        mpl.rcParams["svg.hashsalt"] = "ipusim"
        mpl.rcParams["svg.fonttype"] = "none"
        mpl.rcParams["pdf.fonttype"] = 42  # the font itself, not a drawing of each letter
        mpl.rcParams["font.sans-serif"] = ["DejaVu Sans", "Bitstream Vera Sans", "Verdana", "Arial", "Helvetica"]
        mpl.rcParams["hatch.linewidth"] = 0.6
        yield


def to_png(figure: Figure) -> bytes:
    """Return ``figure`` as a PNG of DPI pixels to the inch; equal figures give equal bytes."""
    buffer = io.BytesIO()
    with own_settings():
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "ipusim"})
    return buffer.getvalue()


def to_svg(figure: Figure) -> bytes:
    """Return ``figure`` as an SVG, without a date; equal figures give equal bytes.

    Images in it have DPI pixels to the inch.
    """
    buffer = io.BytesIO()
    with own_settings():
        figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None, "Creator": "ipusim"})
    return buffer.getvalue()


def to_pdf(figure: Figure) -> bytes:
    """Return ``figure`` as a PDF of one page, without a date; equal figures give equal bytes.

    Its text can be searched and copied. Images in it have DPI pixels to the inch.
    """
    buffer = io.BytesIO()
    with own_settings():
        figure.savefig(buffer, format="pdf", dpi=DPI, metadata={"CreationDate": None, "Creator": "ipusim"})
    return buffer.getvalue()
