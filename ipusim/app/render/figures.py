"""Make figures reproducible: equal bytes on every repeat, regardless of the user's matplotlib settings."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from ipusim.app.render.picture import Picture
from ipusim.app.render.style import DPI, LINE, TEXT_SIZE
from ipusim.app.render.theme import apply_theme

#: Pixels by which a text's box may exceed the picture: its outermost pixels hold no ink.
_BLANK_PIXELS: Final = 1.0
#: Share of a text's height at its top and at its bottom that only ascenders and descenders reach.
_TAIL: Final = 0.2
#: Pattern of a hatch in SVG.
_PATTERN: Final = re.compile(rb"<pattern .*?</pattern>", re.DOTALL)
#: Dot of a hatch as matplotlib writes it: eight curves from bottom to top and back.
_DOT: Final = re.compile(rb"M (\S+) (\S+) \n(?:C [^\n]+\n){3}C (?:\S+ ){5}(\S+) \n(?:C [^\n]+\n){4}z")
#: Rotation of a text in SVG by 0 degrees.
_NO_TURN: Final = re.compile(rb' transform="rotate\(-0 [^"]*\)"')
#: Fonts of a text in SVG.
_FONTS: Final = re.compile(rb"font-family: [^;\"]+; ")
#: Start of the SVG group that contains the whole picture.
_FIGURE: Final = b'<g id="figure_1">'


class Chart(Figure):
    """Figure with layout in inches that displays itself in notebooks under any backend."""

    def add_clear_axes(self, left: float, top: float, wide: float, tall: float) -> Axes:
        """Add transparent axes, placed and sized in inches from the left and the top."""
        width, height = self.get_size_inches()
        axes = self.add_axes((left / width, 1 - (top + tall) / height, wide / width, tall / height))
        axes.patch.set_visible(False)
        return axes

    def write(self, left: float, top: float, text: str, **style: Any) -> None:
        """Write text; ``left`` and ``top`` are inches from the chart's edges to the text's left and top edges.

        ``style`` may change the alignment.
        """
        width, height = self.get_size_inches()
        usual: dict[str, Any] = {"fontsize": TEXT_SIZE, "color": LINE, "va": "top"}
        self.text(left / width, 1 - top / height, text, **(usual | style))

    def _repr_png_(self) -> bytes:
        return to_png(self)


def finish(chart: Chart, picture: Picture) -> Chart:
    """Check a chart's legibility and apply its theme.

    Raises OptionError if texts are cut off or overlap in a picture of a chosen size. Pictures of default size are laid
    out so that neither happens.
    """
    with default_style_settings():
        if picture.height_in is not None:
            _check_legible(chart, picture)
        apply_theme(chart, picture.theme)
    return chart


def _check_legible(chart: Chart, picture: Picture) -> None:
    FigureCanvasAgg(chart)
    chart.draw_without_rendering()
    wide, tall = chart.bbox.size
    boxes = sorted(_letters(chart), key=lambda box: box.left)
    for number, box in enumerate(boxes):
        if (
            box.left < -_BLANK_PIXELS
            or box.low < -_BLANK_PIXELS
            or box.right > wide + _BLANK_PIXELS
            or box.high > tall + _BLANK_PIXELS
        ):
            raise picture.refusal(f"{box.words!r:.60} would be cut off")
        for neighbour in boxes[number + 1 :]:
            if neighbour.left >= box.right:
                break
            if max(box.low, neighbour.low) < min(box.high, neighbour.high):
                raise picture.refusal(f"{box.words!r:.40} and {neighbour.words!r:.40} would overlap")


class _Letters(NamedTuple):
    """Text of a chart with edges in pixels, without ascenders and descenders."""

    words: str
    left: float
    low: float
    right: float
    high: float


def _letters(chart: Chart) -> Iterator[_Letters]:
    """Yield the visible texts of a chart, without the tick labels that matplotlib keeps outside of the axes."""
    hidden_texts = {
        label
        for axes in chart.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    for text in chart.findobj(Text):
        is_drawn = text.axes is None or text.axes.axison or text in text.axes.texts
        if text.get_visible() and text.get_text().strip() and is_drawn and text not in hidden_texts:
            left, low, right, high = (float(side) for side in text.get_window_extent().extents)
            wide, up = (_TAIL * (right - left), 0.0) if text.get_rotation() else (0.0, _TAIL * (high - low))
            yield _Letters(text.get_text(), left + wide, low + up, right - wide, high - up)


@contextmanager
def default_style_settings() -> Iterator[None]:
    """Use matplotlib's defaults and the project's SVG and PDF settings, then restore the caller's.

    Text in an SVG stays text for search, screen readers and copying. The fallback fonts are hardly wider than
    matplotlib's default font.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        # Scripts missing in the font become empty boxes of a fixed width.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams["text.parse_math"] = False  # dollar signs in file names are literal
        mpl.rcParams["svg.hashsalt"] = "ipusim"
        mpl.rcParams["svg.fonttype"] = "none"
        mpl.rcParams["pdf.fonttype"] = 42  # embed the font instead of drawing letters
        mpl.rcParams["font.sans-serif"] = ["DejaVu Sans", "Bitstream Vera Sans", "Verdana", "Arial", "Helvetica"]
        mpl.rcParams["hatch.linewidth"] = 0.6
        yield


def to_png(figure: Figure) -> bytes:
    """Return ``figure`` as PNG of DPI pixels per inch; equal figures give equal bytes."""
    return _save(figure, "png", {"Software": "ipusim"})


def to_svg(figure: Figure) -> bytes:
    """Return ``figure`` as SVG without a date; equal figures give equal bytes.

    Images inside have DPI pixels per inch.
    """
    content = _save(figure, "svg", {"Date": None, "Creator": "ipusim"})
    content = _NO_TURN.sub(b"", _PATTERN.sub(lambda pattern: _DOT.sub(_arcs, pattern.group()), content))
    if fonts := _FONTS.search(content):  # texts inherit the fonts from the group, which saves a fifth of the bytes
        style = fonts.group().rstrip(b"; ")
        content = content.replace(fonts.group(), b"").replace(_FIGURE, _FIGURE[:-1] + b' style="%s">' % style, 1)
    return content


def _arcs(dot: re.Match[bytes]) -> bytes:
    """Return a dot of a hatch as two arcs, a tenth of the bytes of eight curves."""
    x, bottom, top = dot.groups()
    height = float(bottom) - float(top)
    radius, way = (f"{number:g}".replace("0.", ".", 1) for number in (height / 2, height))
    arc = f"a{radius} {radius} 0 0 0 0"
    return b"M%s %s" % (x, bottom) + f"{arc}-{way}{arc} {way}z".encode()


def to_pdf(figure: Figure) -> bytes:
    """Return ``figure`` as single-page PDF without a date; equal figures give equal bytes.

    Text can be searched and copied. Images inside have DPI pixels per inch.
    """
    return _save(figure, "pdf", {"CreationDate": None, "Creator": "ipusim"})


def _save(figure: Figure, form: str, metadata: dict[str, str | None]) -> bytes:
    buffer = io.BytesIO()
    with default_style_settings():
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
