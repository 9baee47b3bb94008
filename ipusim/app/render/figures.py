"""A figure to bytes that are the same on every repeat, whatever the user's own matplotlib settings."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipusim.app.render.style import DPI, LINE, TEXT_SIZE


class Chart(Figure):
    """A figure that is laid out in inches, and that shows itself in a notebook, whatever backend matplotlib has."""

    def add_clear_axes(self, left: float, top: float, wide: float, tall: float) -> Axes:
        """Add axes without a ground, at inches from the left and from the top, so many inches wide and tall."""
        width, height = self.get_size_inches()
        axes = self.add_axes((left / width, 1 - (top + tall) / height, wide / width, tall / height))
        axes.patch.set_visible(False)
        return axes

    def write(self, left: float, top: float, text: str, **how: Any) -> None:
        """Write text at inches from the left and from the top, unless ``how`` says otherwise below that point."""
        width, height = self.get_size_inches()
        usual: dict[str, Any] = {"fontsize": TEXT_SIZE, "color": LINE, "va": "top"}
        self.text(left / width, 1 - top / height, text, **(usual | how))

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
    return _saved(figure, "png", {"Software": "ipusim"})


def to_svg(figure: Figure) -> bytes:
    """Return ``figure`` as an SVG, without a date; equal figures give equal bytes.

    Images in it have DPI pixels to the inch.
    """
    return _saved(figure, "svg", {"Date": None, "Creator": "ipusim"})


def to_pdf(figure: Figure) -> bytes:
    """Return ``figure`` as a PDF of one page, without a date; equal figures give equal bytes.

    Its text can be searched and copied. Images in it have DPI pixels to the inch.
    """
    return _saved(figure, "pdf", {"CreationDate": None, "Creator": "ipusim"})


def _saved(figure: Figure, form: str, metadata: dict[str, str | None]) -> bytes:
    buffer = io.BytesIO()
    with own_settings():
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
